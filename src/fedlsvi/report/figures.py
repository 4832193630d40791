"""Figures of runs: regret or returns, rounds, scalars, round lengths, triggers, log-determinants.

They read runs (records, curves, parameters) and know nothing of the algorithm. Matplotlib is used
through its objects alone, so that no global state is touched and no display is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.errors import InvalidInput, UnknownName
from fedlsvi.report.contrast import CONTRAST
from fedlsvi.report.groups import Group
from fedlsvi.report.panels import DRAW
from fedlsvi.report.style import BLUE, DASHED, STYLE, VERMILION, frame, thin
from fedlsvi.run import Run


def figure(
    what: str,
    run: Run | Sequence[Run],
    path: str | Path | None = None,
    marks: dict[str, float] | None = None,
) -> Any:
    """A Matplotlib figure of one run, or of several seeds together; saved where a path is given.

    what: "regret", "returns", "rounds", "scalars", "lengths", "triggers", "logdet" or
    "communication" (rounds, scalars). marks: levels to hold "returns" against, by name.
    """
    if what not in (*DRAW, "communication"):
        raise UnknownName("figure", what, [*DRAW, "communication"])
    group = Group("", [run] if isinstance(run, Run) else list(run))
    if not group.runs:
        raise InvalidInput("there is no run to draw: give at least one")
    panels = ["rounds", "scalars"] if what == "communication" else [what]

    def drawn(panel: str) -> Callable[[Any], None]:
        return lambda axes: DRAW[panel](axes, group, marks or {})

    return _made([drawn(panel) for panel in panels], path)


def contrast(what: str, groups: Sequence[Group]) -> Any:
    """A figure that sets groups of runs against each other."""
    more = 0.25 * max(0, len(groups) - 3)  # for the lines of the legend
    return _made([lambda axes: CONTRAST[what](axes, groups)], None, 3.8 + more)


def _made(
    panels: Sequence[Callable[[Any], None]], path: str | Path | None, height: float = 3.8
) -> Any:
    """A figure with one panel below the other, in the house style."""
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidInput(
            "plots need Matplotlib, which is not installed: pip install 'fedlsvi[plot]'"
        ) from None
    # the same run gives the same file: no date inside, names in SVG from a fixed salt
    with rc_context(STYLE):
        made = Figure(figsize=(5.2, height * len(panels)), layout="constrained")
        FigureCanvasAgg(made)
        for axes, draw in zip(made.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
            draw(axes)
        if path is not None:
            save(made, path)
    return made


def save(made: Any, *paths: str | Path) -> None:
    """Write a figure to files, each in the format of its suffix."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        for path in paths:
            stamp = {"Date": None} if Path(path).suffix == ".svg" else None
            made.savefig(path, dpi=200, metadata=stamp)
            made.set_layout_engine("none")  # placed once is placed for every format


def compare_regret(together: Run, alone: Sequence[Run], path: str | Path | None = None) -> Any:
    """Regret of M agents together beside M times the mean regret of agents that learn alone."""
    p = together.parameters

    def draw(axes: Any) -> None:
        curves = [run.regret for run in alone if run.regret is not None]
        if together.regret is None or not curves:
            raise InvalidInput("regret is not known for these runs: nothing to compare")
        n = min(len(together.regret), *(len(curve) for curve in curves))
        at = thin(n)
        apart = p.n_agents * np.mean([curve[at] for curve in curves], axis=0)
        axes.plot(
            at + 1,
            apart,
            color=VERMILION,
            linewidth=2.2,
            linestyle=DASHED,
            label=f"each alone ({p.n_agents} × mean of {len(curves)})",
        )
        who = f"{plural(p.n_agents, 'agent')} together, {plural(together.rounds, 'round')}"
        axes.plot(at + 1, together.regret[at], color=BLUE, linewidth=2.2, label=who)
        axes.set(ylabel="cumulative regret, all agents")
        axes.set_title("Learning together and learning alone")
        frame(axes, n, 1.08 * float(max(apart[-1], together.regret[at][-1])))

    return _made([draw], path)


def available(run: Run) -> list[str]:
    """The figures that this run has data for."""
    missing = set()
    if run.regret is None:
        missing.add("regret")
    if run.mean_returns is None:
        missing.add("returns")
    if not any(step for record in run.records for _, step in record.triggers):
        missing.add("triggers")
    if any(len(record.logdet) != run.parameters.horizon for record in run.records):
        missing.add("logdet")
    if run.ledger.total == 0:  # nothing was sent, so that a logarithm has nothing to show
        missing.add("scalars")
    return [what for what in DRAW if what not in missing]
