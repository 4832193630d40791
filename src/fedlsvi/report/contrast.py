"""Figures that set groups of runs against each other: one colour each, bands over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedlsvi.report.groups import Group, alike, common
from fedlsvi.report.panels import spread, windows
from fedlsvi.report.style import COLOURS, DASHED, MUTED, episodes, frame, legend_above, thin


def shares(groups: Sequence[Group]) -> tuple[np.ndarray, str]:
    """What regret is divided by, and its name: where groups differ in size, it is each agent's."""
    sizes = np.array([group.first.parameters.n_agents for group in groups])
    if len(set(sizes)) == 1:
        return np.ones(len(groups)), "cumulative regret, all agents"
    return sizes.astype(np.float64), "cumulative regret per agent"


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
    """Regret at the end, or after as many episodes as all have, against what was sent for it; a
    cross where nothing was."""
    sizes, ylabel = shares(groups)
    t = common(groups)
    sent = [np.array(group.counted("scalars", t)) for group in groups]
    least = min(value for total in sent for value in total if value > 0)
    for group, size, total, look in zip(groups, sizes, sent, _looks(groups), strict=True):
        curves = group.regret(np.array([t - 1]))
        assert curves is not None
        lost = curves[:, 0] / size
        name: str | None = group.label
        for mark, some in (("o", total > 0), ("X", total == 0)):
            if some.any():
                axes.scatter(np.where(total > 0, total, least / 3)[some], lost[some], s=44.0,
                             marker=mark, color=look["color"], alpha=0.8, linewidths=0,
                             label=name)  # fmt: skip
                name = None  # one entry in the legend is enough
    end = "" if alike(groups) else f", first {t:,} episodes"
    axes.set(xlabel=f"scalars sent, all agents{end}", ylabel=ylabel, xscale="log")
    axes.margins(x=0.12, y=0.12)
    axes.set_ylim(bottom=0.0)
    axes.set_title("Regret and its price")
    legend_above(axes)


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
                g.first.parameters.n_agents: g.first.scalars_raw / g.first.played for g in groups
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
        missing.add("returns")
    if not any(run.ledger.total for run in runs):
        missing |= {"price", "scalars"}
    return [what for what in CONTRAST if what not in missing]


def _looks(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """A colour for each, with dashes once all colours are taken."""
    n = len(COLOURS)
    dashes = ("-", DASHED, ":")
    return [{"color": COLOURS[i % n], "linestyle": dashes[i // n % 3]} for i in range(len(groups))]
