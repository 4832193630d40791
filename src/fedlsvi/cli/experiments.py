"""`fedlsvi compare`, `fedlsvi tune` and `fedlsvi reproduce`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from time import perf_counter

from fedlsvi.algorithms import registry as algorithms
from fedlsvi.checks import plural
from fedlsvi.cli.play import in_free_folder, named_folder, parse_seeds, settings
from fedlsvi.cli.text import as_json, columns
from fedlsvi.errors import InvalidInput
from fedlsvi.experiments import compare, ranking, reproduce, tune
from fedlsvi.experiments.processes import cores
from fedlsvi.experiments.runner import OnResult, Outcome, ResultFile, RunSpec, missing, run_all
from fedlsvi.experiments.sweeps import Size
from fedlsvi.experiments.verdicts import markdown
from fedlsvi.report.intervals import over_seeds
from fedlsvi.report.plotting import Draw, check_matplotlib, make_figure, save
from fedlsvi.storage import files
from fedlsvi.storage.settings_file import Table, assign


def do_compare(arguments: argparse.Namespace) -> int:
    """Several algorithms × seeds on one problem."""
    jobs, seeds = _count(arguments.jobs), parse_seeds(arguments.seeds)
    names = _names(arguments.algorithms)
    question = compare.Question.parse(_settings(arguments), names, seeds, _told(arguments))
    cells = question.specs()
    out = _claimed(arguments.out, "compare", question)
    with closing(ResultFile(out / compare.RESULTS)) as results:
        new = _play(cells, results, jobs)
    found: dict[str, list[Outcome]] = {name: [] for name in question.names}
    for cell in cells:
        found[cell.labels["algorithm"]].append(results.outcomes[cell.key])
    rows = ranking.write(out, question, found)
    drawn = list(ranking.panels(found, [row.name for row in rows]).values())
    if arguments.format == "json":
        print(as_json({"folder": str(out), "runs_made": new,
                       "ranking": [row.to_dict() for row in rows]}))  # fmt: skip
        _figure(drawn, out)
        return 0
    print("\n".join(columns(*ranking.table(rows))))
    print(f"{over_seeds(len(seeds))}; {_made(new)}")
    print(f"folder: {out}{_figure(drawn, out)}")
    return 0


def do_tune(arguments: argparse.Namespace) -> int:
    """Choose each algorithm's scale on some instances, report on others."""
    jobs = _count(arguments.jobs)
    seeds, others = parse_seeds(arguments.tune, "--tune"), parse_seeds(arguments.test, "--test")
    names = _names(arguments.algorithms)
    told = _told(arguments)
    question = compare.Question.parse(_settings(arguments), names, seeds, told)
    plan = tune.Tuning(question, seeds, others)
    plan.refuse_seed(told)
    scales = plan.scales  # everything is checked before anything is written
    out = _claimed(arguments.out, "tune", question, {"test": others})
    cells = plan.specs(seeds, dict.fromkeys(names, tune.FACTORS))
    with closing(ResultFile(out / compare.RESULTS)) as results:
        new = _play(cells, results, jobs)
        tuning = tune.grouped(cells, results.outcomes)
        chosen = {name: sorted({tune.choose(tuning[name]), 1.0}) for name in names}
        cells = plan.specs(others, chosen)
        new += _play(cells, results, jobs)
    found = tune.rows(scales, tuning, tune.grouped(cells, results.outcomes))
    files.write(out / "table.md", markdown(*tune.table(found)).encode() + b"\n")
    files.write_json(out / "summary.json", {"tuned": [row.to_dict() for row in found]})
    if arguments.format == "json":
        print(as_json({"folder": str(out), "runs_made": new,
                       "tuned": [row.to_dict() for row in found]}))  # fmt: skip
        return 0
    print("\n".join(columns(*tune.table(found))))
    kind = plural(len(seeds), "problem" if plan.varies else "run")
    kind += "" if plan.varies else " of the one problem"
    print(f"regret in units of the uniform policy's; {len(tune.FACTORS)} scales on {kind}, "
          f"reported on {plural(len(others), 'other')}; {_made(new)}")  # fmt: skip
    print(f"folder: {out}")
    return 0


def _settings(arguments: argparse.Namespace) -> Table:
    """The settings, with paths that do not depend on where the settings file is."""
    table = settings(arguments)
    base = Path(arguments.file).parent if arguments.file else Path()
    for key in ("env", "features"):
        entries = table.get(key)
        for entry in entries if isinstance(entries, list) else [entries]:
            if isinstance(entry, dict) and "file" in entry:
                entry["file"] = str((base / str(entry["file"])).absolute())
    return table


def _told(arguments: argparse.Namespace) -> Table:
    """What --set alone says."""
    told: Table = {}
    for change in arguments.changes:
        assign(told, change)
    return told


def _names(text: str) -> list[str]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        algorithms.entry(name)
    return names


def _count(jobs: int | None) -> int:
    if jobs is not None and jobs < 1:
        raise InvalidInput(f"--jobs must be at least 1, got {jobs}")
    return jobs or cores()


def _made(new: int) -> str:
    return "1 run was made now" if new == 1 else f"{new} runs were made now"


def _claimed(
    out: str | None, name: str, question: compare.Question, more: Table | None = None
) -> Path:
    """Where to write; without --out where the same was begun and not finished, or a new folder."""

    def claim(folder: Path) -> bool:
        return compare.claim_folder(folder, question, more)

    folder = compare.begun(name, question, more) if out is None else named_folder(out)
    if folder is None:
        return in_free_folder(Path("runs") / name, claim)[0]
    claim(folder)
    return folder


def _figure(drawn: Sequence[Draw], out: Path) -> str:
    """Draw the comparison and say where; what was found does not depend on it."""
    if not drawn:
        return ""
    try:
        made = make_figure(drawn, size=(5.6, 4.6), across=True)
        save(made, *(out / f"comparison.{suffix}" for suffix in ("png", "svg")))
    except InvalidInput as error:
        print(f"fedlsvi: {error}", file=sys.stderr)
        return ""
    return f"    figure: {out / 'comparison.png'}"


def _play(cells: Sequence[RunSpec], results: ResultFile, jobs: int) -> int:
    """Play what is missing; returns how many runs that were. On Ctrl-C say how to go on."""
    try:
        with _bar(missing(cells, results)) as told:
            return run_all(cells, results, jobs, told)
    except KeyboardInterrupt:
        print("fedlsvi: what is finished is kept: repeat the command to go on", file=sys.stderr)
        raise


@contextmanager
def _bar(todo: Sequence[RunSpec]) -> Iterator[OnResult | None]:
    """A progress bar on standard error, weighted by what the runs are expected to take."""
    if not sys.stderr.isatty() or not todo:
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    with Progress(
        BarColumn(bar_width=24), TextColumn("{task.fields[done]}/{task.fields[of]} runs"),
        TimeElapsedColumn(), TimeRemainingColumn(compact=True), TextColumn("{task.fields[last]}"),
        console=Console(stderr=True), refresh_per_second=2,
    ) as progress:  # fmt: skip
        task = progress.add_task(
            "", total=sum(cell.expected for cell in todo), done=0, of=len(todo), last=""
        )
        done = 0

        def told(cell: RunSpec, found: Outcome) -> None:
            nonlocal done
            done += 1
            progress.update(task, advance=cell.expected, done=done, last=found.algorithm)

        yield told


def do_reproduce(arguments: argparse.Namespace) -> int:
    """One page per claim, each with its verdict."""
    jobs, chosen = _count(arguments.jobs), reproduce.studies(arguments.claims)
    size: Size = "quick" if arguments.quick else "full"
    out = named_folder(arguments.out)
    path = Path(arguments.cells or out / "cells") / f"{size}.jsonl"
    sweeps = {study.name: study.sweep(size) for study in chosen}
    if arguments.plan:
        _plan(sweeps, jobs, arguments.format)
        return 0
    check_matplotlib()
    files.make_folder(out)
    command = " ".join(["fedlsvi reproduce", *(["--quick"] if arguments.quick else [])])
    began, verdicts = perf_counter(), {}
    with closing(ResultFile(path)) as results:  # until the end: another would write the same pages
        todo = missing([cell for cells in sweeps.values() for cell in cells], results)
        if todo:
            long = _long(reproduce.hours(todo, jobs))
            print(f"{plural(len(todo), 'run')}, {jobs} at a time, about {long}; "
                  "Ctrl-C is safe, the same command goes on", file=sys.stderr)  # fmt: skip
        for study in chosen:
            cells = sweeps[study.name]
            new, outcomes = _play(cells, results, jobs), results.outcomes
            found = study.finding(reproduce.points(cells, outcomes))
            made = f"{command} {study.name}"
            text = reproduce.page(study.name, found, made, cells, outcomes)
            reproduce.write(out, study.name, found, text, made)
            verdicts[study.name] = str(found.verdict)
            if arguments.format == "text":
                print(f"{study.name.ljust(14)} {found.verdict}  ({plural(new, 'new run')}, "
                      f"{perf_counter() - began:.0f} s so far)", flush=True)  # fmt: skip
        reproduce.index(out)
    if arguments.format == "json":
        print(as_json({"folder": str(out), "verdicts": verdicts}))
    else:
        print(f"pages: {out / 'README.md'}")
    return 0


def _plan(sweeps: Mapping[str, Sequence[RunSpec]], jobs: int, form: str) -> None:
    """What would be run, and how long it may take."""
    plan = {}
    for name, cells in sweeps.items():
        once = reproduce.distinct(cells)
        plan[name] = {"runs": len(once), "hours": reproduce.hours(once, jobs)}
    if form == "json":
        print(as_json({"jobs": jobs, "plan": plan}))
        return
    for name, row in plan.items():
        print(f"{name.ljust(14)} {row['runs']:5} runs, {_long(row['hours'])}")


def _long(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1.0 else f"{60.0 * hours:.0f} minutes"
