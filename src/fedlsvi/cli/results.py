"""`fedlsvi report`: plots and a page, of runs or of what `fedlsvi compare` found."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from fedlsvi.cli.play import named_folder
from fedlsvi.cli.text import as_json
from fedlsvi.errors import InvalidInput
from fedlsvi.experiments.compare import QUESTION
from fedlsvi.experiments.ranking import write_comparison
from fedlsvi.report import write_report
from fedlsvi.report.plotting import check_matplotlib
from fedlsvi.storage import files, load
from fedlsvi.storage import seeds as family


def do_report(arguments: argparse.Namespace) -> int:
    """Of one run in its own folder, of several in report/ of the folder that they share."""
    given = [Path(folder) for folder in arguments.runs]
    compared = [folder for folder in given if files.exists(folder / QUESTION)]
    if compared and len(given) > 1:
        raise InvalidInput(
            f"{compared[0]} is a comparison: report it by itself", code="comparison-among-runs"
        )
    if arguments.out is not None:
        out = named_folder(arguments.out)
    elif len(given) == 1:
        out = given[0]
    else:
        out = Path(os.path.commonpath([folder.absolute() for folder in given])) / "report"
    if compared:
        written = write_comparison(given[0], out)
    else:
        runs = [load(folder) for folder in family.expand(given)]
        check_matplotlib()
        written = write_report(runs, out)
    if arguments.format == "json":
        print(as_json({"page": str(written[0]), "plots": [str(path) for path in written[1:]]}))
    else:
        print(f"page   {written[0]}")
        if len(written) > 1:
            print(f"plots  {written[1].parent} ({len(written) - 1} files, PNG and SVG)")
    return 0
