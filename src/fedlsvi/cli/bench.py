"""`fedlsvi bench`: hands over to the benchmarks."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module


def do_bench(arguments: argparse.Namespace) -> int:
    """Small ratios against plain NumPy, in this process."""
    try:
        bench = import_module("fedlsvi.experiments.bench")
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("fedlsvi.experiments"):
            raise
        print(
            "fedlsvi: error: this installation has no benchmarks: run `make bench` in the source",
            file=sys.stderr,
        )
        return 1
    return int(bench.main() or 0)
