"""`fedlsvi report`: plots and a page, of runs or of what `fedlsvi compare` found."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from fedlsvi.cli.play import named_folder
from fedlsvi.cli.text import as_json
from fedlsvi.errors import InvalidInput, StoreError
from fedlsvi.experiments import compare, ranking
from fedlsvi.experiments.drawing import check_drawing, paint
from fedlsvi.experiments.runner import Cell, Shelf
from fedlsvi.report import pages, write_report
from fedlsvi.report.command import command, missing
from fedlsvi.report.html import write_page
from fedlsvi.report.style import STYLE
from fedlsvi.storage import files, load
from fedlsvi.storage import seeds as family
from fedlsvi.storage.schema import check_shape
from fedlsvi.storage.settings_file import dump


def do_report(arguments: argparse.Namespace) -> int:
    """Of one run in its own folder, of several in report/ of the folder that they share."""
    given = [Path(folder) for folder in arguments.runs]
    compared = [folder for folder in given if files.exists(folder / compare.QUESTION)]
    if compared and len(given) > 1:
        raise InvalidInput(f"{compared[0]} holds a comparison already: report it by itself")
    if arguments.out is not None:
        out = named_folder(arguments.out)
    elif len(given) == 1:
        out = given[0]
    else:
        out = Path(os.path.commonpath([folder.absolute() for folder in given])) / "report"
    if compared:
        written = _compared(given[0], out)
    else:
        runs = [load(folder) for folder in family.expand(given)]
        check_drawing()
        written = write_report(runs, out)
    if arguments.format == "json":
        print(as_json({"page": str(written[0]), "plots": [str(path) for path in written[1:]]}))
    else:
        print(f"page   {written[0]}")
        if len(written) > 1:
            print(f"plots  {written[1].parent} ({len(written) - 1} files, PNG and SVG)")
    return 0


def _compared(folder: Path, out: Path) -> list[Path]:
    """The page of a folder of `fedlsvi compare`; nothing is played."""
    path = files.inside(folder, compare.QUESTION)
    asked = files.read_json(path, {str: Any})
    if "test" in asked:
        raise InvalidInput(f"{folder} was made by `fedlsvi tune`: its table is in table.md")
    check_shape(path, asked, compare.ASKED)
    question = compare.Question(asked["algorithms"], asked["seeds"], asked["shared"], asked["own"])
    outcomes = Shelf.read(folder / "cells.jsonl")
    found = {}
    for name in question.names:
        wanted = [Cell(question.table(name, seed)).key for seed in question.seeds]
        if not all(key in outcomes for key in wanted):
            raise StoreError(f"not all runs in {folder} are finished: repeat `fedlsvi compare`")
        found[name] = [outcomes[key] for key in wanted]
    rows = ranking.standings(found)
    first, last = rows[0], rows[-1]
    written, svgs = [], {}
    for name, panel in ranking.panels(found, [row.name for row in rows]).items():
        paths = [files.inside(out, "plots", f"{name}.{suffix}") for suffix in ("png", "svg")]
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
    """The command as a remark above the settings."""
    names, seeds = ",".join(question.names), ",".join(map(str, question.seeds))
    unknown = missing(question.names, question.shared["env"], question.shared.get("features"))
    line = command("compare", "settings.toml", "--algorithms", names, "--seeds", seeds,
                   missing=bool(unknown))  # fmt: skip
    where = f"\n# MODULE is your module or .py file that registers {', '.join(unknown)}"
    return f"# {line}{where if unknown else ''}\n"
