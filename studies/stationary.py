"""How much does it save to learn from the data of all steps together?

Fed-LSVI with a model for each step and with one for all (`stationary=`), otherwise at the practical
defaults, on every family of problems whose transitions and rewards are the same at every step. The
score of a run is its regret divided by that of the uniform policy on the same problem.

`python -m studies.stationary [instances]` prints the table of
stationary.md. Five instances of each family take a minute.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from fedlsvi import FedLSVI
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.convert import as_environment
from studies.defaults import uniform_regret

AGENTS = 8
EPISODES = 1_000


def problems() -> dict[str, Callable[[int], FiniteMDP]]:
    """Families of stationary problems; the argument is the instance's number."""
    from fedlsvi import envs

    def gym(name: str, horizon: int, **given: Any) -> FiniteMDP:
        env = as_environment(name, horizon=horizon, **given)
        assert isinstance(env, FiniteMDP)
        return env

    return {
        "river-swim": lambda i: envs.RiverSwim(n_states=5 + i % 4, horizon=20),
        "n-chain": lambda i: envs.NChain(n_states=8 + i % 4),
        "garnet": lambda i: envs.Garnet(
            n_states=12, n_actions=3, branching=3, horizon=8, seed=300 + i
        ),
        "FrozenLake-v1": lambda i: gym("FrozenLake-v1", 40),
        "CliffWalking-v1": lambda i: gym("CliffWalking-v1", 30, reward_range=(-100.0, 0.0)),
    }


def scores(env: FiniteMDP, seed: int, stationary: bool) -> tuple[float, float, int, int]:
    """Normalised regret, that of the last tenth, rounds and scalars of a run."""
    learner = FedLSVI(AGENTS, stationary=stationary)
    run = learner.learn(env, EPISODES, seed, progress=False)
    assert run.regret is not None
    whole, tenth = uniform_regret(env, AGENTS, EPISODES), EPISODES // 10
    late = 10.0 * (run.regret[-1] - run.regret[-1 - tenth])
    return run.regret[-1] / whole, late / whole, run.rounds, run.ledger.total


def main(instances: int = 5) -> None:
    """Print the table."""
    head = ("problem", "H", "regret per step", "pooled", "last tenth per step", "pooled",
            "rounds per step", "pooled", "scalars per step", "pooled")  # fmt: skip
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for name, make in problems().items():
        found = {own: np.empty((instances, 4)) for own in (False, True)}
        for i in range(instances):
            env = make(50 + i)
            for own, rows in found.items():
                rows[i] = scores(env, 2000 + i, own)
        cells = [name, f"{env.horizon}"]
        for k, form in enumerate((".3f", ".3f", ",.0f", ",.0f")):
            cells += [f"{found[own][:, k].mean():{form}}" for own in (False, True)]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:2]))
