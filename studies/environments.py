"""`python -m studies.environments FILE [NAME …] [--seeds N] [--processes N] [--csv TABLE]`:
Fed-LSVI, tabular Q-learning and random play on third-party environments, with default settings
except those in the table.

All play the same number of episodes: M·T, shared among Fed-LSVI's agents. What a policy earns is
exact where the environment has a table, else it is measured in 200 new episodes. Settings were
fixed before the first run of the table; the page says what was changed since. FILE keeps every run,
so the study can be stopped and resumed; environments.md has the table, environments.csv the runs.
"""

from __future__ import annotations

import argparse
import csv
import json
import warnings
from collections.abc import Callable
from concurrent.futures import as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from fedlsvi import FedLSVI
from fedlsvi.envs import as_environment
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.play import evaluate_policy
from fedlsvi.experiments.processes import pool
from fedlsvi.features import FourierFeatures, TileFeatures
from studies import tabular_q
from studies.small_worlds import Catch, Clinic, Unlock, door_key, empty, lava_gap

PLAYED = 200
"""Episodes that measure a policy where there is no table, unless the entry asks for more."""


@dataclass(frozen=True)
class Entry:
    """A line of the table: an environment, and how it is learned.

    Attributes:
        env: An id, or a function that makes it.
        horizon: H, in decisions.
        episodes: T of each agent.
        best: What an optimal policy earns, as far as it is known; what a table says counts more.
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
PENDULUM = ([-1.0, -1.0, -8.0], [1.0, 1.0, 8.0])
LANDER = ([-1.5, -0.5, -2.0, -2.0, -3.0, -4.0, 0.0, 0.0], [1.5, 1.5, 2.0, 1.0, 3.0, 4.0, 1.0, 1.0])
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
        features=FourierFeatures, bins=tabular_q.edges(*CARTPOLE, 8),
    ),
    "Acrobot-v1": Entry(
        "Acrobot-v1", 100, 100, "about -65", options={"repeat": 5, "reward_range": (-1, 0)},
        features=FourierFeatures, bins=tabular_q.edges(*ACROBOT, 5),
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
    "Taxi-v4, rainy": Entry(
        "Taxi-v4", 20, 2000, ".158", learner={"value_range": 7.34},
        options={"kwargs": {"is_rainy": True}},
    ),
    "MiniGrid-Unlock": Entry(Unlock, 50, 500, "1", learner=ONE, options={"reward_range": (0, 1)}),
    "Clinic": Entry(Clinic, Clinic.VISITS, 500, ".984", learner=ONE, played=5_000),
    "Clinic, stationary=False": Entry(
        Clinic, Clinic.VISITS, 500, ".984", learner=ONE | {"stationary": False}, played=5_000
    ),
    "LunarLander-v3": Entry(
        "LunarLander-v3", 100, 75, "above 200",
        options={"repeat": 4, "reward_range": (-100, 100), "clip_rewards": True},
        features=FourierFeatures, bins=tabular_q.edges(*LANDER, 4),
    ),
    "Pendulum-v1": Entry(
        "Pendulum-v1", 100, 100, "about -150",
        options={"repeat": 2, "actions": 5, "reward_range": (-16.28, 0)},
        features=FourierFeatures, bins=tabular_q.edges(*PENDULUM, 12),
    ),
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
    worth = run.references()  # what the run's advice compares, too
    if isinstance(env, FiniteMDP):
        ours, random, best = worth["learned"], worth["uniform"], worth["optimal"]
    else:
        ours, random = (
            evaluate_policy(policy, stepped, entry.played, seed=1000 + seed).mean
            for policy in (run.policy, "random")
        )
        best = None
    return {
        "name": name, "seed": seed, "ours": ours, "theirs": None, "random": random,
        "optimal": best, "rounds": run.rounds,
        "raw": None if run.scalars_raw is None else run.ledger.total / run.scalars_raw,
        "seconds": seconds, "advice": [advice.code for advice in run.advice],
    }  # fmt: skip


def tabular(name: str, seed: int) -> float:
    """What tabular Q-learning's policy earns after as many episodes."""
    entry = EVERY[name]
    world, env = world_of(entry, tables=False), world_of(entry, tables=True)
    made = tabular_q.learn(world, entry.agents * entry.episodes, seed, entry.bins)
    if isinstance(env, FiniteMDP):
        greedy = made.Q[: env.n_states].argmax(axis=1)  # the world has a state after the end, too
        actions = np.tile(greedy, (env.horizon, 1))
        return float(env.original(env.initial_law(0) @ env.policy_values(actions)[0]))
    return evaluate_policy(made, world, entry.played, seed=1000 + seed).mean


def complete(name: str, seed: int, run: dict[str, Any] | None, alone: bool) -> dict[str, Any]:
    """A run of Fed-LSVI, and unless it stays alone, what tabular Q-learning earns."""
    run = run or play(name, seed)
    return run if alone or run["theirs"] is not None else run | {"theirs": tabular(name, seed)}


def read(path: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """What a file holds, the last run of each name and seed, without a line that was cut off."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    runs = [json.loads(line) for line in lines if line.endswith("}")]
    return {(run["name"], run["seed"]): run for run in runs}


def line(name: str, found: list[dict[str, Any]]) -> str:
    """One row of the table: means over seeds with their standard errors."""
    entry = EVERY[name]
    numbers = [shown([run.get(key) for run in found]) for key in ("ours", "theirs", "random")]
    size = f"{entry.agents}×{entry.episodes:,}, H = {entry.horizon}"
    raw = [run["raw"] for run in found if run["raw"] is not None]
    cost = [f"{np.median([run[key] for run in found]):.0f}" for key in ("rounds", "seconds")]
    sent = _times(float(np.median(raw))) if raw else ""
    known = [run["optimal"] for run in found if run.get("optimal") is not None]
    best = shown(known[:1]) if known else entry.best
    cells = [name, size, _settings(entry), *numbers, best, f"{len(found)}", cost[0], sent]
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
    given |= given.pop("kwargs", {})
    return ", ".join([phi, *(f"{key} = {value}" for key, value in given.items())])


HEAD = (
    "environment", "episodes", "settings", "Fed-LSVI", "tabular Q", "random", "optimal",
    "seeds", "rounds", "times raw data", "seconds",
)  # fmt: skip


COLUMNS = (
    "name", "seed", "ours", "theirs", "random", "optimal", "rounds", "raw", "seconds", "advice",
)  # fmt: skip


def write(path: Path, runs: list[dict[str, Any]]) -> None:
    """Every run as a line of CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        for run in runs:
            row = run | {"advice": " ".join(run["advice"])}
            values = (row[column] for column in COLUMNS)
            rows.writerow([f"{v:.6g}" if isinstance(v, float) else v for v in values])


def main() -> None:
    """Play what is missing, seed after seed, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE", help="keeps every run")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(EVERY)}")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--alone", action="store_true", help="without tabular Q-learning")
    parser.add_argument("--processes", type=int, default=1, help="runs at a time; 0 only prints")
    parser.add_argument("--csv", type=Path, metavar="TABLE", help="where all runs are written")
    given = parser.parse_args()
    names = given.names or list(TABLE)
    for name in names:
        if name not in EVERY:
            parser.error(f"unknown environment '{name}': choose from {', '.join(EVERY)}")
    known = read(given.file)
    todo = [
        (name, seed, known.get((name, seed)), given.alone)
        for seed in range(given.seeds)
        for name in names
        if (run := known.get((name, seed))) is None or (run["theirs"] is None and not given.alone)
    ]
    if given.processes and todo:
        with pool(given.processes) as workers, given.file.open("a") as file:
            file.write("\n")  # ends a line that was cut off
            for done in as_completed([workers.submit(complete, *job) for job in todo]):
                run = done.result()
                known[run["name"], run["seed"]] = run
                file.write(json.dumps(run) + "\n")  # the last of a name and seed counts
                file.flush()
    print("| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|")
    for name in names:
        runs = [run for (own, _), run in sorted(known.items()) if own == name]
        if runs:
            print(line(name, runs))
    for (name, seed), run in sorted(known.items()):
        if run.get("advice"):
            print(f"{name}, seed {seed}, said: {', '.join(run['advice'])}")
    if given.csv is not None:
        order = list(EVERY)
        write(given.csv, sorted(known.values(), key=lambda r: (order.index(r["name"]), r["seed"])))


if __name__ == "__main__":
    main()
