"""Shared by the examples: run a folder's settings.toml, and evaluate the learned policy."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi import Run
from fedlsvi.checks import plural
from fedlsvi.envs import FiniteMDP
from fedlsvi.storage.settings_file import Job, assign, read


@dataclass(frozen=True)
class Line:
    """One row of an example's result: a name, and a number for every seed."""

    what: str
    numbers: tuple[float, ...]

    def __str__(self) -> str:
        spread = ""
        if len(self.numbers) > 1:
            spread = f"   [{min(self.numbers):.4g}, {max(self.numbers):.4g}]"
        return f"{self.what:<58}{np.median(self.numbers):>10.4g}{spread}"


def play(folder: Path, seed: int = 0, changes: Iterable[str] = (), **given: Any) -> Run:
    """Learn from the settings of a folder. `changes` are key=value as for `fedlsvi run --set`;
    `given` may hold an environment or features that a file cannot."""
    table = read(folder / "settings.toml")
    for change in changes:
        assign(table, change)
    job = Job.parse(table, folder)
    env = given.pop("env", None)
    phi = given.pop("features", None)
    return job.learner().learn(
        job.environments() if env is None else env,
        job.episodes,
        seed,
        features=job.feature_map() if phi is None else phi,
        progress=False,
        **given,
    )


def value(env: FiniteMDP, policy: np.ndarray) -> float:
    """The exact value of a policy from the initial distribution, in the environment's own units."""
    return float(env.original(env.initial_law(0) @ env.policy_values(policy)[0]))


def references(env: FiniteMDP) -> list[Line]:
    """The optimum and the uniform policy, exact."""
    law = env.initial_law(0)
    best, uniform = law @ env.optimal_values()[0], law @ env.uniform_values()[0]
    return [
        Line("optimum V*", (float(env.original(best)),)),
        Line("uniform policy", (float(env.original(uniform)),)),
    ]


def together_and_alone(folder: Path, seeds: int, changes: list[str]) -> list[Line]:
    """Exact values of what a folder's agents learn together and of what one learns alone, and how
    far they get from the uniform policy to the optimum."""
    together = [play(folder, seed, changes) for seed in range(seeds)]
    alone = [play(folder, seed, [*changes, "n_agents=1"]) for seed in range(seeds)]
    plan = together[0].plan
    assert plan is not None
    env = plan.envs[0]
    best, uniform = references(env)
    low, high = uniform.numbers[0], best.numbers[0]
    earned = tuple(value(env, run.policy.table) for run in together)
    return [
        best,
        uniform,
        Line(f"Fed-LSVI, {plan.parameters.n_agents} agents", earned),
        Line(
            "  of the way from uniform to optimal", tuple((v - low) / (high - low) for v in earned)
        ),
        Line("one agent alone", tuple(value(env, run.policy.table) for run in alone)),
        Line("rounds of communication", tuple(run.rounds for run in together)),
    ]


def command(main: Callable[[int, list[str]], list[Line]], seeds: int = 5) -> None:
    """Run an example from the command line and print its lines."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=seeds, help="number of runs of each kind")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    print(f"{'':<58}{'median':>10}   [lowest, highest] of {plural(options.seeds, 'seed')}")
    for line in main(options.seeds, options.set):
        print(line, flush=True)
