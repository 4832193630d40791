"""`fedlsvi report`: plots and a page."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from fedlsvi.cli.text import as_json
from fedlsvi.report import write_report
from fedlsvi.store import family, load


def do_report(arguments: argparse.Namespace) -> int:
    """One run goes into its own folder, several into the folder that they share."""
    given = [Path(folder) for folder in arguments.runs]
    folders = family.expand(given)
    runs = [load(folder) for folder in folders]
    if arguments.out is not None:
        out = Path(arguments.out)
    elif len(given) == 1:
        out = given[0]
    else:
        out = Path(os.path.commonpath([folder.absolute() for folder in given])) / "report"
    written = write_report(runs, out)
    if arguments.format == "json":
        print(as_json({"page": str(written[0]), "plots": [str(path) for path in written[1:]]}))
    else:
        print(f"page   {written[0]}")
        print(f"plots  {out / 'plots'} ({len(written) - 1} files, PNG and SVG)")
    return 0
