"""What each figure shows: functions that draw runs onto Matplotlib axes, and the house style."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedlsvi.core import theory
from fedlsvi.errors import InvalidInput
from fedlsvi.run import Run

INK, MUTED, GRID = "#222222", "#666666", "#e3e3e3"
BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
"""Okabe and Ito's palette, which colour-blind readers can tell apart."""

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


def _regret(axes: Any, runs: Sequence[Run]) -> None:
    curves = [run.regret for run in runs if run.regret is not None]
    if not curves:
        raise InvalidInput("regret is not known for this run: its environment does not know V*")
    n = min(len(curve) for curve in curves)
    at = thin(n)
    t = at + 1
    many = len(curves) > 1
    if many:
        for curve in curves:
            axes.plot(t, curve[at], color=BLUE, alpha=0.25, linewidth=1.0)
    mean = np.mean([curve[at] for curve in curves], axis=0)
    end = float(mean[-1])
    name = f"mean of {len(curves)} runs" if many else "measured"
    axes.plot(t, mean, color=BLUE, linewidth=2.2, label=name)
    axes.plot(
        t, end * np.sqrt(t / n), color=VERMILION, linestyle=(0, (5, 3)),
        label=r"$c\,\sqrt{t}$, the theorem's growth, through the last point",
    )  # fmt: skip
    axes.set(xlabel="episode t (each agent)", ylabel="cumulative regret, all agents")
    axes.set_title("Regret")
    top = max(float(curve[:n].max()) for curve in curves)
    for name, title in (("theorem_1", "Theorem 1"), ("theorem_2", "Theorem 2")):
        if name not in runs[0].bounds:
            continue
        bound = runs[0].bounds[name].bound
        if bound <= 1.6 * top:
            axes.axhline(bound, color=MUTED, linestyle=":", label=f"{title} at the β in force")
            top = bound
        else:
            _note(axes, f"{title} at the β in force: at most {bound:,.0f}")
    frame(axes, n, top)


def _rounds(axes: Any, runs: Sequence[Run]) -> None:
    p = runs[0].parameters
    last = max(run.played for run in runs)
    _steps(axes, runs, lambda run: np.cumsum([r.rounds for r in run.records]), "measured")
    if "theorem_3" in runs[0].bounds:
        size = (p.dim, p.horizon, p.n_agents)
        t = np.unique(np.geomspace(1, last, 200).astype(np.int64))
        bound = [theory.rounds_bound(*size, int(n), p.gamma, p.lam) for n in t]
        axes.plot(t, bound, color=VERMILION, linestyle=(0, (5, 3)), label="Theorem 3")
        floor = [theory.rounds_floor(int(n), p.gamma) for n in t]
        axes.plot(t, floor, color=GREEN, linestyle=":", label="fewest possible, ⌈t/⌈γ⌉⌉")
    axes.set(xlabel="episode t (each agent)", ylabel="rounds so far", xscale="log", yscale="log")
    axes.set_title("Rounds of communication")
    _legend_above(axes)


def _scalars(axes: Any, runs: Sequence[Run]) -> None:
    p = runs[0].parameters
    size = (p.dim, p.horizon, p.n_agents)
    last = max(run.played for run in runs)
    _steps(axes, runs, lambda run: [sum(r.scalars.values()) for r in run.records], "measured")
    t = np.unique(np.geomspace(1, last, 200).astype(np.int64))
    if "theorem_3" in runs[0].bounds:
        rounds = [int(theory.rounds_bound(*size, int(n), p.gamma, p.lam)) for n in t]
        most = [theory.scalars_total(*size, p.packing, k, p.n_agents * k) for k in rounds]
        axes.plot(t, most, color=VERMILION, linestyle=(0, (5, 3)), label="at Theorem 3's rounds")
    per_episode = p.n_agents * p.horizon * runs[0].raw_scalars_per_step
    axes.plot(t, per_episode * t, color=ORANGE, linestyle="-.", label="sharing every trajectory")
    axes.set(xlabel="episode t (each agent)", ylabel="scalars so far, all agents")
    axes.set(xscale="log", yscale="log")
    axes.set_title("Communication")
    ratio = runs[0].scalars_raw / runs[0].ledger.total
    times = f"{ratio:.1f} times fewer" if ratio >= 1.0 else f"{1.0 / ratio:.1f} times more"
    _note(axes, f"at the end {times} than sharing trajectories")
    _legend_above(axes)


def _lengths(axes: Any, runs: Sequence[Run]) -> None:
    p = runs[0].parameters
    most = max(run.rounds for run in runs)
    size = 14.0 if most < 500 else 4.0
    top = 1.0
    for i, run in enumerate(runs):
        at = thin(len(run.records), log=True)
        k = np.array([record.k for record in run.records])[at]
        lengths = np.array([record.length / record.rounds for record in run.records])[at]
        top = max(top, lengths.max())
        label = None if i else "measured"
        axes.scatter(k, lengths, s=size, color=BLUE, alpha=0.8 if len(runs) == 1 else 0.35,
                     linewidths=0, label=label)  # fmt: skip
    if "theorem_3" in runs[0].bounds:
        cap = np.ceil(p.gamma)
        top = max(top, cap)
        # episodes beyond the signal that were kept may carry a round past it
        what = "longest possible" if p.overshoot == "cut" else "no signal later than"
        label = f"{what}, ⌈γ⌉ = {cap:,.0f}"
        axes.axhline(cap, color=VERMILION, linestyle=(0, (5, 3)), label=label)
    axes.set(xlabel="round k", ylabel="episodes in the round, Δt", yscale="log")
    axes.set(xlim=(0, most + 1), ylim=(0.8, top * 1.6))
    if most > 300:  # the short rounds are the first ones
        axes.set(xscale="log", xlim=(0.8, most * 1.2))
    axes.set_title("Length of the rounds")
    _legend_above(axes)


def _logdet(axes: Any, runs: Sequence[Run]) -> None:
    from matplotlib import colormaps

    run = runs[0]
    p = run.parameters
    at = thin(len(run.records), log=True)
    t = np.array([record.last for record in run.records])[at]
    start = p.dim * np.log(p.lam)
    grown = np.array([record.logdet for record in run.records])[at] - start
    shades = colormaps["viridis"](np.linspace(0.0, 0.85, p.horizon))
    named = {1, p.horizon} if p.horizon > 6 else set(range(1, p.horizon + 1))
    for h in range(1, p.horizon + 1):
        label = f"h = {h}" if h in named else None
        axes.plot(t, grown[:, h - 1], color=shades[h - 1], label=label)
    most = p.dim * np.log1p(p.n_agents * t / (p.lam * p.dim))
    axes.plot(t, most, color=VERMILION, linestyle=(0, (5, 3)), label="largest possible")
    axes.set(xlabel="episode t (each agent)", xscale="log", ylim=(0.0, None))
    axes.set_ylabel(r"log det $\Lambda_h$ − log det $\lambda I$")
    title = "Information gathered at each step"
    axes.set_title(title if len(runs) == 1 else f"{title} (seed {run.seed})")
    _legend_above(axes, columns=4)


DRAW: dict[str, Callable[[Any, Sequence[Run]], None]] = {
    "regret": _regret,
    "rounds": _rounds,
    "scalars": _scalars,
    "lengths": _lengths,
    "logdet": _logdet,
}


def _steps(
    axes: Any, runs: Sequence[Run], value: Callable[[Run], Sequence[float] | np.ndarray], name: str
) -> None:
    """A count against the episodes at which it changes."""
    for i, run in enumerate(runs):
        at = thin(len(run.records), log=True)
        t = np.array([record.last for record in run.records])[at]
        shade = 1.0 if len(runs) == 1 else 0.5
        axes.plot(t, np.asarray(value(run))[at], color=BLUE, linewidth=2.2, alpha=shade,
                  drawstyle="steps-post", label=None if i else name)  # fmt: skip


def frame(axes: Any, n: int, top: float) -> None:
    """Axes from zero with thousands marked, and the legend where it hides nothing."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    grouped = FuncFormatter(lambda value, _: f"{value:,.0f}")
    axes.set(xlim=(0, n), ylim=(0.0, 1.28 * top if top > 0.0 else 1.0))
    axes.xaxis.set_major_formatter(grouped)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    if top >= 10.0:
        axes.yaxis.set_major_formatter(grouped)
    axes.legend(loc="upper left")


def _legend_above(axes: Any, columns: int = 2) -> None:
    """The legend between title and axes, where it hides nothing."""
    entries = len(axes.get_legend_handles_labels()[0])
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 0.99), ncols=columns, columnspacing=1.2,
                handlelength=2.2, borderaxespad=0.2)  # fmt: skip
    axes.set_title(axes.get_title(loc="left"), pad=12.0 + 17.0 * -(-entries // columns))


def _note(axes: Any, text: str) -> None:
    axes.text(0.985, 0.03, text, transform=axes.transAxes, ha="right", va="bottom",
              fontsize=9.5, color=MUTED)  # fmt: skip
