"""How far are the defaults from the best constant that somebody could have tuned?

`python -m studies.grid FILE [PROCESSES [CSV FIGURE]]`: play what is not in FILE yet and print the
tables of grid.md; with 0 processes only print. FILE keeps every run, so the study can be stopped
and resumed; use a new file when the code has changed. About half an hour of one core.

The library plays, at its defaults but for the arm. The grid is of constants c in β_h = c·v_h, all
with the default's rounds. Everything here was fixed before the first run.
"""

from __future__ import annotations

import csv
import json
import sys
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from fedlsvi import FedLSVI
from fedlsvi.core import theory
from fedlsvi.core.statistics import Packing
from fedlsvi.experiments.processes import pool
from fedlsvi.experiments.runner import uniform
from fedlsvi.features import OneHot
from fedlsvi.report.colours import COLOURS, DASHED
from fedlsvi.report.plotting import make_figure
from studies.noise import geometric
from studies.practical import AGENTS, FAMILIES, STUCK

INSTANCES = range(6000, 6020)
"""Of each family; no study has used them before."""

LENGTHS = (300, 1_000, 10_000)

GRID = tuple(2.0**k for k in range(-7, 0))
"""Seven constants from 1/128 to 1/2; the default before the bonus knew the noise was 1/4."""

DEFAULT, FORTY, EARLIER = "default", "noise, 40 rounds", "v/4, 40 rounds"
"""The default; with its earlier budget; with its earlier budget and bonus."""

ARMS = (DEFAULT, EARLIER, *(f"{c:g}·v" for c in GRID), FORTY)

NEAR, HALF = 1.3, 0.5
"""In the geometric mean the default should have at most so many times the regret of the best
constant, and of the earlier default."""

LIMIT = {300: 1.15, 1_000: 1.15, 10_000: 1.05}
"""No family's regret should be more than this many times that of the earlier default."""


@dataclass(frozen=True)
class Result:
    """One run: where, with what, and how it did."""

    family: str
    episodes: int
    instance: int
    arm: str
    regret: float  # over that of the uniform policy
    late: float  # the same in the last tenth
    rounds: int
    raw: float  # scalars over those of the raw data
    seconds: float  # of processor time

    @property
    def key(self) -> tuple[str, int, int, str]:
        """What makes it another run."""
        return self.family, self.episodes, self.instance, self.arm


Job = tuple[str, int, int, str]
Cells = dict[tuple[str, int], dict[str, list[Result]]]
"""Family and length, arm, runs."""


def settings(arm: str, paid: int) -> dict[str, Any]:
    """What an arm sets; `paid` is the earlier budget."""
    if arm == DEFAULT:
        return {}
    if arm == FORTY:
        return {"rounds": paid}
    if arm == EARLIER:
        return {"rounds": paid, "bonus": "constant"}
    return {"beta": float(arm.removesuffix("·v")), "taper": True}


def play(family: str, episodes: int, instance: int, arm: str) -> Result:
    """One run."""
    env, M = FAMILIES[family](instance), AGENTS[instance % len(AGENTS)]
    phi = OneHot().bind(env) if family.endswith("one-hot") else env.default_features()
    packing: Packing = "diagonal" if phi.one_hot else "packed"
    given = settings(arm, theory.rounds_paid(
        phi.dim, env.horizon, M, episodes, packing, 40,
        stationary=env.stationary, exploit=True, noisy=True, fits=True,
    ))  # fmt: skip
    if "beta" in given:
        given["beta"] *= env.horizon
    began = process_time()
    with warnings.catch_warnings():  # that it sends more than short runs pay for
        warnings.simplefilter("ignore")
        learner = FedLSVI(M, **given)
        run = learner.learn(env, episodes, instance, features=phi, progress=False, threads=1)
    whole, late = uniform([env], M, episodes), episodes // 10
    assert run.regret is not None
    assert run.scalars_raw is not None
    assert whole is not None
    return Result(
        family, episodes, instance, arm, float(run.regret[-1] / whole),
        float(episodes / late * (run.regret[-1] - run.regret[-1 - late]) / whole),
        run.rounds, run.ledger.total / run.scalars_raw, process_time() - began,
    )  # fmt: skip


def jobs() -> list[Job]:
    """All runs, four instances at a time, one with each number of agents: a study that is
    interrupted has all lengths and arms of the same instances."""
    return [
        (family, T, instance, arm)
        for first in range(0, len(INSTANCES), len(AGENTS))
        for T in LENGTHS
        for instance in INSTANCES[first : first + len(AGENTS)]
        for family in FAMILIES
        for arm in ARMS
    ]


def read(path: Path) -> dict[Job, Result]:
    """What a file holds; a line that was cut off is left out."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    results = []
    for line in lines:
        try:
            results.append(Result(**json.loads(line)))
        except ValueError:
            continue
    return {result.key: result for result in results}


def extend(path: Path, todo: Iterable[Job], processes: int) -> None:
    """Play in parallel, and keep what is done."""
    with pool(processes) as workers, path.open("a") as file:
        file.write("\n")  # ends a line that was cut off
        for done in as_completed([workers.submit(play, *job) for job in todo]):
            file.write(json.dumps(asdict(done.result())) + "\n")
            file.flush()


def cells(results: Iterable[Result]) -> Cells:
    """Runs by family and length, then by arm; of the instances that every arm has played."""
    found: dict[tuple[str, int, int], dict[str, Result]] = {}
    for r in results:
        found.setdefault((r.family, r.episodes, r.instance), {})[r.arm] = r
    made: Cells = {}
    for (family, episodes, _), runs in sorted(found.items()):
        if set(ARMS) <= set(runs):
            cell = made.setdefault((family, episodes), {arm: [] for arm in ARMS})
            for arm in ARMS:
                cell[arm].append(runs[arm])
    return made


def mean(runs: Iterable[Result]) -> float:
    """The mean regret."""
    return float(np.mean([run.regret for run in runs]))


def best(cell: dict[str, list[Result]]) -> tuple[str, float]:
    """The constant with the lowest mean regret, and that regret."""
    constants = [arm for arm in ARMS if arm.endswith("·v")]
    return min(((arm, mean(cell[arm])) for arm in constants), key=lambda pair: pair[1])


def stuck(runs: Iterable[Result]) -> int:
    """How many runs stick."""
    return sum(run.late > STUCK for run in runs)


def tables(made: Cells) -> Iterator[str]:
    """Per family and length, then the geometric means."""
    yield "| family | T | default | sticks | best c | ÷ best | v/4, 40 rounds | ÷ | sticks | rounds | × raw | 40: ÷ | × raw |"  # noqa: E501
    yield "|" + "---|" * 13
    over: dict[str, dict[tuple[str, int], float]] = {"best": {}, EARLIER: {}, FORTY: {}}
    for (family, T), cell in sorted(made.items(), key=lambda item: (item[0][1], item[0][0])):
        regret, (name, least) = mean(cell[DEFAULT]), best(cell)
        over["best"][family, T] = regret / least
        for arm in (EARLIER, FORTY):
            over[arm][family, T] = regret / mean(cell[arm])
        rounds, raw = (
            float(np.median([getattr(run, key) for run in cell[DEFAULT]]))
            for key in ("rounds", "raw")
        )
        before = float(np.median([run.raw for run in cell[FORTY]]))
        row = [
            family, f"{T:,}", f"{regret:.4f}", f"{stuck(cell[DEFAULT])} of {len(cell[DEFAULT])}",
            name, f"{regret / least:.2f}", f"{mean(cell[EARLIER]):.4f}",
            f"{over[EARLIER][family, T]:.2f}", str(stuck(cell[EARLIER])), f"{rounds:.0f}",
            f"{raw:.2g}", f"{over[FORTY][family, T]:.2f}", f"{before:.2g}",
        ]  # fmt: skip
        yield f"| {' | '.join(row)} |"
    yield ""
    lengths = sorted({T for _, T in made})
    yield "| default ÷ | all | " + " | ".join(f"T = {T:,}" for T in lengths) + " | worst |"
    yield "|" + "---|" * (3 + len(lengths))
    for name, ratios in over.items():
        each = [geometric(x for (_, T), x in ratios.items() if length == T) for length in lengths]
        worst = max(ratios, key=lambda key: ratios[key])
        numbers = [f"{geometric(ratios.values()):.2f}", *(f"{x:.2f}" for x in each)]
        where = f"{ratios[worst]:.2f} ({worst[0]}, {worst[1]:,})"
        yield f"| {name} | {' | '.join(numbers)} | {where} |"
    yield ""
    yield from verdicts(made, over)
    spent = sum(run.seconds for cell in made.values() for arm in cell.values() for run in arm)
    yield f"Processor time: {spent / 60:.0f} minutes"


def verdicts(made: Cells, over: dict[str, dict[tuple[str, int], float]]) -> Iterator[str]:
    """The four limits, and whether they hold."""
    near, half = (geometric(over[arm].values()) for arm in ("best", EARLIER))
    yield f"- Against the best constant, {near:.2f} of at most {NEAR}: {_held(near <= NEAR)}."
    yield f"- Against the earlier default, {half:.2f} of at most {HALF}: {_held(half <= HALF)}."
    beyond = [f"{f} ({T:,})" for (f, T), ratio in over[EARLIER].items() if ratio > LIMIT[T]]
    yield f"- No family beyond its limit: {_held(not beyond)}{', '.join(['', *beyond])}."
    ours, earlier = (sum(stuck(cell[arm]) for cell in made.values()) for arm in (DEFAULT, EARLIER))
    yield f"- It sticks in {ours} runs, the earlier default in {earlier}: {_held(ours <= earlier)}."


def _held(limit: bool) -> str:
    return "holds" if limit else "does not hold"


def beside_best(made: Cells, episodes: int, arm: str) -> float:
    """How many times the regret of each family's best constant an arm has, geometric mean."""
    every = [cell for (_, length), cell in made.items() if length == episodes]
    return geometric(mean(cell[arm]) / best(cell)[1] for cell in every)


def write(made: Cells, path: str) -> None:
    """What the tables are made of, as CSV."""
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(
            ("family", "episodes", "arm", "instances", "regret", "sticks", "rounds", "times_raw")
        )
        for (family, T), cell in sorted(made.items(), key=lambda item: (item[0][1], item[0][0])):
            for arm in ARMS:
                runs = cell[arm]
                middle = (
                    np.median([getattr(run, key) for run in runs]) for key in ("rounds", "raw")
                )
                rows.writerow(
                    (family, T, arm, len(runs), f"{mean(runs):.6g}", stuck(runs),
                     *(f"{value:.4g}" for value in middle))
                )  # fmt: skip


def draw(made: Cells, path: str) -> None:
    """Regret over that of each family's best constant, by constant; the default as a line."""

    def panel(ax: Any) -> None:
        for T, colour in zip(LENGTHS, COLOURS, strict=False):
            if not any(length == T for _, length in made):
                continue
            ratios = [beside_best(made, T, f"{c:g}·v") for c in GRID]
            ax.plot(GRID, ratios, "o-", color=colour, label=f"β = c·v, {T:,} episodes")
            ours = beside_best(made, T, DEFAULT)
            ax.axhline(ours, color=colour, linestyle=DASHED, label=f"default, {T:,} episodes")
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=2)
        ax.set_xticks(GRID, [f"1/{round(1 / c)}" for c in GRID])
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.set_xlabel("constant c")
        ax.set_ylabel("regret ÷ that of the family's best constant")
        ax.legend()

    make_figure([panel], path, size=(7.0, 4.2))


def main(
    file: str, processes: int = 1, table: str | None = None, figure: str | None = None
) -> None:
    """Play what is missing, unless there are 0 processes, print the tables, and draw."""
    path = Path(file)
    known = read(path)
    todo = [job for job in jobs() if job not in known]
    if processes and todo:
        extend(path, todo, processes)
        known = read(path)
    made = cells(known.values())
    print("\n".join(tables(made)))
    if table is not None:
        write(made, table)
    if figure is not None:
        draw(made, figure)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1, *sys.argv[3:5])
