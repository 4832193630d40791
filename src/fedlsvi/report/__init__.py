"""Reports of runs: medians over seeds, plots, and one HTML page that holds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedlsvi.errors import FedLSVIError, InvalidInput, StoreError
from fedlsvi.report.comparison import comparable, comparison_figure, comparison_page
from fedlsvi.report.figures import available, compare_regret, figure
from fedlsvi.report.groups import grouped
from fedlsvi.report.model_class import model_class
from fedlsvi.report.plotting import as_svg, save
from fedlsvi.report.run_page import page_of_run
from fedlsvi.report.several import Comparison
from fedlsvi.run import Run
from fedlsvi.storage import files

__all__ = ["Comparison", "compare_regret", "figure", "write_report"]


def write_report(runs: Sequence[Run], out: str | Path, alone: Sequence[Run] = ()) -> list[Path]:
    """Write report.html, plots/*.png and plots/*.svg; or one page, where `out` ends in .html.

    Runs that differ in their seed alone are drawn together, as a median with an interval; runs of
    several algorithms or settings are compared, after as many episodes as all of them have. A seed
    that was interrupted before the others is left out, and named.

    Args:
        runs: All of one environment.
        out: The folder to write into, which is made if it does not exist; or a page, NAME.html,
            which holds its figures.
        alone: Runs of single agents on that problem, to compare with the first run.

    Returns:
        The paths of the files, the page first.

    Raises:
        InvalidInput: The runs cannot be compared, or Matplotlib is missing.
        StoreError: The folder cannot be written.
    """
    groups = grouped(runs)
    draws: dict[str, Callable[[], Any]]
    if len(groups) > 1:
        if alone:
            raise InvalidInput(
                "learning alone can be compared with one run only: give one run",
                code="alone-with-many",
            )
        model = model_class(groups)
        draws = {what: partial(comparison_figure, what, groups) for what in comparable(groups)}
        svgs, written = write_figures(out, draws)
        text = comparison_page(groups, svgs, model)
    else:
        group, first = groups[0], groups[0].first
        levels = _levels(first)
        draws = {what: partial(figure, what, group.runs, marks=levels) for what in available(first)}
        if alone:
            draws = {"alone": partial(compare_regret, first, alone), **draws}
        svgs, written = write_figures(out, draws)
        text = page_of_run(group, svgs, levels)
    return [write_page(out, text), *written]


def write_page(out: str | Path, text: str) -> Path:
    """Write a page into a folder, or as the file that `out` names."""
    page = Path(out) if is_page(out) else Path(out) / "report.html"
    if page.is_dir():
        raise StoreError(f"{page} is a folder: choose another name", code="cannot-write")
    files.make_folder(page.parent)
    files.write(page, text.encode())
    return page


def is_page(out: str | Path) -> bool:
    """Whether it is the name of a page, and not of a folder."""
    return Path(out).suffix.lower() in (".html", ".htm")


def write_figures(
    out: str | Path, draws: dict[str, Callable[[], Any]]
) -> tuple[dict[str, bytes], list[Path]]:
    """Write every figure as PNG and SVG under plots/, or nothing where `out` is a page.

    Args:
        out: The folder that holds plots/; or a page, which is to hold all.
        draws: What makes each figure, by name.

    Returns:
        The SVGs' contents by name, and the paths of all files.
    """
    svgs, written = {}, []
    figures = {what: draw() for what, draw in draws.items()}  # nothing is written if one fails
    if is_page(out):
        return {what: as_svg(drawn) for what, drawn in figures.items()}, []
    try:
        plots = files.inside(Path(out), "plots")
        plots.mkdir(parents=True, exist_ok=True)
        for what, drawn in figures.items():
            png, svg = (files.inside(plots, f"{what}.{suffix}") for suffix in ("png", "svg"))
            save(drawn, png, svg)
            written += [png, svg]
            svgs[what] = svg.read_bytes()
    except OSError as error:
        text = f"cannot write the plots to {out}: {error}"
        raise StoreError(text, code="cannot-write") from error
    return svgs, written


def _levels(run: Run) -> dict[str, float]:
    """What an episode is worth to the learned policy and to others; empty where the environment
    cannot be made here."""
    if run.plan is None and run.world is None:
        return {}
    try:
        return run.references()
    except (FedLSVIError, ImportError):
        return {}
