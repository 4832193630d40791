"""`fedlsvi report`: plots and a page of runs, or of the result of `fedlsvi compare`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from fedlsvi.checks import plural
from fedlsvi.cli.command import command, format_option, named_folder, option, refuse_parent
from fedlsvi.cli.text import as_json
from fedlsvi.errors import InvalidInput


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
    help="Where to write; a name that ends in .html is that of a single page.",
)
@format_option
def report(runs: tuple[str, ...], out: str | None, form: str) -> int:
    """Write plots (PNG, SVG) and an HTML page about runs.

    \b
    Examples:
      fedlsvi report runs/river-swim
      fedlsvi report runs/first runs/second --out runs/both    a comparison
    """  # fmt: skip
    from fedlsvi.experiments.compare import QUESTION
    from fedlsvi.experiments.ranking import write_comparison
    from fedlsvi.storage import files

    given = [Path(folder) for folder in runs]
    compared = [folder for folder in given if files.exists(folder / QUESTION)]
    if compared and len(given) > 1:
        raise InvalidInput(
            f"{compared[0]} is a comparison: report it by itself", code="comparison-among-runs"
        )
    if out is not None:
        target = named_folder(out)
    elif len(given) == 1:
        target = given[0]
    else:
        target = Path(os.path.commonpath([folder.absolute() for folder in given])) / "report"
    written = write_comparison(given[0], target) if compared else _runs(given, target)
    page, *plots = written
    if form == "json":
        print(as_json({"page": str(page), "plots": [str(path) for path in plots]}))
    else:
        print(f"page   {page}")
        if plots:
            print(f"plots  {plots[0].parent} ({plural(len(plots), 'file')}, PNG and SVG)")
    return 0


def _runs(given: list[Path], out: Path) -> list[Path]:
    """The page of runs and families of runs."""
    from fedlsvi.report import write_report
    from fedlsvi.report.plotting import check_matplotlib
    from fedlsvi.storage import load
    from fedlsvi.storage import seeds as family

    for folder in given:
        if not family.is_one(folder):
            refuse_parent(folder, "report")
    runs = [load(folder) for folder in family.expand(given)]
    check_matplotlib()
    return write_report(runs, out)
