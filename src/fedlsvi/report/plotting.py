"""The plot stack: one style, axes that can be read, figures made of panels.

Matplotlib is imported when a figure is made and used through its objects alone: no global state is
touched and no display is needed.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedlsvi.errors import InvalidInput
from fedlsvi.report.colours import COLOURS, DASHED, DASHES, GRID, INK, MARKERS, MUTED, look
from fedlsvi.storage import files

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

Draw = Callable[[Any], None]
"""Draws onto Matplotlib axes."""


def check_matplotlib() -> None:
    """Refuse where no figure can be drawn, before anything is played for one."""
    try:
        import_module("matplotlib")
    except ImportError:
        raise InvalidInput(
            "figures need Matplotlib, which is not installed: pip install 'fedlsvi[plot]'",
            code="matplotlib-missing",
        ) from None


def make_figure(
    draws: Sequence[Draw],
    path: str | Path | None = None,
    *,
    size: tuple[float, float] = (5.2, 3.8),
    across: bool = False,
    legend_below: bool = False,
    columns: int = 1,
) -> Any:
    """A Matplotlib figure with one panel for each function.

    Args:
        draws: What each panel shows.
        path: Where to save it, if anywhere.
        size: Inches of one panel.
        across: Panels stand side by side, and not below each other.
        legend_below: One legend for all panels, below them.
        columns: How many panels stand in a row, where not all of them do.
    """
    check_matplotlib()
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = len(draws) if across else columns
    rows = -(-len(draws) // columns)
    with rc_context(STYLE):
        made = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        FigureCanvasAgg(made)
        panels = made.subplots(rows, columns, squeeze=False).ravel()
        for axes in panels[len(draws) :]:
            axes.remove()
        panels = panels[: len(draws)]
        for axes, draw in zip(panels, draws, strict=True):
            draw(axes)
        if legend_below:
            entries = {label: handle for axes in panels for handle, label in
                       zip(*axes.get_legend_handles_labels(), strict=True)}  # fmt: skip
            made.legend(entries.values(), entries, loc="outside lower center",
                        ncols=min(5, 2 * len(draws)))  # fmt: skip
        if path is not None:
            save(made, path)
    # shown in a notebook even where pyplot was never imported
    made._repr_png_ = partial(_png, made)  # type: ignore[attr-defined]
    return made


def draw_on(ax: Any, draws: Sequence[Draw], path: str | Path | None = None) -> Any:
    """Draw on axes that somebody else made, one panel; returns their figure."""
    if len(draws) != 1:
        raise InvalidInput(
            f"this figure has {len(draws)} panels, but ax= takes one: draw them one by one",
            code="several-panels",
        )
    if not hasattr(ax, "plot"):
        raise InvalidInput(
            f"ax is of type {type(ax).__name__}: give Matplotlib axes, as from plt.subplots()",
            code="bad-ax",
        )
    from matplotlib import rc_context

    with rc_context(STYLE):
        draws[0](ax)
        if path is not None:
            save(ax.figure, path)
    return ax.figure


def save(made: Any, *paths: str | Path) -> None:
    """Write a figure to files, each in the format of its suffix; the same figure, the same file."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        for path in paths:
            stamp = {"Date": None} if Path(path).suffix == ".svg" else None
            made.savefig(path, dpi=150, metadata=stamp)
            made.set_layout_engine("none")  # placed once is placed for every format


def as_svg(made: Any) -> bytes:
    """What `save` would write to a .svg file."""
    from matplotlib import rc_context

    data = io.BytesIO()
    with rc_context(STYLE):
        made.savefig(data, format="svg", dpi=150, metadata={"Date": None})
    return data.getvalue()


def _png(made: Any) -> bytes:
    data = io.BytesIO()
    made.savefig(data, format="png", dpi=100)
    return data.getvalue()


@dataclass(frozen=True)
class Curve:
    """y against x, with an interval where there is one; a single point has error bars.

    Attributes:
        colour: A number in the palette; −1 is grey.
    """

    label: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    colour: int | None = None
    marks: bool = True
    dashed: bool = False

    def draw(self, axes: Any, i: int) -> None:
        """Draw it as the i-th curve of a panel."""
        number = i if self.colour is None else self.colour
        at = max(number, 0)
        colour = "#999999" if number < 0 else COLOURS[at % len(COLOURS)]
        dash = DASHED if self.dashed else DASHES[at // len(COLOURS) % len(DASHES)]
        mark = MARKERS[at % len(MARKERS)] if self.marks else ""
        x, y = np.asarray(self.x, np.float64), np.asarray(self.y, np.float64)
        axes.plot(x, y, color=colour, linestyle=dash, marker=mark, markersize=5,
                  label=self.label or None)  # fmt: skip
        if self.low is None or self.high is None or not np.all(np.isfinite(self.low)):
            return
        if len(x) == 1:
            axes.vlines(x, self.low, self.high, color=colour, linewidth=1.2)
        else:
            axes.fill_between(x, self.low, self.high, color=colour, alpha=0.16, linewidth=0)


@dataclass(frozen=True)
class Panel:
    """One set of axes, described as data.

    Attributes:
        lines: Vertical lines by their label.
        legend: Whether the panel has a legend of its own.
    """

    title: str
    xlabel: str
    ylabel: str
    curves: list[Curve]
    logx: bool = True
    logy: bool = True
    lines: dict[str, float] = field(default_factory=dict)
    legend: bool = True

    @property
    def labels(self) -> set[str]:
        """The entries of its legend."""
        return {curve.label for curve in self.curves if curve.label} | set(self.lines)

    def draw(self, axes: Any) -> None:
        """Draw it."""
        for i, curve in enumerate(self.curves):
            curve.draw(axes, i)
        for label, at in self.lines.items():
            axes.axvline(at, color=MUTED, linestyle=":", linewidth=1.4, label=label)
        axes.set_title(self.title)
        axes.set(xlabel=self.xlabel, ylabel=self.ylabel)
        low, high = axes.dataLim.y0, axes.dataLim.y1  # bands too; inf, -inf where nothing is drawn
        positive = any(np.any(np.asarray(curve.y) > 0.0) for curve in self.curves)
        logarithmic("x" * self.logx + "y" * (self.logy and positive), axes)
        if not (self.logy and positive) and low >= 0.0:
            axes.set_ylim(0.0, high * 1.05 if high > 0.0 else None)
        if not self.logx and self.xlabel.startswith("episode"):
            grouped_thousands(axes.xaxis)
        if self.legend:
            legend_above(axes)


def paint(panels: Sequence[Panel], *paths: Path) -> None:
    """Write panels side by side to files; one legend serves all where their curves are the same."""
    shared = len(panels) > 1 and max(len(panel.labels) for panel in panels) == len(
        set.union(*(panel.labels for panel in panels))
    )
    drawn = [replace(panel, legend=not shared).draw for panel in panels]
    made = make_figure(drawn, size=(5.6, 4.6), across=True, legend_below=shared)
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
    save(made, *(files.inside(path.parent, path.name) for path in paths))


def thin(n: int, log: bool = False) -> np.ndarray:
    """At most POINTS of the indices 0 … n−1, first and last included."""
    if n <= POINTS:
        return np.arange(n)
    even = np.linspace(0, n - 1, POINTS if not log else POINTS // 2)
    if log:
        even = np.append(even, np.geomspace(1, n, POINTS // 2) - 1)
    return np.unique(even.round().astype(np.int64))


def dot(points: np.ndarray) -> str | None:
    """The marker of a curve: a single point has no line to be seen by."""
    return "o" if len(points) == 1 else None


def frame(axes: Any, n: int, top: float, early: bool = False) -> None:
    """Axes from zero with thousands marked, and the legend where it hides nothing; `early` makes
    the axis of episodes logarithmic."""
    from_zero(axes, top)
    if early:
        axes.set(xlabel="episode t (each agent)", xlim=(1, n))
        logarithmic("x", axes)
    else:
        episodes(axes, n)
    legend_above(axes)


def from_zero(axes: Any, top: float) -> None:
    """Upwards from zero, with thousands marked."""
    axes.set(ylim=(0.0, top if top > 0.0 else 1.0))
    if top >= 10.0:
        grouped_thousands(axes.yaxis)


def episodes(axes: Any, n: int) -> None:
    """An axis of episodes, 0 … n."""
    from matplotlib.ticker import MaxNLocator

    axes.set(xlabel="episode t (each agent)", xlim=(0, n))
    grouped_thousands(axes.xaxis)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def logarithmic(which: str, axes: Any) -> None:
    """Make axes ("x", "y" or "xy") logarithmic, with plain numbers unless many decades are shown.

    Call it last: ticks are chosen for the limits in force.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    for name in which:
        axes.set(**{f"{name}scale": "log"})
        axis, ends = getattr(axes, f"{name}axis"), getattr(axes, f"get_{name}lim")()
        decades = abs(np.log10(ends[1] / ends[0]))
        axis.set_minor_formatter(NullFormatter())
        if decades > 3.5:
            continue
        few = (1.0,) if decades > 2.0 else (1.0, 3.0) if decades > 1.3 else (1.0, 2.0, 5.0)
        plain = MaxNLocator(3, integer=ends[0] >= 0.5)  # most of these axes count something
        axis.set_major_locator(LogLocator(subs=few) if decades > 0.7 else plain)
        grouped_thousands(axis)


def grouped_thousands(axis: Any) -> None:
    """1,000 and 0.5 as tick labels."""
    axis.set_major_formatter(_tick)


def _tick(value: float, _position: int) -> str:
    return f"{value:,.0f}" if value >= 1000.0 or value == round(value) else f"{value:.3g}"


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


def close_around(axes: Any, values: Sequence[np.ndarray]) -> None:
    """Let the vertical axis hold these values, and little else."""
    low, high = (f([f(some) for some in values]) for f in (np.min, np.max))
    margin = 0.1 * (high - low) or 1.0
    axes.set(ylim=(low - margin, high + margin))


class Dots(NamedTuple):
    """Runs of one group in a figure of what they sent."""

    label: str
    number: int  # in the palette
    scalars: np.ndarray  # (runs,)
    values: np.ndarray  # (runs,)


def against_scalars(axes: Any, groups: Sequence[Dots], until: str = "") -> None:
    """A dot for each run at what all its agents sent. Those that sent nothing have no place on a
    logarithmic axis: they are crosses in a strip of their own, left of it.

    Args:
        axes: To draw on.
        groups: What to draw.
        until: Added to the name of the axis.
    """
    sent = np.concatenate([group.scalars for group in groups])
    low, high = (1.0, 1.0) if not sent.any() else (sent[sent > 0].min(), sent.max())
    margin = (4.0 * high / low) ** 0.12
    begin, end = low / margin, high * margin
    strip = begin / (end / begin) ** 0.07
    for label, number, scalars, values in groups:
        marks = (MARKERS[number // len(COLOURS) % len(DASHES)], scalars > 0), ("X", scalars == 0)
        name: str | None = label
        for mark, some in marks:
            if some.any():
                axes.scatter(np.where(scalars > 0, scalars, strip)[some], values[some], s=44.0,
                             marker=mark, color=look(number)["color"], alpha=0.8, linewidths=0,
                             label=name)  # fmt: skip
                name = None  # one entry in the legend is enough
    axes.set(xlabel=f"scalars sent, all agents{until}", xscale="log", xlim=(begin, end))
    logarithmic("x", axes)
    if not sent.all():
        _strip(axes, strip, begin, end if sent.any() else begin)


def _strip(axes: Any, at: float, begin: float, end: float) -> None:
    """Make room for "nothing" left of a logarithmic axis whose ticks are between begin and end."""
    from matplotlib.ticker import FixedLocator, NullLocator

    axis, numbers = axes.xaxis, axes.xaxis.get_major_formatter()
    first = begin * (begin / at)  # its number would stand in the strip's
    ticks = [tick for tick in axis.get_majorticklocs() if first <= tick <= end]
    axis.set_minor_locator(NullLocator())
    axis.set_major_locator(FixedLocator([at, *ticks]))
    axis.set_major_formatter(lambda x, k: "nothing" if np.isclose(x, at) else numbers(x, k))
    axes.axvspan(at * at / begin, begin, color=GRID, alpha=0.5, linewidth=0, zorder=0)
    axes.set_xlim(at * at / begin, max(end, first))
