"""`fedlsvi compare`, `fedlsvi tune` and `fedlsvi reproduce`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from fedlsvi.checks import plural
from fedlsvi.cli.command import (
    Problem,
    command,
    format_option,
    named_folder,
    new_folder,
    option,
    parse_seeds,
    problem_options,
    quiet_option,
)
from fedlsvi.cli.text import as_json, columns
from fedlsvi.errors import InvalidInput
from fedlsvi.experiments.claims import CLAIMS

if TYPE_CHECKING:
    from fedlsvi.experiments.compare import Question
    from fedlsvi.experiments.runner import Cluster, OnResult, Outcome, ResultFile, RunSpec
    from fedlsvi.experiments.sweeps import Size
    from fedlsvi.report.plotting import Draw
    from fedlsvi.storage.settings_file import Table

SETTINGS = "env.dim=8; lam=0.1 for all algorithms with it; fed-lsvi.gamma=50 for one. Repeatable."

algorithms_option = option(
    "--algorithms", "names", metavar="A,B,…", default="fed-lsvi,centralised,independent",
    help="Algorithms: names from `fedlsvi list algorithms`.",
)  # fmt: skip
out_option = option(
    "--out", metavar="FOLDER", section="Output", show_default="runs/COMMAND",
    help="Where to write; rerun with the same folder to resume.",
)  # fmt: skip
jobs_option = option(
    "--jobs", type=click.IntRange(min=1), metavar="N", show_default="one per core",
    section="Execution", help="Number of parallel runs.",
)  # fmt: skip


def where_options(function: Callable[..., int]) -> Callable[..., int]:
    """Which processes play the runs, as a `Where`."""

    @functools.wraps(function)
    def placed(jobs: int | None, transport: str, ray_address: str | None, **given: Any) -> int:
        if ray_address is not None and transport != "ray":
            raise InvalidInput("--ray-address needs --transport ray", code="needs-ray")
        if jobs is not None and transport == "ray":
            raise InvalidInput(
                "--jobs is for processes of this machine: on Ray each CPU of the cluster plays a "
                "run, so leave it out",
                code="jobs-on-ray",
            )
        return function(where=Where(jobs, transport == "ray", ray_address), **given)

    for given in (
        option(
            "--ray-address", metavar="ADDRESS", section="Execution",
            help="Ray cluster to join, e.g. auto.",
        ),
        option(
            "--transport", type=click.Choice(["inprocess", "ray"]), default="inprocess",
            section="Execution", help="What plays the runs: this machine, or a Ray cluster.",
        ),
        jobs_option,
    ):  # fmt: skip
        placed = given(placed)
    return placed


@dataclass(frozen=True)
class Where:
    """Which processes play runs.

    Attributes:
        asked: Processes of this machine; None is one for each core.
        on_ray: Whether a Ray cluster plays them instead.
        address: Of the cluster; None starts one here.
    """

    asked: int | None = None
    on_ray: bool = False
    address: str | None = None

    @contextmanager
    def open(self) -> Iterator[tuple[int, Cluster | None]]:
        """How many runs are played at once, and the cluster."""
        from fedlsvi.experiments.processes import cores

        if not self.on_ray:
            yield self.asked or cores(), None
            return
        from fedlsvi.remote.ray.tasks import tasks

        with tasks(self.address) as cluster:
            yield cluster[1], cluster


@command()
@problem_options(SETTINGS)
@algorithms_option
@option("--seeds", default="0:5", metavar="A:B", help="0:5 is seeds 0 to 4; or 1,2,5.")
@where_options
@out_option
@format_option
@quiet_option
def compare(
    problem: Problem, names: str, seeds: str, where: Where, out: str | None, form: str,
    quiet: bool,
) -> int:  # fmt: skip
    """Compare several algorithms on one problem: a table and a figure.

    \b
    Example:
      fedlsvi compare --env river-swim --algorithms fed-lsvi,centralised --agents 8
    """
    from fedlsvi.experiments import ranking
    from fedlsvi.experiments.compare import RESULTS
    from fedlsvi.experiments.runner import ResultFile
    from fedlsvi.report.intervals import over_seeds

    chosen = parse_seeds(seeds)
    question = _question(problem, names, chosen)
    cells = question.specs()
    folder = _claimed(out, "compare", question)
    with closing(ResultFile(folder / RESULTS)) as results, where.open() as workers:
        new = _play(cells, results, workers, quiet)
    found: dict[str, list[Outcome]] = {name: [] for name in question.names}
    for cell in cells:
        found[cell.labels["algorithm"]].append(results.outcomes[cell.key])
    rows = ranking.write(folder, question, found)
    drawn = list(ranking.panels(found, [row.name for row in rows]).values())
    if form == "json":
        made = {"folder": str(folder), "runs_made": new}
        print(as_json(made | ranking.as_json(rows, question.model)))
        _figure(drawn, folder)
        return 0
    header, lines = ranking.table(rows, question.model)
    print("\n".join(columns([header, *lines], "<<<>")))
    print(f"{over_seeds(len(chosen))}; {_made(new)}")
    print(question.model.sentence())
    print(f"folder: {folder}{_figure(drawn, folder)}")
    return 0


@command()
@problem_options(SETTINGS)
@algorithms_option
@option("--tune", "tuning", default="0:3", metavar="A:B", help="Instances to tune on.")
@option("--test", default="100:105", metavar="A:B", help="Instances to report on.")
@where_options
@out_option
@format_option
@quiet_option
def tune(
    problem: Problem, names: str, tuning: str, test: str, where: Where, out: str | None,
    form: str, quiet: bool,
) -> int:  # fmt: skip
    """Tune each algorithm's exploration on separate instances, then compare.

    \b
    Example:
      fedlsvi tune --env random-linear --agents 4 --episodes 500
    """
    from fedlsvi.experiments.compare import RESULTS
    from fedlsvi.experiments.runner import ResultFile
    from fedlsvi.experiments.tune import FACTORS, Tuning, choose, grouped, rows, table, wider
    from fedlsvi.experiments.verdicts import markdown
    from fedlsvi.storage import files

    seeds, others = parse_seeds(tuning, "--tune"), parse_seeds(test, "--test")
    question = _question(problem, names, seeds)
    plan = Tuning(question, seeds, others)
    plan.refuse_seed(problem.assigned())
    scales = plan.scales  # check everything before anything is written
    folder = _claimed(out, "tune", question, {"test": others})
    cells = plan.specs(seeds, dict.fromkeys(question.names, FACTORS))
    with closing(ResultFile(folder / RESULTS)) as results, where.open() as workers:
        new = _play(cells, results, workers, quiet)
        tuned, highest = grouped(cells, results.outcomes), plan.by_return
        while more := {n: w for n in tuned if (w := wider(tuned[n], highest))}:
            cells += plan.specs(seeds, more)
            new += _play(cells, results, workers, quiet)
            tuned = grouped(cells, results.outcomes)
        best = {name: sorted({choose(tuned[name], highest), 1.0}) for name in question.names}
        cells = plan.specs(others, best)
        new += _play(cells, results, workers, quiet)
    found = rows(scales, tuned, cells, results.outcomes, highest)
    files.write(folder / "table.md", markdown(*table(found)).encode() + b"\n")
    summary = {"model_class": question.model.to_dict(), "tuned": [row.to_dict() for row in found]}
    files.write_json(folder / "summary.json", summary)
    if form == "json":
        print(as_json({"folder": str(folder), "runs_made": new} | summary))
        return 0
    header, lines = table(found)
    print("\n".join(columns([header, *lines], "<<>")))
    on = (
        plural(len(seeds), "problem")
        if plan.varies
        else f"{plural(len(seeds), 'run')} of one problem"
    )
    what = "return, last tenth" if highest else "regret as a fraction of the uniform policy's"
    print(f"{what}; {len(FACTORS)} scales or more on {on}, "
          f"reported on {plural(len(others), 'other')}; {_made(new)}")  # fmt: skip
    print(question.model.sentence())
    print(f"folder: {folder}")
    return 0


def _question(problem: Problem, names: str, seeds: list[int]) -> Question:
    """What is compared, with paths that do not depend on where the settings file is."""
    from fedlsvi.experiments.compare import Question

    table = problem.table()
    for key in ("env", "features"):
        entries = table.get(key)
        for entry in entries if isinstance(entries, list) else [entries]:
            if isinstance(entry, dict) and "file" in entry:
                entry["file"] = str((problem.base / str(entry["file"])).absolute())
    chosen = [part.strip() for part in names.split(",") if part.strip()]
    return Question.parse(table, chosen, seeds, problem.assigned())


def _made(new: int) -> str:
    return plural(new, "new run")


def _claimed(
    out: str | None, name: str, question: Question, more: Table | None = None
) -> Path:  # fmt: skip
    """Where to write; without --out an unfinished folder of the same question, or a new folder."""
    from fedlsvi.experiments.compare import begun, claim_folder

    folder = begun(name, question, more) if out is None else named_folder(out)
    if folder is None:
        with new_folder(Path("runs") / name) as folder:
            claim_folder(folder, question, more)
    else:
        claim_folder(folder, question, more)
    return folder


def _figure(drawn: Sequence[Draw], out: Path) -> str:
    """Draw the comparison and say where; without Matplotlib, say so and go on."""
    from fedlsvi.report.plotting import make_figure, save
    from fedlsvi.storage import files

    if not drawn:
        return ""
    try:
        made = make_figure(drawn, size=(5.6, 4.6), across=True)
        save(made, *(files.inside(out, f"comparison.{suffix}") for suffix in ("png", "svg")))
    except InvalidInput as error:
        print(f"fedlsvi: {error}", file=sys.stderr)
        return ""
    return f"    figure: {out / 'comparison.png'}"


def _play(
    cells: Sequence[RunSpec], results: ResultFile, workers: tuple[int, Cluster | None], quiet: bool
) -> int:
    """Play the missing runs and return their number. On Ctrl-C say how to continue."""
    from fedlsvi.experiments.runner import missing, run_all

    jobs, cluster = workers
    try:
        with _bar([] if quiet else missing(cells, results)) as show:
            return run_all(cells, results, jobs, show, cluster)
    except KeyboardInterrupt:
        print("fedlsvi: finished runs are kept: rerun the command to resume", file=sys.stderr)
        raise


@contextmanager
def _bar(todo: Sequence[RunSpec]) -> Iterator[OnResult | None]:
    """A progress bar on standard error, weighted by the expected time of the runs."""
    if not sys.stderr.isatty() or not todo:
        yield None
        return
    from rich import progress as bars
    from rich.console import Console

    shown = [
        bars.BarColumn(bar_width=24),
        bars.TextColumn("{task.fields[done]}/{task.fields[of]} runs"),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(compact=True),
        bars.TextColumn("{task.fields[last]}"),
    ]
    with bars.Progress(*shown, console=Console(stderr=True), refresh_per_second=2) as progress:
        time = sum(cell.expected for cell in todo)
        task = progress.add_task("", total=time, done=0, of=len(todo), last="")
        done = 0

        def show(cell: RunSpec, found: Outcome) -> None:
            nonlocal done
            done += 1
            progress.update(task, advance=cell.expected, done=done, last=found.algorithm)

        yield show


@command()
@click.argument(
    "claims",
    nargs=-1,
    type=click.Choice(CLAIMS),
    metavar="[CLAIM]...",
    help=f"{', '.join(CLAIMS)}; default: all.",
)
@option(
    "--quick",
    is_flag=True,
    help="Fewer and smaller runs: minutes on one core instead of about an hour.",
)
@option("--plan", is_flag=True, help="Print what would be run, and stop.")
@option(
    "--out",
    metavar="FOLDER",
    default="runs/reproduce",
    section="Output",
    help="Where to write pages and figures.",
)
@option(
    "--cells",
    metavar="FOLDER",
    show_default="OUT/cells",
    section="Output",
    help="Where to keep the runs, so that a repeated command resumes.",
)
@where_options
@format_option
@quiet_option
def reproduce(
    claims: tuple[str, ...],
    quick: bool,
    plan: bool,
    out: str,
    cells: str | None,
    where: Where,
    form: str,
    quiet: bool,
) -> int:
    """Measure the paper's claims and related ones; write one page per claim with its verdict.

    \b
    Examples:
      fedlsvi reproduce --quick
      fedlsvi reproduce trigger theorem-3
    """  # fmt: skip
    from fedlsvi.experiments import reproduce as studies
    from fedlsvi.experiments.runner import ResultFile, missing
    from fedlsvi.report.plotting import check_matplotlib
    from fedlsvi.storage import files

    chosen = studies.studies(list(claims))
    size: Size = "quick" if quick else "full"
    folder = named_folder(out)
    path = Path(cells or folder / "cells") / f"{size}.jsonl"
    sweeps = {study.name: study.sweep(size) for study in chosen}
    if plan:
        with where.open() as (jobs, _):
            _plan(sweeps, jobs, form)
        return 0
    check_matplotlib()
    files.make_folder(folder)
    again = "fedlsvi reproduce --quick" if quick else "fedlsvi reproduce"
    began, verdicts = perf_counter(), {}
    # until the end: another would write the same pages
    with closing(ResultFile(path)) as results, where.open() as workers:
        todo = missing([cell for runs in sweeps.values() for cell in runs], results)
        jobs, _ = workers
        if todo and not quiet:
            time = _duration(studies.hours(todo, jobs))
            print(f"{plural(len(todo), 'run')}, {jobs} at a time, {time}; Ctrl-C is safe: rerun "
                  "the command to resume", file=sys.stderr)  # fmt: skip
        for study in chosen:
            runs = sweeps[study.name]
            new, outcomes = _play(runs, results, workers, quiet), results.outcomes
            found = study.finding(studies.points(runs, outcomes))
            made = f"{again} {study.name}"
            text = studies.page(study.name, found, made, runs, outcomes)
            studies.write(folder, study.name, found, text, made)
            verdicts[study.name] = str(found.verdict)
            if form == "text":
                print(f"{study.name.ljust(14)} {found.verdict}  ({plural(new, 'new run')}, "
                      f"{perf_counter() - began:.0f} s so far)", flush=True)  # fmt: skip
        studies.index(folder)
    if form == "json":
        print(as_json({"folder": str(folder), "verdicts": verdicts}))
    else:
        print(f"pages: {folder / 'README.md'}")
    return 0


def _plan(sweeps: Mapping[str, Sequence[RunSpec]], jobs: int, form: str) -> None:
    """Print what would be run, and how long it may take."""
    from fedlsvi.experiments import reproduce as studies

    plan: dict[str, dict[str, Any]] = {}
    for name, cells in sweeps.items():
        once = studies.distinct(cells)
        plan[name] = {"runs": len(once), "hours": studies.hours(once, jobs)}
    if form == "json":
        print(as_json({"jobs": jobs, "plan": plan}))
        return
    rows = [
        (name, plural(row["runs"], "run"), _duration(row["hours"])) for name, row in plan.items()
    ]
    print("\n".join(columns(rows, "<><")))


def _duration(hours: float) -> str:

    if hours >= 1.0:
        return f"about {hours:.1f} hours"
    minutes = round(60.0 * hours)
    return f"about {plural(minutes, 'minute')}" if minutes else "less than a minute"
