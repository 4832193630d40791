"""`fedlsvi report`: plots and a page of runs, or of the result of `fedlsvi compare`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedlsvi.cli.command import command, format_option, named_folder, option, refuse_parent
from fedlsvi.cli.text import as_json
from fedlsvi.errors import InvalidInput, StoreError

if TYPE_CHECKING:
    from fedlsvi.experiments import compare


@command()
@click.argument(
    "runs",
    nargs=-1,
    required=True,
    metavar="RUN...",
    type=click.Path(),
    help="Run folders, folders of `run --seeds`, or one folder of `compare`.",
)
@option(
    "--out",
    metavar="FOLDER",
    section="Output",
    show_default="the run folder; for several runs, report/ in the folder they share",
    help="Where to write.",
)
@format_option
def report(runs: tuple[str, ...], out: str | None, form: str) -> int:
    """Write plots (PNG, SVG) and an HTML page of runs.

    \b
    Examples:
      fedlsvi report runs/river-swim
      fedlsvi report runs/first runs/second --out runs/both    a comparison
    """  # fmt: skip
    from fedlsvi.experiments.compare import QUESTION
    from fedlsvi.storage import files

    given = [Path(folder) for folder in runs]
    compared = [folder for folder in given if files.exists(folder / QUESTION)]
    if compared and len(given) > 1:
        raise InvalidInput(
            f"{compared[0]} already holds a comparison: report it alone", code="mixed-report"
        )
    if out is not None:
        target = named_folder(out)
    elif len(given) == 1:
        target = given[0]
    else:
        target = Path(os.path.commonpath([folder.absolute() for folder in given])) / "report"
    written = _compared(given[0], target) if compared else _runs(given, target)
    page, *plots = written
    if form == "json":
        print(as_json({"page": str(page), "plots": [str(path) for path in plots]}))
    else:
        print(f"page   {page}")
        if plots:
            print(f"plots  {plots[0].parent} ({len(plots)} files, PNG and SVG)")
    return 0


def _runs(given: list[Path], out: Path) -> list[Path]:
    """The page of runs and families of runs."""
    from fedlsvi.experiments.drawing import check_drawing
    from fedlsvi.report import write_report
    from fedlsvi.storage import load
    from fedlsvi.storage import seeds as family

    for folder in given:
        if not family.is_one(folder):
            refuse_parent(folder, "report")
    runs = [load(folder) for folder in family.expand(given)]
    check_drawing()
    return write_report(runs, out)


def _compared(folder: Path, out: Path) -> list[Path]:
    """The page of a folder of `fedlsvi compare`; nothing is played."""
    from fedlsvi.experiments import compare, ranking
    from fedlsvi.experiments.drawing import paint
    from fedlsvi.experiments.runner import Cell, Shelf
    from fedlsvi.report import pages
    from fedlsvi.report.html import write_page
    from fedlsvi.report.style import STYLE
    from fedlsvi.storage import files
    from fedlsvi.storage.settings_file import dump

    asked = files.read_json(folder / compare.QUESTION)
    if "test" in asked:
        raise InvalidInput(
            f"{folder} was made by `fedlsvi tune`: its table is in table.md", code="is-tuning"
        )
    question = compare.Question(asked["algorithms"], asked["seeds"], asked["shared"], asked["own"])
    outcomes = Shelf.read(folder / "cells.jsonl")
    found = {}
    for name in question.names:
        wanted = [Cell(question.table(name, seed)).key for seed in question.seeds]
        if not all(key in outcomes for key in wanted):
            raise StoreError(
                f"not all runs in {folder} are finished: rerun `fedlsvi compare` to finish them",
                code="unfinished-comparison",
            )
        found[name] = [outcomes[key] for key in wanted]
    rows = ranking.standings(found)
    first, last = rows[0], rows[-1]
    written, svgs = [], {}
    for name, panel in ranking.panels(found, [row.name for row in rows]).items():
        paths = [out / "plots" / f"{name}.{suffix}" for suffix in ("png", "svg")]
        for path in paths:
            paint([panel], path, STYLE)
        written += paths
        svgs[name] = paths[-1].read_bytes()
    n = len(question.seeds)
    seeds = "1 seed" if n == 1 else f"the median of {n} seeds"
    over = "1 seed" if n == 1 else f"medians over {n} seeds, 95 % intervals"
    if first.regret is not None and last.regret is not None:
        sentence = (
            f"{first.name} lost least ({first.regret.mid:,.0f} in all, {seeds}), "
            f"{last.name} most ({last.regret.mid:,.0f})."
        )
    elif first.late_return is not None and last.late_return is not None:
        sentence = (
            f"{first.name} earned most in the last tenth of the episodes "
            f"({first.late_return.mid:,.3f} each, {seeds}), {last.name} least "
            f"({last.late_return.mid:,.3f})."
        )
    else:
        sentence = f"Regret is not known here; {first.name} sent the fewest scalars."
    kinds = list(found[first.name][0].scalars_by_category)
    sent = [
        ["", row.name, *(f"{found[row.name][0].scalars_by_category[k]:,}" for k in kinds)]
        for row in rows
    ]
    tables = {
        f"Ranking: {over}": ranking.table(rows),
        f"What was sent, in scalars, seed {question.seeds[0]}": (["", "algorithm", *kinds], sent),
    }
    title = f"{len(rows)} algorithms on {_environment(question.shared['env'])}"
    own = {name: table for name, table in question.own.items() if table}
    index = out / "report.html"
    again = _again(question) + dump(question.shared | own)
    text = pages.ranking(title, sentence, svgs, tables, again)
    files.make_folder(out)
    write_page(index, text)
    return [index, *written]


def _environment(entry: Any) -> str:
    """What settings call it: a name, a table with one, or a list of these."""
    if isinstance(entry, dict):
        return str(entry.get("id") or entry["name"])
    return entry if isinstance(entry, str) else "several environments"


def _again(question: compare.Question) -> str:
    """The command as a comment above the settings."""
    from fedlsvi.report.command import command, missing

    names, seeds = ",".join(question.names), ",".join(map(str, question.seeds))
    unknown = missing(question.names, question.shared["env"], question.shared.get("features"))
    line = command("compare", "settings.toml", "--algorithms", names, "--seeds", seeds,
                   missing=bool(unknown))  # fmt: skip
    where = f"\n# MODULE is your module or .py file that registers {', '.join(unknown)}"
    return f"# {line}{where if unknown else ''}\n"
