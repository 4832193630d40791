"""Sepsis treatment across hospitals: exact values of learned policies and of baselines.

`python -m examples.sepsis.run`
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from examples.play import Line, command, play, references, value
from examples.sepsis.hospitals import clinicians, fluids_only, honest_features, hospitals, sepsis

from fedlsvi import Run
from fedlsvi.envs import FiniteMDP
from fedlsvi.features import LowRankFeatures

HERE = Path(__file__).parent
XI, N = 0.2, 10


def main(seeds: int, changes: list[str]) -> list[Line]:
    """Values are probabilities of survival within 20 steps (80 hours)."""
    env = sepsis()
    law, constant = env.initial_law(0), []
    for a in range(env.n_actions):
        constant.append(value(env, np.full((env.horizon, env.n_states), a)))
    lines = [
        *references(env),
        Line("clinicians' policy", (value(env, clinicians(env)),)),
        Line("best constant action", (max(constant),)),
    ]
    alone = [*changes, "n_agents=1"]

    def learned(what: str, world: FiniteMDP, these: list[str], **given: object) -> None:
        runs = [play(HERE, s, these, **({"env": world} | given)) for s in range(seeds)]
        lines.append(Line(what, tuple(value(world, run.policy.table) for run in runs)))

    known = LowRankFeatures(16).bind(env)
    learned("10 hospitals, privileged features (d = 16)", env, changes, features=known)
    learned("one hospital alone, the same", env, alone, features=known)
    few = fluids_only(env)
    honest = honest_features(few)
    lines.append(Line("optimum with fluids only", (float(law @ few.optimal_values()[0]),)))
    learned("10 hospitals, fluids only, honest features (d = 16)", few, changes, features=honest)
    longer = changes or ["episodes=5000"]
    learned("  the same, 5,000 episodes each", few, longer, features=honest)
    learned("one hospital alone, honest features", few, alone, features=honest)
    known = LowRankFeatures(16).bind(few)
    differing = hospitals(few, N, XI)
    runs = [play(HERE, s, changes, env=differing, features=known) for s in range(seeds)]
    best = np.mean([law @ e.optimal_values()[0] for e in differing])
    lines += [
        Line(f"hospitals that differ by ξ = {XI}: mean of their optima", (float(best),)),
        Line("  one policy for all, privileged features (d = 16)",
             tuple(mean_value(differing, run) for run in runs)),
    ]  # fmt: skip
    return lines


def mean_value(envs: list[FiniteMDP], run: Run) -> float:
    """The mean over hospitals of the exact value of the common policy."""
    return float(np.mean([value(env, run.policy.table) for env in envs]))


if __name__ == "__main__":
    command(main)
