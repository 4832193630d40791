"""`fedlsvi report`: plots and a page, of runs or of what `fedlsvi compare` found."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from fedlsvi.cli.text import as_json
from fedlsvi.errors import InvalidInput, StoreError
from fedlsvi.experiments import compare
from fedlsvi.experiments.drawing import paint
from fedlsvi.experiments.runner import Cell, Shelf
from fedlsvi.report import write_report
from fedlsvi.report.html import write_page
from fedlsvi.report.pages import ranking
from fedlsvi.report.style import STYLE
from fedlsvi.settings_file import dump
from fedlsvi.store import family, files, load

QUESTION = "question.json"


def do_report(arguments: argparse.Namespace) -> int:
    """One run goes into its own folder, several into the folder that they share."""
    given = [Path(folder) for folder in arguments.runs]
    compared = [folder for folder in given if files.exists(folder / QUESTION)]
    if compared and len(given) > 1:
        raise InvalidInput(f"{compared[0]} holds a comparison already: report it by itself")
    if arguments.out is not None:
        out = Path(arguments.out)
    elif len(given) == 1:
        out = given[0]
    else:
        out = Path(os.path.commonpath([folder.absolute() for folder in given])) / "report"
    if compared:
        written = _compared(given[0], out)
    else:
        written = write_report([load(folder) for folder in family.expand(given)], out)
    if arguments.format == "json":
        print(as_json({"page": str(written[0]), "plots": [str(path) for path in written[1:]]}))
    else:
        print(f"page   {written[0]}")
        where = written[1].parent if len(written) > 1 else out
        print(f"plots  {where} ({len(written) - 1} files, PNG and SVG)")
    return 0


def _compared(folder: Path, out: Path) -> list[Path]:
    """The page of a folder of `fedlsvi compare`; nothing is played."""
    asked = files.read_json(folder / QUESTION)
    if "test" in asked:
        raise InvalidInput(f"{folder} was made by `fedlsvi tune`: its table is in table.md")
    question = compare.Question(asked["algorithms"], asked["seeds"], asked["shared"], asked["own"])
    shelf = Shelf(folder / "cells.jsonl")
    shelf.close()
    found = {}
    for name in question.names:
        wanted = [Cell(question.table(name, seed)).key for seed in question.seeds]
        if not all(key in shelf.outcomes for key in wanted):
            raise StoreError(f"not all runs in {folder} are finished: repeat `fedlsvi compare`")
        found[name] = [shelf.outcomes[key] for key in wanted]
    rows = compare.standings(found)
    first, last = rows[0], rows[-1]
    written, svgs = [], {}
    if first.regret is not None and last.regret is not None:
        drawn = compare.panels(found, [row.name for row in rows])
        for name, panel in zip(("regret", "traffic"), drawn, strict=True):
            paths = [out / "plots" / f"{name}.{suffix}" for suffix in ("png", "svg")]
            for path in paths:
                paint([panel], path, STYLE)
            written += paths
            svgs[name] = paths[-1].read_bytes()
        sentence = (
            f"{first.name} lost least ({first.regret.mid:,.0f} in all, the median of "
            f"{len(question.seeds)} seeds), {last.name} most ({last.regret.mid:,.0f})."
        )
    else:
        sentence = f"Regret is not known here; {first.name} sent the fewest scalars."
    kinds = list(found[first.name][0].scalars_by_category)
    sent = [
        ["", row.name, *(f"{found[row.name][0].scalars_by_category[k]:,}" for k in kinds)]
        for row in rows
    ]
    tables = {
        f"Ranking: medians over {len(question.seeds)} seeds, 95 % intervals": compare.table(rows),
        f"What was sent, in scalars, seed {question.seeds[0]}": (["", "algorithm", *kinds], sent),
    }
    env = question.shared["env"]
    title = f"{len(rows)} algorithms on {env['name'] if isinstance(env, dict) else 'several'}"
    own = {name: table for name, table in question.own.items() if table}
    index = out / "report.html"
    text = ranking(title, sentence, svgs, tables, _again(question) + dump(question.shared | own))
    files.make_folder(out)
    write_page(index, text)
    return [index, *written]


def _again(question: compare.Question) -> str:
    names, seeds = ",".join(question.names), ",".join(map(str, question.seeds))
    return f"# fedlsvi compare settings.toml --algorithms {names} --seeds {seeds}\n"
