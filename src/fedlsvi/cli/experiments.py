"""`fedlsvi compare`, `fedlsvi tune` and `fedlsvi reproduce`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from fedlsvi.algorithms import registry as algorithms
from fedlsvi.cli.play import free_folder, parse_seeds, settings
from fedlsvi.cli.text import as_json
from fedlsvi.errors import InvalidInput
from fedlsvi.experiments import compare, reproduce, tune
from fedlsvi.experiments.drawing import Panel, paint
from fedlsvi.experiments.runner import Cell, Outcome, Shelf, Told, cores, missing, run_all
from fedlsvi.experiments.sweeping import Size
from fedlsvi.experiments.verdicts import markdown
from fedlsvi.report.style import STYLE
from fedlsvi.settings_file import Table
from fedlsvi.store import files


def do_compare(arguments: argparse.Namespace) -> int:
    """Several algorithms × seeds on one problem."""
    jobs, seeds = _count(arguments.jobs), parse_seeds(arguments.seeds)
    question = compare.Question.parse(_settings(arguments), _names(arguments.algorithms), seeds)
    cells = question.cells()
    out = _folder(arguments.out, "compare")
    compare.claim_folder(out, question)
    outcomes, new = _play(cells, out / "cells.jsonl", jobs)
    found: dict[str, list[Outcome]] = {name: [] for name in question.names}
    for cell in cells:
        found[cell.labels["algorithm"]].append(outcomes[cell.key])
    rows = compare.write(out, question, found)
    figure = ""
    if rows[0].regret is not None:
        figure = f"    figure: {out / 'comparison.png'}"
        drawn = compare.panels(found, [row.name for row in rows])
        for suffix in ("png", "svg"):
            _paint(drawn, out / f"comparison.{suffix}")
    if arguments.format == "json":
        print(as_json({"folder": str(out), "runs_made": new,
                       "ranking": [row.to_dict() for row in rows]}))  # fmt: skip
        return 0
    print("\n".join(_columns(*compare.table(rows))))
    print(f"medians over {len(seeds)} seeds, 95 % bootstrap intervals; {new} runs were made now")
    print(f"folder: {out}{figure}")
    return 0


def do_tune(arguments: argparse.Namespace) -> int:
    """Choose each algorithm's scale on some instances, report on others."""
    jobs = _count(arguments.jobs)
    seeds, others = parse_seeds(arguments.tune), parse_seeds(arguments.test)
    names = _names(arguments.algorithms)
    question = compare.Question.parse(_settings(arguments), names, seeds)
    plan = tune.Tuning(question, seeds, others)
    scales = plan.scales()
    out = _folder(arguments.out, "tune")
    compare.claim_folder(out, question, {"test": others})
    cells = plan.cells(seeds, dict.fromkeys(names, tune.FACTORS))
    outcomes, new = _play(cells, out / "cells.jsonl", jobs)
    tuning = tune.grouped(cells, outcomes)
    chosen = {name: sorted({tune.choose(tuning[name]), 1.0}) for name in names}
    cells = plan.cells(others, chosen)
    outcomes, more = _play(cells, out / "cells.jsonl", jobs)
    found = tune.rows(scales, tuning, tune.grouped(cells, outcomes))
    files.write(out / "table.md", markdown(*tune.table(found)).encode() + b"\n")
    files.write_json(out / "summary.json", {"tuned": [row.to_dict() for row in found]})
    if arguments.format == "json":
        print(as_json({"folder": str(out), "runs_made": new + more,
                       "tuned": [row.to_dict() for row in found]}))  # fmt: skip
        return 0
    print("\n".join(_columns(*tune.table(found))))
    kind = "problems" if plan.varies else "runs of the one problem"
    print(f"regret in units of the uniform policy's; {len(tune.FACTORS)} scales on {len(seeds)} "
          f"{kind}, reported on {len(others)} others; {new + more} runs were made now")  # fmt: skip
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


def _names(text: str) -> list[str]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        algorithms.entry(name)
    return names


def _count(jobs: int | None) -> int:
    if jobs is not None and jobs < 1:
        raise InvalidInput(f"--jobs must be at least 1, got {jobs}")
    return jobs or cores()


def _folder(out: str | None, name: str) -> Path:
    return Path(out) if out is not None else free_folder(Path("runs") / name)


def _paint(drawn: Sequence[Panel], path: Path) -> None:
    paint(drawn, path, STYLE)


def _play(cells: Sequence[Cell], path: Path, jobs: int) -> tuple[dict[str, Outcome], int]:
    """All outcomes, and how many runs were made for them; on Ctrl-C say how to go on."""
    shelf = Shelf(path)
    try:
        with _bar(missing(cells, shelf)) as told:
            new = run_all(cells, shelf, jobs, told)
    except KeyboardInterrupt:
        print("fedlsvi: what is finished is kept: repeat the command to go on", file=sys.stderr)
        raise
    finally:
        shelf.close()
    return shelf.outcomes, new


@contextmanager
def _bar(todo: Sequence[Cell]) -> Iterator[Told | None]:
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

        def told(cell: Cell, found: Outcome) -> None:
            nonlocal done
            done += 1
            progress.update(task, advance=cell.expected, done=done, last=found.algorithm)

        yield told


def _columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Plain text, first two columns to the left."""
    every = [list(header), *rows]
    widths = [max(len(row[i]) for row in every) for i in range(len(header))]
    return [
        "  ".join(
            cell.ljust(w) if i < 2 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in every
    ]


def do_reproduce(arguments: argparse.Namespace) -> int:
    """One page per claim, each with its verdict."""
    jobs, chosen = _count(arguments.jobs), reproduce.studies(arguments.claims)
    size: Size = "quick" if arguments.quick else "full"
    out = Path(arguments.out)
    path = Path(arguments.cells or out / "cells") / f"{size}.jsonl"
    sweeps = {study.name: study.sweep(size) for study in chosen}
    if arguments.plan:
        for name, cells in sweeps.items():
            cells = reproduce.distinct(cells)
            print(f"{name.ljust(14)} {len(cells):5} runs, {_long(reproduce.hours(cells, jobs))}")
        return 0
    shelf = Shelf(path)
    todo = missing([cell for cells in sweeps.values() for cell in cells], shelf)
    shelf.close()
    if todo:
        print(f"{len(todo)} runs on {jobs} processes, about {_long(reproduce.hours(todo, jobs))}; "
              "Ctrl-C is safe, the same command goes on", file=sys.stderr)  # fmt: skip
    command = " ".join(["fedlsvi reproduce", *(["--quick"] if arguments.quick else [])])
    began, verdicts = perf_counter(), {}
    for study in chosen:
        cells = sweeps[study.name]
        outcomes, new = _play(cells, path, jobs)
        found = study.analysis(reproduce.points(cells, outcomes))
        made = f"{command} {study.name}"
        text = reproduce.page(study.name, found, made, cells, outcomes)
        reproduce.write(out, study.name, found, text, _paint, made)
        verdicts[study.name] = str(found.verdict)
        if arguments.format == "text":
            print(f"{study.name.ljust(14)} {found.verdict}  ({new} new runs, "
                  f"{perf_counter() - began:.0f} s so far)", flush=True)  # fmt: skip
    reproduce.index(out)
    if arguments.format == "json":
        print(as_json({"folder": str(out), "verdicts": verdicts}))
    else:
        print(f"pages: {out / 'README.md'}")
    return 0


def _long(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1.0 else f"{60.0 * hours:.0f} minutes"
