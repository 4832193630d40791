"""Figures that set groups of runs against each other: one colour each, bands over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.report.groups import Group, alike, common, shares
from fedlsvi.report.panels import spread, windows
from fedlsvi.report.style import (
    COLOURS,
    DASHED,
    MUTED,
    episodes,
    few_decades,
    frame,
    from_zero,
    legend_above,
    thin,
)


def _regret(axes: Any, groups: Sequence[Group]) -> None:
    n, top = max(group.played for group in groups), 0.0
    sizes, name = shares(groups)
    for group, size, look in zip(groups, sizes, _looks(groups), strict=True):
        at = thin(group.played)
        curves = group.regret(at)
        assert curves is not None
        top = max(top, spread(axes, at + 1, curves / size, group.label, **look)[1])
    axes.set(ylabel=name)
    axes.set_title("Regret")
    frame(axes, n, 1.08 * top)


def _returns(axes: Any, groups: Sequence[Group]) -> None:
    for group, look in zip(groups, _looks(groups), strict=True):
        edges = windows(group.played)
        curves = group.returns(edges)
        assert curves is not None
        spread(axes, (edges[1:] + edges[:-1]) / 2, curves, group.label, **look)
    axes.set(ylabel="mean return of the episodes")
    axes.set_title("Return")
    episodes(axes, max(group.played for group in groups))
    legend_above(axes)


def _price(axes: Any, groups: Sequence[Group]) -> None:
    """Regret at the end, or after as many episodes as all have, against what was sent for it."""
    sizes, ylabel = shares(groups)
    lost = []
    for group, size in zip(groups, sizes, strict=True):
        curves = group.regret(np.array([common(groups) - 1]))
        assert curves is not None
        lost.append(curves[:, 0] / size)
    _against_scalars(axes, groups, lost)
    from_zero(axes, 1.08 * max(float(values.max()) for values in lost))
    axes.set(ylabel=ylabel)
    axes.set_title("Regret and its price")
    legend_above(axes)


def _worth(axes: Any, groups: Sequence[Group]) -> None:
    """What the last episodes earned, where regret is not known, against what was sent for it."""
    earned = [np.array(group.late_returns(common(groups))) for group in groups]
    _against_scalars(axes, groups, earned)
    low, high = (f([f(values) for values in earned]) for f in (np.min, np.max))
    margin = 0.1 * (high - low) or 1.0
    axes.set(ylabel="mean return, last tenth", ylim=(low - margin, high + margin))
    axes.set_title("Return and its price")
    legend_above(axes)


def _against_scalars(axes: Any, groups: Sequence[Group], values: Sequence[np.ndarray]) -> None:
    """A dot for each run at what was sent by all its agents; a cross where nothing was."""
    t = common(groups)
    sent = [np.array(group.counted("scalars", t)) for group in groups]
    least = min((value for total in sent for value in total if value > 0), default=1.0)
    for group, found, total, look in zip(groups, values, sent, _looks(groups), strict=True):
        name: str | None = group.label
        for mark, some in (("o", total > 0), ("X", total == 0)):
            if some.any():
                axes.scatter(np.where(total > 0, total, least / 3)[some], found[some], s=44.0,
                             marker=mark, color=look["color"], alpha=0.8, linewidths=0,
                             label=name)  # fmt: skip
                name = None  # one entry in the legend is enough
    end = "" if alike(groups) else f", first {plural(t, 'episode')}"
    axes.set(xlabel=f"scalars sent, all agents{end}", xscale="log")
    axes.margins(x=0.12)
    few_decades(axes.xaxis, axes.get_xlim())


def _counts(what: str, title: str, label: str) -> Callable[[Any, Sequence[Group]], None]:
    def draw(axes: Any, groups: Sequence[Group]) -> None:
        for group, look in zip(groups, _looks(groups), strict=True):
            at = thin(group.played, log=True)
            totals = group.count(what, at)
            if totals.max() > 0.0:
                axes.plot(
                    at + 1,
                    totals.T,
                    **look,
                    alpha=1.0 if len(totals) == 1 else 0.6,
                    drawstyle="steps-post",
                    label=[group.label, *[None] * (len(totals) - 1)],
                )
        axes.set(xlabel="episode t (each agent)", ylabel=label, xscale="log", yscale="log")
        if what == "scalars":
            t = np.geomspace(1, max(group.played for group in groups), 50)
            raw = {
                g.first.parameters.n_agents: g.first.scalars_raw / g.first.played
                for g in groups
                if g.first.scalars_raw is not None
            }
            for size, per_episode in raw.items():
                whose = "" if len(raw) == 1 else f", M = {size}"
                axes.plot(t, per_episode * t, color=MUTED, linestyle=":",
                          label=f"every trajectory{whose}")  # fmt: skip
        axes.set_title(title)
        legend_above(axes)

    return draw


CONTRAST: dict[str, Callable[[Any, Sequence[Group]], None]] = {
    "regret": _regret,
    "returns": _returns,
    "price": _price,
    "worth": _worth,
    "rounds": _counts("rounds", "Rounds of communication", "rounds so far"),
    "scalars": _counts("scalars", "Communication", "scalars so far, all agents"),
}


def contrasts(groups: Sequence[Group]) -> list[str]:
    """The figures that all these groups have data for."""
    runs = [run for group in groups for run in group.runs]
    missing = set()
    if any(run.regret is None for run in runs):
        missing |= {"regret", "price"}
    if any(run.mean_returns is None for run in runs):
        missing |= {"returns", "worth"}
    if not any(run.ledger.total for run in runs):
        missing |= {"price", "worth", "scalars"}
    return [what for what in CONTRAST if what not in missing]


def _looks(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """A colour for each, with dashes once all colours are taken."""
    n = len(COLOURS)
    dashes = ("-", DASHED, ":")
    return [{"color": COLOURS[i % n], "linestyle": dashes[i // n % 3]} for i in range(len(groups))]
