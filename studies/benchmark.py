"""Who wins where? All algorithms on eleven problems, at their defaults and tuned.

`python -m studies.benchmark FILE [PROCESSES]`: run what is not in FILE yet, problem by problem, and
write `docs/results/algorithms.csv` and, from it, `docs/results/algorithms.md`, for what is there by
then (neither is in the repository yet). FILE keeps every run, so the command can be stopped and
repeated; with 0 processes it only writes. `--seeds 5 --slow 2` is a smaller benchmark, whose runs
are part of the whole one: it reports the first 5 seeds, and of cells whose runs take no more than 2
seconds. Set OMP_NUM_THREADS=1 and NUMBA_NUM_THREADS=1.

An algorithm has one constant, the one that `fedlsvi tune` takes. It is chosen on instances that are
not reported, by the lowest mean regret. Everything down to `LAWS` was fixed before the first run.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fedlsvi.algorithms import registry as algorithms
from fedlsvi.errors import FedLSVIError
from fedlsvi.experiments.runner import Outcome, ResultFile, RunSpec, play, run_all
from fedlsvi.experiments.tune import Scale, choose, scale_of, score
from fedlsvi.learner import unattended
from fedlsvi.storage import files
from fedlsvi.storage.settings_file import Job, Table
from studies.benchmark_page import DATA, HEAD, PAGE, page, read

AGENTS = 4
TUNE, TEST = range(3), range(100, 120)
"""Instances to choose on, and to report on: the seed of the run and, where it has one, of the
problem."""

FACTORS = (1.0 / 16.0, 0.25, 1.0, 4.0)
"""Multiples of the default constant."""

SLOW = 20.0
"""Where the first run takes longer, in seconds of processor time, no other is made, and the cell
stays empty."""

LAWS = 10**7
"""Posterior sampling draws S numbers for each (h, x, a), for every agent in every round; where that
is more than this, its cell stays empty."""


@dataclass(frozen=True)
class Problem:
    """What is played.

    Attributes:
        env: As in a settings file.
        episodes: Of each agent.
        seeded: Whether instances are different problems.
        shared: Settings of all algorithms.
        maps: Feature maps that linear algorithms are played with, too, by name.
    """

    env: Table
    episodes: int = 500
    seeded: bool = False
    shared: Table = field(default_factory=dict)
    maps: dict[str, Any] = field(default_factory=dict)


_ONE_HOT = {"one-hot": "one-hot"}
_UNIT: Table = {"value_range": 1.0}


def _gym(name: str, horizon: int) -> Table:
    return {"name": "gymnasium", "id": name, "horizon": horizon}


PROBLEMS = {
    "random-linear": Problem(
        {"name": "random-linear", "dim": 8, "horizon": 5}, seeded=True, maps=_ONE_HOT
    ),
    "combination-lock": Problem(
        {"name": "combination-lock", "horizon": 6, "n_actions": 6}, seeded=True, maps=_ONE_HOT
    ),
    "hard-chain": Problem(
        {"name": "hard-chain", "dim": 4, "horizon": 6}, seeded=True, maps=_ONE_HOT
    ),
    "river-swim": Problem({"name": "river-swim", "n_states": 6, "horizon": 20}),
    "deep-sea": Problem({"name": "deep-sea", "size": 8}),
    "n-chain": Problem({"name": "n-chain", "n_states": 8}),
    "garnet": Problem(
        {"name": "garnet", "n_states": 10, "n_actions": 3, "branching": 3, "horizon": 6},
        seeded=True,
    ),
    "random-linear-mixture": Problem(
        {"name": "random-linear-mixture", "n_states": 10, "dim": 5, "horizon": 5}, seeded=True
    ),
    "FrozenLake-v1": Problem(_gym("FrozenLake-v1", 50), shared=_UNIT),
    "Taxi-v4": Problem(_gym("Taxi-v4", 20), 250, shared={"value_range": 7.34}),
    "ICU-Sepsis-v2": Problem(
        _gym("Sepsis/ICU-Sepsis-v2", 20), 150, shared=_UNIT,
        maps={"low-rank (16)": {"name": "low-rank", "dim": 16}},
    ),
}  # fmt: skip
"""The seven families of studies.practical, random linear mixtures for value-targeted regression,
and three third-party problems whose tables are known. The first three have linear features of their
own and are played one-hot too; low-rank features of ICU-Sepsis know its transitions."""

POOLED = "one model for all steps"
"""Fed-LSVI as a user gets it where no law depends on the step. All others have a model for each
step, which is what the tabular ones can do."""


@dataclass(frozen=True)
class Cell:
    """An algorithm on a problem.

    Attributes:
        problem, algorithm: Their names.
        variant: A feature map, `POOLED`, or "" for what is ranked.
    """

    problem: str
    algorithm: str
    variant: str = ""

    def table(self, seed: int, **own: Any) -> Table:
        """The settings of a run."""
        problem = PROBLEMS[self.problem]
        env = problem.env | ({"seed": seed} if problem.seeded else {})
        table: Table = {"algorithm": self.algorithm, "seed": seed, "env": env}
        table |= {"n_agents": AGENTS, "episodes": problem.episodes}
        if self.variant in problem.maps:
            table["features"] = problem.maps[self.variant]
        if "stationary" in algorithms.entry(self.algorithm).parameters():
            table["stationary"] = "auto" if self.variant == POOLED else False
        return table | problem.shared | own

    def run(self, seed: int, scale: Scale, factor: float) -> RunSpec:
        """One run; at factor 1 the default."""
        own: Table = {}
        if factor != 1.0:
            own = {scale.parameter: factor * scale.default}
            own |= {"taper": True} if scale.tapered else {}
            own |= {"bonus": "noise"} if scale.noisy else {}
        return RunSpec(self.table(seed, **own), {"cell": self}, -float(_place(self.problem)))


def _place(problem: str) -> int:
    """Problems are played in their order: the runner begins with what it is told takes longest."""
    return list(PROBLEMS).index(problem)


def cells(problem: str) -> Iterator[Cell]:
    """All algorithms on a problem, and variants of some."""
    for name in algorithms.names():
        entry = algorithms.entry(name)
        if entry.offline:
            continue
        yield Cell(problem, name)
        if not getattr(algorithms.make(name), "tabular", False):
            yield from (Cell(problem, name, variant) for variant in PROBLEMS[problem].maps)
        if name == "fed-lsvi" and world(problem).stationary:
            yield Cell(problem, name, POOLED)


@cache
def world(problem: str) -> Any:
    """The first instance."""
    return Job.parse(Cell(problem, "fed-lsvi").table(TUNE[0])).environments()


def scale(cell: Cell) -> Scale:
    """The constant of an algorithm on a problem.

    Raises:
        FedLSVIError: It cannot play there.
    """
    job, env = Job.parse(cell.table(TUNE[0])), world(cell.problem)
    laws = env.horizon * env.n_states**2 * env.n_actions
    if cell.algorithm == "psrl" and laws > LAWS:
        raise FedLSVIError(f"a draw of all transition laws has {laws:.1g} numbers", code="too-slow")
    with unattended():
        args = (env, job.episodes, job.seed)
        session = job.learner().prepare(*args, features=job.feature_map(), threads=1)
        session.close()
    return scale_of(cell.algorithm, session.plan.parameters)


class Benchmark:
    """Every cell goes from its first run over the tuning instances to those that are reported.

    Attributes:
        results: All runs.
        seeds: Of the runs that are reported.
        slow: As `SLOW`.
        scales: By cell.
        refused: Why a cell is empty.
    """

    def __init__(self, results: ResultFile, seeds: Sequence[int], slow: float) -> None:
        self.results, self.refused = results, dict[Cell, str]()
        self.seeds, self.slow = seeds, slow
        self.scales: dict[Cell, Scale] = {}
        for problem in PROBLEMS:
            for cell in cells(problem):
                try:
                    self.scales[cell] = scale(cell)
                except FedLSVIError as error:
                    self.refused[cell] = str(error).partition(":")[0]

    def found(self, cell: Cell, factor: float, seeds: Iterable[int]) -> list[Outcome] | None:
        """Outcomes of these runs, or None where some are missing."""
        keys = [cell.run(seed, self.scales[cell], factor).key for seed in seeds]
        outcomes = self.results.outcomes
        return [outcomes[key] for key in keys] if all(key in outcomes for key in keys) else None

    def chosen(self, cell: Cell) -> float | None:
        """The factor with the lowest mean regret, when all have been played."""
        runs = {factor: self.found(cell, factor, TUNE) for factor in FACTORS}
        scores = {factor: [score(o) for o in outs] for factor, outs in runs.items() if outs}
        return choose(scores) if len(scores) == len(FACTORS) else None

    def due(self, cell: Cell) -> list[RunSpec]:
        """The runs of a cell that can be played next."""
        first = self.found(cell, 1.0, TUNE[:1])
        if first is None:
            return [cell.run(TUNE[0], self.scales[cell], 1.0)]
        if first[0].seconds > self.slow:
            self.refused[cell] = f"the first run took more than {self.slow:g} s"
            return []
        best = self.chosen(cell)
        if best is None:
            return [cell.run(i, self.scales[cell], f) for f in FACTORS for i in TUNE]
        return [cell.run(i, self.scales[cell], f) for f in (1.0, best) for i in self.seeds]

    def play(self, jobs: int) -> None:
        """Whatever is missing."""

        def more(spec: RunSpec, outcome: Outcome) -> list[RunSpec]:
            cell: Cell = spec.labels["cell"]
            first = spec.table == cell.run(TUNE[0], self.scales[cell], 1.0).table
            tuned = outcome.seed in TUNE and self.chosen(cell) is not None
            return self.due(cell) if first or tuned else []

        for cell in self.scales:
            if self.found(cell, 1.0, TUNE[:1]) is None:
                play(cell.table(TUNE[0], episodes=2))  # compiles: `slow` is not about that
        run_all([s for cell in self.scales for s in self.due(cell)], self.results, jobs, more)

    def rows(self) -> Iterator[list[Any]]:
        """One for each run that is reported, and for each cell that stays empty, in problems where
        nothing is missing; one for each other problem."""
        for problem in PROBLEMS:
            made = [cell for cell in cells(problem) if cell not in self.refused]
            left = [spec for cell in made for spec in self.due(cell)]
            if any(spec.key not in self.results.outcomes for spec in left):
                yield [problem, *[""] * (len(HEAD) - 1)]
                continue
            for cell in cells(problem):
                if cell in self.refused:
                    yield [*vars(cell).values(), "", self.refused[cell], *[""] * (len(HEAD) - 5)]
                    continue
                best = self.chosen(cell)
                for setting, factor in (("default", 1.0), ("tuned", best)):
                    assert factor is not None
                    for o in self.found(cell, factor, self.seeds) or ():
                        yield [*vars(cell).values(), setting, *_numbers(o, factor)]


def _numbers(o: Outcome, factor: float) -> list[Any]:
    sent = o.scalars_by_category
    raw = sent.get("up_raw", 0) + sent.get("down_raw", 0)
    return ["", f"{factor:g}", o.seed, f"{o.regret:.5g}", f"{score(o):.4g}", o.rounds, o.scalars,
            raw, f"{o.seconds:.3g}"]  # fmt: skip


def main(path: str, jobs: int = 1, seeds: int | None = None, slow: float | None = None) -> None:
    """Play, and write data and page."""
    results = ResultFile(Path(path))
    benchmark = Benchmark(results, TEST[:seeds], SLOW if slow is None else slow)
    if jobs:
        benchmark.play(jobs)
    for cell in benchmark.scales:
        benchmark.due(cell)  # says which ones are slow
    with DATA.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEAD, *benchmark.rows()])
    results.close()
    files.write(PAGE, page(read(DATA)).encode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m studies.benchmark")
    parser.add_argument("path", metavar="FILE")
    parser.add_argument("jobs", metavar="PROCESSES", type=int, nargs="?", default=1)
    parser.add_argument("--seeds", type=int, help="how many seeds are reported (default: all 20)")
    parser.add_argument("--slow", type=float, help=f"seconds of a run (default: {SLOW:g})")
    main(**vars(parser.parse_args()))
