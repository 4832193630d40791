"""Figures of runs: regret, rounds, scalars, round lengths, log-determinants.

They read runs (records, curves, parameters) and know nothing of the algorithm. Matplotlib is used
through its objects alone, so that no global state is touched and no display is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.errors import InvalidInput, UnknownName
from fedlsvi.report.panels import BLUE, DRAW, STYLE, VERMILION, frame, thin
from fedlsvi.run import Run


def figure(what: str, run: Run | Sequence[Run], path: str | Path | None = None) -> Any:
    """A Matplotlib figure of one run, or of several drawn together; saved where a path is given.

    what: "regret", "rounds", "scalars", "lengths", "logdet" or "communication" (rounds, scalars)
    """
    if what not in (*DRAW, "communication"):
        raise UnknownName("figure", what, [*DRAW, "communication"])
    runs = [run] if isinstance(run, Run) else list(run)
    panels = ["rounds", "scalars"] if what == "communication" else [what]
    return _made([lambda axes, p=p: DRAW[p](axes, runs) for p in panels], path)  # type: ignore[misc]


def _made(panels: Sequence[Callable[[Any], None]], path: str | Path | None) -> Any:
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
        made = Figure(figsize=(5.8, 3.9 * len(panels)), layout="constrained")
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
            linestyle=(0, (5, 3)),
            label=f"{p.n_agents} agents, each alone ({p.n_agents} × mean of {len(curves)})",
        )
        axes.plot(at + 1, together.regret[at], color=BLUE, linewidth=2.2,
                  label=f"{p.n_agents} agents together: {together.rounds} rounds")  # fmt: skip
        axes.set(xlabel="episode t (each agent)", ylabel="cumulative regret, all agents")
        axes.set_title("Learning together and learning alone")
        frame(axes, n, float(max(apart[-1], together.regret[at][-1])))

    return _made([draw], path)


def available(run: Run) -> list[str]:
    """The figures that this run has data for."""
    missing = set()
    if run.regret is None:
        missing.add("regret")
    if any(len(record.logdet) != run.parameters.horizon for record in run.records):
        missing.add("logdet")
    if run.ledger.total == 0:  # nothing was sent, so that a logarithm has nothing to show
        missing |= {"scalars"}
    return [what for what in DRAW if what not in missing]
