"""Reports of runs: statistics, plots, and one HTML page that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fedlsvi.errors import InvalidInput, StoreError
from fedlsvi.report.figures import available, compare_regret, figure, save
from fedlsvi.report.html import page, write_page
from fedlsvi.run import Run
from fedlsvi.settings_file import dump
from fedlsvi.store.describe import describe

__all__ = ["compare_regret", "figure", "write_report"]


def write_report(runs: Sequence[Run], out: str | Path, alone: Sequence[Run] = ()) -> list[Path]:
    """Write plots/*.png, plots/*.svg and report.html into `out`; returns their paths, page first.

    Several runs are drawn together; they must be of one problem, so that they can be compared.
    `alone`: runs of single agents on that problem, to set against the first run.
    """
    first = runs[0]
    for run in runs[1:]:
        if run.parameters != first.parameters or run.environment != first.environment:
            raise InvalidInput(
                f"{run.folder or 'a run'} and {first.folder or 'the first'} differ in settings or "
                "environment: report them one by one"
            )
    folder, written = Path(out), []
    try:
        (folder / "plots").mkdir(parents=True, exist_ok=True)
        draws = {what: partial(figure, what, runs) for what in available(first)}
        if alone:
            draws = {"alone": partial(compare_regret, first, alone), **draws}
        svgs = {}
        for what, draw in draws.items():
            png, svg = (folder / "plots" / f"{what}.{suffix}" for suffix in ("png", "svg"))
            save(draw(), png, svg)
            written += [png, svg]
            svgs[what] = svg.read_bytes()
        index = folder / "report.html"
        write_page(index, page(runs, svgs, _settings(first)))
    except OSError as error:
        raise StoreError(f"cannot write the report to {folder}: {error}") from error
    return [index, *written]


def _settings(run: Run) -> str:
    """The TOML that plays the run again."""
    if run.plan is not None:
        return dump(describe(run.plan, run.algorithm, run.settings)[0].table())
    assert run.folder is not None  # a run without a plan was read from a folder
    return (Path(run.folder) / "settings.toml").read_text(encoding="utf-8")
