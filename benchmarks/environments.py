"""`python -m benchmarks.environments [NAME …] [--seeds N]`: Fed-LSVI beside tabular Q-learning and
random play on environments that others wrote, with default settings but for those in the table.

All play the same number of episodes: M·T, shared among Fed-LSVI's agents. Policies are then played
in 200 new episodes. Settings were fixed before the first run. The lines are those of the table in
docs/environments.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from time import process_time
from typing import Any

import numpy as np

from benchmarks import tabular_q
from benchmarks.small_worlds import Catch, door_key, empty
from fedlsvi import FedLSVI
from fedlsvi.envs import as_environment
from fedlsvi.envs.gym.play import evaluate_policy
from fedlsvi.features import FourierFeatures, TileFeatures

PLAYED = 200
"""Episodes that measure a policy."""


@dataclass(frozen=True)
class Entry:
    """A line of the table: an environment, and how it is learned.

    Attributes:
        env: An id, or a function that makes it.
        horizon: H, in decisions.
        episodes: T of each agent.
        best: What an optimal policy earns, as far as it is known.
        learner: Settings of Fed-LSVI beside `n_agents`.
        options: Of the environment.
        features: None is one-hot.
        bins: Of tabular Q-learning, where states are vectors.
    """

    env: Any
    horizon: int
    episodes: int
    best: str
    agents: int = 4
    learner: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    features: Callable[[], Any] | None = None
    bins: Any = None


CARTPOLE = ([-2.4, -3.0, -0.21, -3.0], [2.4, 3.0, 0.21, 3.0])
MOUNTAIN = ([-1.2, -0.07], [0.6, 0.07])
ACROBOT = ([-1.0] * 4 + [-12.6, -28.3], [1.0] * 4 + [12.6, 28.3])
ONE = {"value_range": 1}

TABLE: dict[str, Entry] = {
    "FrozenLake-v1": Entry("FrozenLake-v1", 50, 1000, ".546", learner=ONE),
    "FrozenLake8x8-v1": Entry("FrozenLake8x8-v1", 100, 2000, ".641", learner=ONE),
    "CliffWalking-v1": Entry("CliffWalking-v1", 20, 500, "-13", learner={"value_range": 20}),
    "Taxi-v4": Entry("Taxi-v4", 20, 2000, "7.93", learner={"value_range": 7.34}),
    "Blackjack-v1": Entry(
        "Blackjack-v1", 10, 2500, "-.05", learner={"value_range": 5.5},
        options={"reward_range": (-1, 1)},
    ),
    "Catch": Entry(
        Catch, 9, 500, "1", learner={"value_range": 5}, options={"reward_range": (-1, 1)}
    ),
    "MiniGrid-Empty-5x5": Entry(lambda: empty(5), 30, 500, ".955", learner=ONE),
    "MiniGrid-Empty-6x6": Entry(lambda: empty(6), 40, 500, ".956", learner=ONE),
    "MiniGrid-Empty-8x8": Entry(lambda: empty(8), 60, 500, ".961", learner=ONE),
    "MiniGrid-DoorKey-5x5": Entry(lambda: door_key(5), 40, 500, ".97", learner=ONE),
    "CartPole-v1": Entry(
        "CartPole-v1", 200, 100, "200", learner={"value_range": 200, "rounds": 40},
        features=lambda: FourierFeatures(16, bandwidth=[1.5, 1.5, 0.15, 1.5]),
        bins=tabular_q.edges(*CARTPOLE, 8),
    ),
    "MountainCar-v0": Entry(
        "MountainCar-v0", 25, 200, "about -100", learner={"rounds": 40},
        options={"repeat": 8, "reward_range": (-1, 0)},
        features=lambda: TileFeatures(tilings=2, tiles=8), bins=tabular_q.edges(*MOUNTAIN, 20),
    ),
    "Acrobot-v1": Entry(
        "Acrobot-v1", 50, 100, "about -65", learner={"rounds": 30},
        options={"repeat": 10, "reward_range": (-1, 0)},
        features=lambda: FourierFeatures(16), bins=tabular_q.edges(*ACROBOT, 5),
    ),
}  # fmt: skip


def world_of(entry: Entry, tables: bool) -> Any:
    """The environment: with its table where it has one, or stepped."""
    return as_environment(entry.env, horizon=entry.horizon, tables=tables, **entry.options)


def line(name: str, entry: Entry, seeds: int) -> str:
    """One row of the table, median over seeds with the lowest and highest."""
    stepped, env = world_of(entry, tables=False), world_of(entry, tables=True)
    features = None if entry.features is None else entry.features()
    ours, theirs, spent, sent = [], [], [], []
    for seed in range(seeds):
        began = process_time()
        learner = FedLSVI(entry.agents, **entry.learner)
        run = learner.learn(env, entry.episodes, seed, features=features, progress=False)
        spent.append(process_time() - began)
        sent.append(run.rounds)
        ours.append(evaluate_policy(run.policy, stepped, PLAYED, seed=1000 + seed).mean)
        q = tabular_q.learn(stepped, entry.agents * entry.episodes, seed, entry.bins)
        theirs.append(evaluate_policy(q, stepped, PLAYED, seed=1000 + seed).mean)
    chance = evaluate_policy("random", stepped, PLAYED, seed=1000).mean
    numbers = [_shown(ours), _shown(theirs), f"{chance:.3g}", entry.best]
    size = f"{entry.agents}×{entry.episodes:,}, H = {entry.horizon}"
    cost = [f"{np.median(sent):.0f}", f"{np.median(spent):.0f}"]
    return " | ".join(["", name, size, _settings(entry), *numbers, *cost, ""]).strip()


def _shown(found: list[float]) -> str:
    mid = f"{np.median(found):.3g}"
    return mid if len(found) == 1 else f"{mid} [{min(found):.3g}, {max(found):.3g}]"


def _settings(entry: Entry) -> str:
    """What is not a default."""
    phi = "one-hot" if entry.features is None else type(entry.features()).__name__
    given = {**entry.learner, **entry.options}
    return ", ".join([phi, *(f"{key} = {value}" for key, value in given.items())])


def main() -> None:
    """Print the table, line by line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(TABLE)}")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    print(
        "| environment | episodes | settings | Fed-LSVI | tabular Q | random | optimal | rounds "
        "| seconds |\n|---|---|---|---|---|---|---|---|---|"
    )
    for name in given.names or TABLE:
        if name not in TABLE:
            parser.error(f"unknown environment '{name}': choose from {', '.join(TABLE)}")
        print(line(name, TABLE[name], given.seeds), flush=True)


if __name__ == "__main__":
    main()
