"""CartPole: a learning curve compared with the random policy. V* is unknown, so returns count.

`python -m examples.cartpole.run`
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from examples.play import Line, command, play

from fedlsvi import Run
from fedlsvi.envs.gym.play import evaluate_policy

HERE = Path(__file__).parent
PARTS = 8


def main(seeds: int, changes: list[str]) -> list[Line]:
    """Mean return of the episodes played, part by part, and of the learned policy."""
    runs = [play(HERE, seed, changes) for seed in range(seeds)]
    H, T = runs[0].parameters.horizon, runs[0].parameters.episodes
    chance = evaluate_policy("random", "CartPole-v1", 200, horizon=H)
    lines = [Line("largest return", (float(H),)), Line("random policy", (chance.mean,))]
    curves = np.array([curve(run) for run in runs])
    for part in np.array_split(np.arange(T), PARTS):
        what = f"Fed-LSVI, episodes {part[0] + 1}–{part[-1] + 1} of each agent"
        lines.append(Line(what, tuple(curves[:, part].mean(axis=1))))
    final = [evaluate_policy(run.policy, "CartPole-v1", 100, seed=9).mean for run in runs]
    lines.append(Line("the policy at the end, 100 new episodes", tuple(final)))
    return [*lines, Line("rounds of communication", tuple(run.rounds for run in runs))]


def curve(run: Run) -> np.ndarray:
    """(T,) the mean return of the round that each episode belongs to."""
    assert run.mean_returns is not None
    return np.repeat(run.mean_returns, [record.length for record in run.records])


if __name__ == "__main__":
    command(main)
