"""`python -m benchmarks.environments FILE [NAME …] [--seeds N]`: Fed-LSVI, tabular
Q-learning and random play on third-party environments, with default settings except those in the
table.

All play the same number of episodes: M·T, shared among Fed-LSVI's agents. Policies are then
evaluated on 200 new episodes. Settings were fixed before the first run of the table; the page says
what was changed since. FILE keeps every run, so the study can be stopped and resumed;
docs/environments.md has the table.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from benchmarks import tabular_q
from benchmarks.small_worlds import Catch, door_key, empty, lava_gap
from fedlsvi import FedLSVI
from fedlsvi.envs import as_environment
from fedlsvi.envs.gym.play import evaluate_policy
from fedlsvi.features import FourierFeatures, TileFeatures

PLAYED = 200
"""Episodes that measure a policy, unless the entry asks for more."""


@dataclass(frozen=True)
class Entry:
    """A line of the table: an environment, and how it is learned.

    Attributes:
        env: An id, or a function that makes it.
        horizon: H, in decisions.
        episodes: T of each agent.
        best: What an optimal policy earns, as far as it is known.
        learner: Settings of Fed-LSVI other than `n_agents`.
        options: Of the environment.
        features: None is one-hot.
        bins: Of tabular Q-learning, where states are vectors.
        played: Episodes that measure a policy.
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
    played: int = PLAYED


CARTPOLE = ([-2.4, -3.0, -0.21, -3.0], [2.4, 3.0, 0.21, 3.0])
MOUNTAIN = ([-1.2, -0.07], [0.6, 0.07])
ACROBOT = ([-1.0] * 4 + [-12.6, -28.3], [1.0] * 4 + [12.6, 28.3])
ONE = {"value_range": 1}

FREE = {"kwargs": {"is_slippery": False}}

TABLE: dict[str, Entry] = {
    "MiniGrid-Empty-5x5": Entry(lambda: empty(5), 30, 500, ".955", learner=ONE),
    "MiniGrid-DoorKey-5x5": Entry(lambda: door_key(5), 40, 500, ".97", learner=ONE),
    "MiniGrid-Empty-8x8": Entry(lambda: empty(8), 60, 500, ".961", learner=ONE),
    "MiniGrid-Empty-8x8, M = 16": Entry(lambda: empty(8), 60, 125, ".961", 16, learner=ONE),
    "Blackjack-v1": Entry(
        "Blackjack-v1", 10, 2500, "-.05", learner={"value_range": 5.5},
        options={"reward_range": (-1, 1)}, played=20_000,
    ),
    "CartPole-v1": Entry(
        "CartPole-v1", 200, 300, "200", learner={"value_range": 200},
        features=lambda: FourierFeatures(16, bandwidth=[1.5, 1.5, 0.15, 1.5]),
        bins=tabular_q.edges(*CARTPOLE, 8),
    ),
    "Acrobot-v1": Entry(
        "Acrobot-v1", 50, 100, "about -65", options={"repeat": 10, "reward_range": (-1, 0)},
        features=lambda: FourierFeatures(16), bins=tabular_q.edges(*ACROBOT, 5),
    ),
    "FrozenLake-v1": Entry("FrozenLake-v1", 50, 1000, ".546", learner=ONE),
    "FrozenLake8x8-v1": Entry("FrozenLake8x8-v1", 100, 2000, ".641", learner=ONE),
    "FrozenLake-v1, not slippery": Entry("FrozenLake-v1", 20, 250, "1", learner=ONE, options=FREE),
    "CliffWalking-v1": Entry("CliffWalking-v1", 20, 500, "-13", learner={"value_range": 20}),
    "Taxi-v4": Entry("Taxi-v4", 20, 2000, "7.93", learner={"value_range": 7.34}),
    "ICU-Sepsis-v2": Entry("Sepsis/ICU-Sepsis-v2", 20, 2000, ".793", learner=ONE),
    "Catch": Entry(
        Catch, 9, 500, "1", learner={"value_range": 5}, options={"reward_range": (-1, 1)}
    ),
    "MiniGrid-Empty-6x6": Entry(lambda: empty(6), 40, 500, ".956", learner=ONE),
    "MiniGrid-LavaGapS5": Entry(lambda: lava_gap(5), 30, 500, "", learner=ONE),
    "MiniGrid-DoorKey-6x6": Entry(lambda: door_key(6), 60, 500, ".97", learner=ONE),
    "MountainCar-v0": Entry(
        "MountainCar-v0", 25, 200, "about -100", options={"repeat": 8, "reward_range": (-1, 0)},
        features=lambda: TileFeatures(tilings=2, tiles=8), bins=tabular_q.edges(*MOUNTAIN, 20),
    ),
}  # fmt: skip

BESIDE: dict[str, Entry] = {
    "CartPole-v1, 200 episodes": replace(TABLE["CartPole-v1"], episodes=200),
}
"""Mentioned on the page but not in its table: run only if named."""

EVERY = TABLE | BESIDE


def world_of(entry: Entry, tables: bool) -> Any:
    """The environment: with its table where it has one, or stepped."""
    return as_environment(entry.env, horizon=entry.horizon, tables=tables, **entry.options)


def play(name: str, seed: int) -> dict[str, Any]:
    """One run of Fed-LSVI: what its policy earns, and what that took."""
    entry = EVERY[name]
    stepped, env = world_of(entry, tables=False), world_of(entry, tables=True)
    features = None if entry.features is None else entry.features()
    began = process_time()
    learner = FedLSVI(entry.agents, **entry.learner)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it sends more than the raw data: a column says so
        run = learner.learn(env, entry.episodes, seed, features=features, progress=False)
    seconds = process_time() - began
    ours = evaluate_policy(run.exploit(), stepped, entry.played, seed=1000 + seed).mean
    return {
        "name": name, "seed": seed, "ours": ours, "rounds": run.rounds, "seconds": seconds,
        "theirs": None,
        "random": evaluate_policy("random", stepped, entry.played, seed=1000 + seed).mean,
        "raw": None if run.scalars_raw is None else run.ledger.total / run.scalars_raw,
    }  # fmt: skip


def tabular(name: str, seed: int) -> float:
    """What tabular Q-learning's policy earns after as many episodes."""
    entry = EVERY[name]
    world = world_of(entry, tables=False)
    made = tabular_q.learn(world, entry.agents * entry.episodes, seed, entry.bins)
    return evaluate_policy(made, world, entry.played, seed=1000 + seed).mean


def line(name: str, found: list[dict[str, Any]]) -> str:
    """One row of the table: means over seeds with their standard errors."""
    entry = EVERY[name]
    numbers = [shown([run.get(key) for run in found]) for key in ("ours", "theirs", "random")]
    size = f"{entry.agents}×{entry.episodes:,}, H = {entry.horizon}"
    raw = [run["raw"] for run in found if run["raw"] is not None]
    cost = [f"{np.median([run[key] for run in found]):.0f}" for key in ("rounds", "seconds")]
    sent = _times(float(np.median(raw))) if raw else ""
    cells = [name, size, _settings(entry), *numbers, entry.best, f"{len(found)}", cost[0], sent]
    return "| " + " | ".join([*cells, cost[1]]) + " |"


def shown(every: list[float | None]) -> str:
    """The mean, and its standard error if there are several."""
    found = [value for value in every if value is not None]
    if not found:
        return ""
    mean = f"{np.mean(found):.3g}"
    if len(found) == 1:
        return mean
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    return f"{mean} ± {0.0 if error < 1e-12 else error:.2g}"  # equal runs: rounding alone


def _times(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _settings(entry: Entry) -> str:
    """What is not a default."""
    phi = "one-hot" if entry.features is None else type(entry.features()).__name__
    given = {**entry.learner, **entry.options}
    return ", ".join([phi, *(f"{key} = {value}" for key, value in given.items())])


HEAD = (
    "environment", "episodes", "settings", "Fed-LSVI", "tabular Q", "random", "optimal",
    "seeds", "rounds", "times raw data", "seconds",
)  # fmt: skip


def main() -> None:
    """Play what is missing, seed after seed, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE", help="keeps every run")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(EVERY)}")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--alone", action="store_true", help="without tabular Q-learning")
    given = parser.parse_args()
    names = given.names or list(TABLE)
    for name in names:
        if name not in EVERY:
            parser.error(f"unknown environment '{name}': choose from {', '.join(EVERY)}")
    lines = given.file.read_text().splitlines() if given.file.exists() else []
    known = {(run["name"], run["seed"]): run for run in map(json.loads, lines)}
    with given.file.open("a") as file:
        for seed in range(given.seeds):
            for name in names:
                run = known.get((name, seed)) or play(name, seed)
                if run["theirs"] is None and not given.alone:
                    run = run | {"theirs": tabular(name, seed)}
                if run is not known.get((name, seed)):
                    known[name, seed] = run
                    file.write(json.dumps(run) + "\n")  # the last of a name and seed counts
                    file.flush()
    print("| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|")
    for name in names:
        print(line(name, [run for (own, _), run in sorted(known.items()) if own == name]))


if __name__ == "__main__":
    main()
