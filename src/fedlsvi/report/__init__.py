"""Reports of runs: statistics, plots, and one HTML page that holds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedlsvi.errors import FedLSVIError, InvalidInput, StoreError
from fedlsvi.report.contrast import contrasts
from fedlsvi.report.figures import available, compare_regret, contrast, figure, save
from fedlsvi.report.groups import Group, grouped
from fedlsvi.report.html import write_page
from fedlsvi.report.pages import comparison, page
from fedlsvi.run import Run
from fedlsvi.storage import files

__all__ = ["compare_regret", "figure", "write_report"]


def write_report(runs: Sequence[Run], out: str | Path, alone: Sequence[Run] = ()) -> list[Path]:
    """Write plots/*.png, plots/*.svg and report.html into `out`; returns their paths, page first.

    Runs that differ in their seed alone are drawn together, with bands; runs of several algorithms
    or settings are compared, after as many episodes as all of them have. A seed that was
    interrupted before the others is left out, and named. All must be of one environment. `alone`:
    runs of single agents on that problem, to set against the first run.
    """
    groups = grouped(runs)
    if len(groups) > 1:
        if alone:
            raise InvalidInput("runs of single agents are set against one run: give one")
        svgs, written = _drawn(out, {w: partial(contrast, w, groups) for w in contrasts(groups)})
        text = comparison(groups, svgs)
    else:
        group, first = groups[0], groups[0].first
        levels = _levels(group)
        draws: dict[str, Callable[[], Any]] = {
            what: partial(figure, what, group.runs, marks=levels) for what in available(first)
        }
        if alone:
            draws = {"alone": partial(compare_regret, first, alone), **draws}
        svgs, written = _drawn(out, draws)
        text = page(group, svgs, levels)
    index = Path(out) / "report.html"
    write_page(index, text)
    return [index, *written]


def _drawn(
    out: str | Path, draws: dict[str, Callable[[], Any]]
) -> tuple[dict[str, bytes], list[Path]]:
    """Every figure as PNG and SVG; the SVGs' contents, and the paths of all."""
    svgs, written = {}, []
    figures = {what: draw() for what, draw in draws.items()}  # nothing is written if one fails
    try:
        plots = files.inside(Path(out), "plots")
        plots.mkdir(parents=True, exist_ok=True)
        for what, drawn in figures.items():
            png, svg = (files.inside(plots, f"{what}.{suffix}") for suffix in ("png", "svg"))
            save(drawn, png, svg)
            written += [png, svg]
            svgs[what] = svg.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot write the plots to {out}: {error}") from error
    return svgs, written


def _levels(group: Group) -> dict[str, float]:
    """What an episode is worth to the learned policy and to others; nothing where the environment
    cannot be made here."""
    try:
        return group.first.references()
    except (FedLSVIError, ImportError):
        return {}
