"""The house style of figures: colours, letters, and what all axes share."""

from __future__ import annotations

from typing import Any

import numpy as np

INK, MUTED, GRID = "#222222", "#666666", "#e3e3e3"
BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
COLOURS = (BLUE, VERMILION, GREEN, ORANGE, "#CC79A7", "#56B4E9", "#8C6D31", "#444444")
"""Okabe and Ito's palette, which colour-blind readers can tell apart, with brown and ink in place
of yellow and black."""

DASHED = (0, (5, 3))

LETTERS = 48
"""Of the labels in one line of a legend."""

POINTS = 2000
"""A curve is thinned to at most this many points."""

STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 1.8,
    "svg.hashsalt": "fedlsvi",
}


def thin(n: int, log: bool = False) -> np.ndarray:
    """At most POINTS of the indices 0 … n−1, first and last included."""
    if n <= POINTS:
        return np.arange(n)
    even = np.linspace(0, n - 1, POINTS if not log else POINTS // 2)
    if log:
        even = np.append(even, np.geomspace(1, n, POINTS // 2) - 1)
    return np.unique(even.round().astype(np.int64))


def dot(points: np.ndarray) -> str | None:
    """How the points of a curve are marked: a single one has no line to be seen by."""
    return "o" if len(points) == 1 else None


def frame(axes: Any, n: int, top: float) -> None:
    """Axes from zero with thousands marked, and the legend where it hides nothing."""
    from_zero(axes, top)
    episodes(axes, n)
    legend_above(axes)


def from_zero(axes: Any, top: float) -> None:
    """Upwards from zero, with thousands marked."""
    axes.set(ylim=(0.0, top if top > 0.0 else 1.0))
    if top >= 10.0:
        axes.yaxis.set_major_formatter(_grouped())


def episodes(axes: Any, n: int) -> None:
    """An axis of episodes, 0 … n."""
    from matplotlib.ticker import MaxNLocator

    axes.set(xlabel="episode t (each agent)", xlim=(0, n))
    axes.xaxis.set_major_formatter(_grouped())
    axes.xaxis.set_major_locator(MaxNLocator(5))


def few_decades(axis: Any, ends: tuple[float, float]) -> None:
    """Few and plain numbers on a logarithmic axis that is short; powers of ten on a long one."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    decades = np.log10(ends[1] / ends[0])
    axis.set_minor_formatter(NullFormatter())
    if decades < 2.0:
        axis.set_major_locator(LogLocator(subs=(1.0, 3.0)) if decades > 1.0 else MaxNLocator(3))
        axis.set_major_formatter(_grouped())


def _grouped() -> Any:
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(
        lambda value, _: f"{value:,.0f}" if value == round(value) else f"{value:g}"
    )


def legend_above(axes: Any, columns: int = 2) -> None:
    """The legend between title and axes, where it hides nothing."""
    labels = axes.get_legend_handles_labels()[1]
    if not labels:
        return
    longest = sorted(map(len, labels), reverse=True)
    while columns > 1 and sum(longest[:columns]) > LETTERS:
        columns -= 1
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 0.99), ncols=columns, columnspacing=1.2,
                handlelength=2.2, borderaxespad=0.2)  # fmt: skip
    rows = -(-len(labels) // columns)
    axes.set_title(axes.get_title(loc="left"), pad=12.0 + 17.0 * rows)


def note(axes: Any, text: str) -> None:
    """A remark in the corner where curves seldom are."""
    axes.text(0.985, 0.03, text, transform=axes.transAxes, ha="right", va="bottom",
              fontsize=9.5, color=MUTED)  # fmt: skip
