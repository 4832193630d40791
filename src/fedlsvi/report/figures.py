"""Figures of one run, or of several seeds of it: regret, returns, rounds, scalars and the rest.

They read runs (records, curves, parameters) and know nothing of the algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.core import theory
from fedlsvi.errors import InvalidInput, UnknownName
from fedlsvi.report.colours import BLUE, DASHED, GREEN, MUTED, ORANGE, VERMILION
from fedlsvi.report.groups import Group
from fedlsvi.report.intervals import bootstrap, interval_name
from fedlsvi.report.plotting import (
    dot,
    draw_on,
    episodes,
    frame,
    legend_above,
    logarithmic,
    make_figure,
    note,
    thin,
)
from fedlsvi.run import Run

WINDOWS = 40
"""Returns are averaged over at most this many windows, because single rounds jump."""

UNKNOWN = "not known for this run"


def figure(
    what: str,
    run: Run | Sequence[Run],
    path: str | Path | None = None,
    marks: dict[str, float] | None = None,
    ax: Any = None,
) -> Any:
    """A Matplotlib figure of one run, or of several seeds together.

    Args:
        what: "regret", "returns", "rounds", "scalars", "lengths", "triggers", "logdet",
            "communication" (rounds and scalars) or, of logs, "coverage".
        run: One run, or runs that differ in their seed alone.
        path: Where to save it; the suffix says in which format.
        marks: Levels to show beside "returns", by name.
        ax: Matplotlib axes to draw on, in place of a new figure.

    Raises:
        UnknownName: There is no such figure.
        InvalidInput: The run has no data for it, or Matplotlib is missing.
    """
    if what not in (*DRAW, "communication"):
        raise UnknownName("figure", what, [*DRAW, "communication"])
    group = Group("", [run] if isinstance(run, Run) else list(run))
    if not group.runs:
        raise InvalidInput("there is no run to draw: give at least one", code="no-runs")
    panels = ["rounds", "scalars"] if what == "communication" else [what]
    draws = [partial(DRAW[name], group=group, marks=marks or {}) for name in panels]
    return make_figure(draws, path) if ax is None else draw_on(ax, draws, path)


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
    if run.algorithm != "pevi":
        missing.add("coverage")
    if run.ledger.total == 0:  # nothing was sent, so a logarithm has nothing to show
        missing.add("scalars")
    return [what for what in DRAW if what not in missing]


def compare_regret(together: Run, alone: Sequence[Run], path: str | Path | None = None) -> Any:
    """Regret of M agents together, and M times the mean regret of agents that learn alone.

    Args:
        together: A run of M agents.
        alone: Runs of single agents on the same problem; their mean stands for each of M.
        path: Where to save the figure.

    Raises:
        InvalidInput: Regret is not known.
    """
    p = together.parameters

    def draw(axes: Any) -> None:
        curves = [run.regret for run in alone if run.regret is not None]
        if together.regret is None or not curves:
            raise InvalidInput(
                "regret is not known for these runs, so they cannot be compared by regret",
                code="regret-unknown",
            )
        n = min(len(together.regret), *(len(curve) for curve in curves))
        at = thin(n)
        apart = p.n_agents * np.mean([curve[at] for curve in curves], axis=0)
        label = f"each alone ({p.n_agents} × mean of {len(curves)})"
        axes.plot(at + 1, apart, color=VERMILION, linewidth=2.2, linestyle=DASHED, label=label)
        who = f"{plural(p.n_agents, 'agent')} together, {plural(together.rounds, 'round')}"
        axes.plot(at + 1, together.regret[at], color=BLUE, linewidth=2.2, label=who)
        axes.set(ylabel="cumulative regret, all agents")
        axes.set_title("Learning together and learning alone")
        frame(axes, n, 1.08 * float(max(apart[-1], together.regret[at][-1])))

    return make_figure([draw], path)


def windows(n: int) -> np.ndarray:
    """Edges of at most WINDOWS equal windows of n episodes; the last may be shorter."""
    size = -(-n // WINDOWS)
    return np.append(np.arange(0, n, size), n)


def draw_median(
    axes: Any, t: np.ndarray, curves: np.ndarray, label: str | None = None, **look: Any
) -> tuple[np.ndarray, float]:
    """Draw the median of (runs, points) with its interval; returns it, and how high all reach."""
    n, look = len(curves), {"color": BLUE, **look}
    mid, low, high = bootstrap(curves)
    if n > 1:
        axes.fill_between(t, low, high, color=look["color"], alpha=0.2, linewidth=0)
    known = "measured" if n == 1 else f"median of {plural(n, 'run')}, {interval_name(n)}"
    axes.plot(t, mid, linewidth=2.2, label=label or known, marker=dot(t), **look)
    return mid, float(curves.max())


def _regret(axes: Any, group: Group, marks: dict[str, float]) -> None:
    run, n = group.first, group.played
    at = thin(n, log=True)
    curves = group.regret(at)
    if curves is None:
        raise InvalidInput(
            f"regret is {UNKNOWN}: it needs the environment's optimal value", code="regret-unknown"
        )
    t, (mid, top) = at + 1, draw_median(axes, at + 1, curves)
    # through the last point instead, every run that learns would lie above the line
    above = float(np.max(mid / np.sqrt(t))) * np.sqrt(t)
    root = r"smallest $c\,\sqrt{t}$ above" + (": the theorem's growth" if run.bounds else "")
    axes.plot(t, above, color=VERMILION, linestyle=DASHED, label=root)
    axes.set(ylabel="cumulative regret, all agents")
    axes.set_title("Regret")
    for name, title in (("theorem_1", "Theorem 1"), ("theorem_2", "Theorem 2")):
        if name in run.bounds and run.bounds[name].bound <= 1.6 * top:
            top = run.bounds[name].bound
            axes.axhline(top, color=MUTED, linestyle=":", label=f"{title} at the β in force")
    frame(axes, n, 1.08 * top, early=learns_early(t, mid))


def learns_early(t: np.ndarray, mid: np.ndarray) -> bool:
    """Whether half of the regret falls into the first twentieth of the episodes: on an even axis
    of time that is a vertical line."""
    first = t[-1] / 20.0
    return first >= 1.0 and float(np.interp(first, t, mid)) > 0.5 * float(mid[-1])


def _returns(axes: Any, group: Group, marks: dict[str, float]) -> None:
    edges = windows(group.played)
    curves = group.returns(edges)
    if curves is None:
        raise InvalidInput(f"returns are {UNKNOWN}", code="returns-unknown")
    draw_median(axes, (edges[1:] + edges[:-1]) / 2, curves)
    for (name, value), colour in zip(marks.items(), (GREEN, ORANGE, VERMILION), strict=False):
        axes.axhline(value, color=colour, linestyle=":", label=f"{name}: {value:.4g}")
    low, high = (f([f(curves), *marks.values()]) for f in (np.min, np.max))
    margin = 0.1 * (high - low) or 1.0  # returns that never change are a line in the middle
    axes.set_ylim(low - margin, high + margin)
    axes.set(ylabel=f"mean return, windows of {edges[1]:,.0f}")
    axes.set_title("Return")
    episodes(axes, group.played)
    legend_above(axes)


def _rounds(axes: Any, group: Group, marks: dict[str, float]) -> None:
    p, bounds = group.first.parameters, group.first.bounds
    last = max(run.played for run in group.runs)
    _steps(axes, group.runs, lambda run: np.cumsum([r.rounds for r in run.records]))
    if "budget" in bounds:
        name, most = bounds["budget"].claim.removeprefix("rounds K ≤ "), bounds["budget"].bound
        axes.axhline(most, color=ORANGE, linestyle="-.", label=f"{name}, {most:,.0f}")
    if "theorem_3" in bounds:
        t = np.unique(np.geomspace(1, last, 200).astype(np.int64))
        bound = [p.proven_rounds(int(n)) for n in t]
        axes.plot(t, bound, color=VERMILION, linestyle=DASHED, label="Theorem 3, or t")
        if p.trigger.is_fixed:
            floor = [theory.rounds_floor(int(n), p.gamma) for n in t]
            axes.plot(t, floor, color=GREEN, linestyle=":", label="fewest possible, ⌈t/⌈γ⌉⌉")
    axes.set(xlabel="episode t (each agent)", ylabel="rounds so far")
    axes.set_title("Rounds of communication")
    logarithmic("xy", axes)
    legend_above(axes)


def _scalars(axes: Any, group: Group, marks: dict[str, float]) -> None:
    run, p = group.first, group.first.parameters
    size = (p.dim, p.horizon, p.n_agents)
    last = max(run.played for run in group.runs)
    _steps(axes, group.runs, lambda run: [sum(r.scalars.values()) for r in run.records])
    t = np.unique(np.geomspace(1, last, 200).astype(np.int64))
    if "theorem_3" in run.bounds and np.isfinite(run.bounds["theorem_3"].bound):
        rounds = [int(p.most_rounds(int(n))) for n in t]
        most = [
            theory.scalars_total(
                *size, p.packing, k, p.n_agents * k, stationary=p.stationary, noisy=p.noisy
            )
            for k in rounds
        ]
        axes.plot(t, most, color=VERMILION, linestyle=DASHED, label="at the most rounds allowed")
    if per_episode := p.horizon * run.raw_scalars_per_step:
        raw, shared = per_episode * run.agent_episodes_until(t), "sharing every trajectory"
        axes.plot(t, raw, color=ORANGE, linestyle="-.", label=shared)
    axes.set(xlabel="episode t (each agent)", ylabel="scalars so far, all agents")
    axes.set_title("Communication")
    sent = float(np.median([one.ledger.total for one in group.runs]))
    if sent > 0.0 and run.scalars_raw is not None:
        ratio = run.scalars_raw / sent
        times = f"{ratio:,.1f} times fewer" if ratio >= 1.0 else f"{1.0 / ratio:,.1f} times more"
        note(axes, f"in the end {times} than sharing trajectories")
    elif sent == 0.0:
        note(axes, "nothing was sent")
    logarithmic("xy", axes)
    legend_above(axes)


def _lengths(axes: Any, group: Group, marks: dict[str, float]) -> None:
    p, bounds = group.first.parameters, group.first.bounds
    most = max(run.rounds for run in group.runs)
    alpha, size = (0.8 if len(group.runs) == 1 else 0.35), (14.0 if most < 500 else 4.0)
    top = 1.0
    for i, run in enumerate(group.runs):
        at = thin(len(run.records), log=True)
        k = np.array([record.k for record in run.records])[at]
        lengths = np.array([r.length / max(1, r.rounds) for r in run.records])[at]
        top = max(top, lengths.max())
        label = None if i else "measured"
        axes.scatter(k, lengths, s=size, color=BLUE, alpha=alpha, linewidths=0, label=label)
    if (
        "theorem_3" in bounds and p.trigger.is_fixed and p.gamma <= p.episodes
    ):  # else no round can come near it
        cap = np.ceil(p.gamma)
        top = max(top, cap)
        # episodes beyond the signal that were kept may carry a round past it
        what = "longest possible" if p.overshoot == "cut" else "no signal later than"
        label = f"{what}, ⌈γ⌉ = {cap:,.0f}"
        axes.axhline(cap, color=VERMILION, linestyle=DASHED, label=label)
    axes.set(xlabel="round k", ylabel="episodes in the round, Δt")
    axes.set(xlim=(0, most + 1), ylim=(0.8, top * 1.6))
    if most > 300:  # the short rounds are the first ones
        axes.set(xscale="log", xlim=(0.8, most * 1.2))
        logarithmic("x", axes)
    axes.set_title("Length of the rounds")
    logarithmic("y", axes)
    legend_above(axes)


def _triggers(axes: Any, group: Group, marks: dict[str, float]) -> None:
    from matplotlib import colormaps
    from matplotlib.ticker import MaxNLocator

    run, p = group.first, group.first.parameters
    fired = [(r.last, a, h) for r in run.records for a, h in r.triggers if h]
    if not fired:
        raise InvalidInput(
            "no agent of this run triggered a round, so there is nothing to draw",
            code="no-triggers",
        )
    t, agent, step = np.array(fired)[thin(len(fired), log=True)].T
    shades = colormaps["viridis"](np.linspace(0.0, 0.85, max(2, p.n_agents)))
    shift = (agent - (p.n_agents - 1) / 2) * 0.6 / p.n_agents  # agents of one step side by side
    axes.scatter(t, step + shift, s=14.0, color=shades[agent], linewidths=0)
    for a in {0, p.n_agents - 1} if p.n_agents > 6 else range(p.n_agents):
        axes.scatter([], [], s=14.0, color=shades[a], linewidths=0, label=f"agent {a}")
    axes.set(xlabel="episode t (each agent)", ylabel="step h that fired")
    axes.set(ylim=(0.4, p.horizon + 0.6), xlim=(0.8, run.played * 1.3))
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_title(_of_one("Who fired, at which step", group))
    logarithmic("x", axes)
    legend_above(axes, columns=4)


def _logdet(axes: Any, group: Group, marks: dict[str, float]) -> None:
    from matplotlib import colormaps

    run, p = group.first, group.first.parameters
    at = thin(len(run.records), log=True)
    t = np.array([record.last for record in run.records])[at]
    start = p.dim * np.log(p.lam)
    grown = np.array([record.logdet for record in run.records])[at] - start
    shades = colormaps["viridis"](np.linspace(0.0, 0.85, p.horizon))
    named = {1, p.horizon} if p.horizon > 6 else set(range(1, p.horizon + 1))
    for h in range(1, p.horizon + 1):
        label = f"h = {h}" if h in named else None
        axes.plot(t, grown[:, h - 1], color=shades[h - 1], label=label, marker=dot(t))
    most = p.dim * np.log1p(p.n_agents * t / (p.lam * p.dim))
    axes.plot(t, most, color=VERMILION, linestyle=DASHED, label="largest possible")
    axes.set(xlabel="episode t (each agent)", ylim=(0.0, None))
    axes.set_ylabel(r"log det $\Lambda_h$ − log det $\lambda I$")
    axes.set_title(_of_one("Information gathered at each step", group))
    logarithmic("x", axes)
    legend_above(axes, columns=3)


def _coverage(axes: Any, group: Group, marks: dict[str, float]) -> None:
    from matplotlib import colormaps

    run, p = group.first, group.first.parameters
    seen = run.coverage
    shades = colormaps["viridis"](np.linspace(0.0, 0.85, p.horizon))
    named = {1, p.horizon} if p.horizon > 6 else set(range(1, p.horizon + 1))
    at = thin(p.dim)
    floor = 0.1  # an eigenvalue of 0 has to be somewhere on the axis
    for h in range(1, p.horizon + 1):
        label = f"h = {h}" if h in named else None
        most_first = np.maximum(seen.eigenvalues[h - 1, ::-1], floor)
        axes.plot((at + 1) / p.dim, most_first[at], color=shades[h - 1], label=label)
    axes.axhline(1.0, color=VERMILION, linestyle=DASHED, label="one visit")
    axes.set(xlabel="share of all directions", xlim=(0.0, 1.0), ylim=(floor, None))
    axes.set_ylabel(r"eigenvalue of $\Sigma\phi\phi^\top$")
    axes.set_title(_of_one("Directions of feature space that the logs have seen", group))
    logarithmic("y", axes)
    legend_above(axes, columns=4)


DRAW: dict[str, Callable[..., None]] = {
    "regret": _regret,
    "returns": _returns,
    "rounds": _rounds,
    "scalars": _scalars,
    "lengths": _lengths,
    "triggers": _triggers,
    "logdet": _logdet,
    "coverage": _coverage,
}


def _steps(
    axes: Any, runs: Sequence[Run], value: Callable[[Run], Sequence[float] | np.ndarray]
) -> None:
    """A count of each run against the episodes at which it changes."""
    for i, run in enumerate(runs):
        at = thin(len(run.records), log=True)
        t = np.array([record.last for record in run.records])[at]
        label = "measured" if len(runs) == 1 else f"measured, {plural(len(runs), 'run')}"
        axes.plot(t, np.asarray(value(run))[at], color=BLUE, drawstyle="steps-post",
                  linewidth=2.2, alpha=1.0 if len(runs) == 1 else 0.5, marker=dot(t),
                  label=None if i else label)  # fmt: skip


def _of_one(title: str, group: Group) -> str:
    """The title of a figure that shows the first run only."""
    return title if len(group.runs) == 1 else f"{title} (seed {group.first.seed})"
