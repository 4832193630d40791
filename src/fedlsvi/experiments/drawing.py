"""Figures of experiments: curves with intervals, described as data and then painted.

An analysis says what is to be seen (`Panel`, `Curve`); only `paint` knows Matplotlib. The style
comes from whoever asks, so that figures of experiments look like figures of runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.errors import InvalidInput

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#8C6D31", "#444444")
"""Okabe and Ito's palette, with brown and ink in place of yellow and black."""

DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)))
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")


@dataclass(frozen=True)
class Curve:
    """y against x; an interval where there is one. `colour` numbers the palette, −1 is grey."""

    label: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    colour: int | None = None
    marks: bool = True
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """One set of axes."""

    title: str
    xlabel: str
    ylabel: str
    curves: list[Curve]
    logx: bool = True
    logy: bool = True
    lines: dict[str, float] = field(default_factory=dict)
    """Vertical lines, by their label."""
    ticks: dict[str, float] | None = None
    """Names in place of numbers on the x axis."""


Painter = Any
"""Callable[[Sequence[Panel], Path], None]."""


def check_drawing() -> None:
    """Refuse where no figure can be painted: before anything is played for one."""
    try:
        import_module("matplotlib")
    except ImportError:
        raise InvalidInput(
            "figures need Matplotlib, which is not installed: pip install 'fedlsvi[plot]'"
        ) from None


def paint(panels: Sequence[Panel], path: Path, style: Mapping[str, Any]) -> None:
    """One panel beside the other, written in the format of the suffix."""
    check_drawing()
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(dict(style)):
        width = 5.6 if len(panels) > 1 else 6.6
        made = Figure(figsize=(width * len(panels), 4.6), layout="constrained")
        FigureCanvasAgg(made)
        entries: dict[str, Any] = {}
        for axes, panel in zip(
            made.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
        ):
            _draw(axes, panel)
            handles, labels = axes.get_legend_handles_labels()
            entries |= dict(zip(labels, handles, strict=True))
        together = max(len(_labels(panel)) for panel in panels) == len(entries) > 0
        if together:  # one legend says it all
            columns = min(5, 2 * len(panels))
            made.legend(
                entries.values(), entries, loc="outside lower center", ncols=columns, fontsize=9
            )
        for axes in made.axes:
            if not together and axes.get_legend_handles_labels()[1]:
                axes.legend(fontsize=8.5, loc="best")
        stamp = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        path.parent.mkdir(parents=True, exist_ok=True)
        made.savefig(path, dpi=110, metadata=stamp)


def _labels(panel: Panel) -> list[str]:
    return list({c.label for c in panel.curves if c.label} | set(panel.lines))


def _draw(axes: Any, panel: Panel) -> None:
    for i, curve in enumerate(panel.curves):
        number = i if curve.colour is None else curve.colour
        colour = "#999999" if number < 0 else COLOURS[number % len(COLOURS)]
        dash = DASHES[1] if curve.dashed else DASHES[max(number, 0) // len(COLOURS) % 3]
        mark = MARKS[max(number, 0) % len(MARKS)] if curve.marks else ""
        x, y = np.asarray(curve.x, np.float64), np.asarray(curve.y, np.float64)
        axes.plot(x, y, color=colour, linestyle=dash, marker=mark, markersize=5, linewidth=1.8,
                  label=curve.label or None)  # fmt: skip
        if curve.low is not None and curve.high is not None and np.all(np.isfinite(curve.low)):
            axes.fill_between(x, curve.low, curve.high, color=colour, alpha=0.16, linewidth=0)
    for label, at in panel.lines.items():
        axes.axvline(at, color="#666666", linestyle=":", linewidth=1.4, label=label)
    axes.set_title(panel.title)
    axes.set(xlabel=panel.xlabel, ylabel=panel.ylabel)
    if panel.logx:
        axes.set_xscale("log")
        _number(axes.xaxis, axes.get_xlim())
    low, high = axes.dataLim.y0, axes.dataLim.y1  # bands too; inf, -inf where nothing is drawn
    positive = any(np.any(np.asarray(curve.y) > 0.0) for curve in panel.curves)
    if panel.logy and positive:  # nothing else has a place on such an axis
        axes.set_yscale("log")
        _number(axes.yaxis, axes.get_ylim())
    elif low >= 0.0:
        # a margin above what is drawn, of the axis as it now is
        axes.set_ylim(0.0, high * 1.05 if high > 0.0 else None)
    if panel.ticks is not None:
        axes.set_xticks(list(panel.ticks.values()), list(panel.ticks), fontsize=8.5)
        axes.minorticks_off()


def _number(axis: Any, ends: tuple[float, float]) -> None:
    """Plain numbers on a logarithmic axis of few decades, where powers of ten say too little."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if np.log10(ends[1] / ends[0]) > 3.0:
        axis.set_minor_formatter(NullFormatter())
        return
    short = np.log10(ends[1] / ends[0]) < 1.3
    axis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0) if short else (1.0, 3.0)))
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}" if v >= 1000.0 else f"{v:.3g}"))
    axis.set_minor_formatter(NullFormatter())
