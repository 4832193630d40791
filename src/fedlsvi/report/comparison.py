"""The page that compares groups of runs on one problem: its figures, ranking and verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.report import html
from fedlsvi.report.colours import MUTED, look, places
from fedlsvi.report.figures import draw_median, learns_early, windows
from fedlsvi.report.groups import Group, alike, common, shares
from fedlsvi.report.html import measured, number
from fedlsvi.report.intervals import over_seeds
from fedlsvi.report.model_class import MODEL, ModelClass
from fedlsvi.report.plotting import (
    Dots,
    against_scalars,
    close_around,
    episodes,
    frame,
    from_zero,
    legend_above,
    logarithmic,
    make_figure,
    thin,
)
from fedlsvi.report.privacy import smallest_upload
from fedlsvi.report.run_page import (
    CAPTIONS,
    described,
    folded_run,
    unfinished,
    units,
)

COMPARED = CAPTIONS | {
    "regret": "What the agents lost against an optimal policy; lower is better.",
    "returns": "Mean return of the episodes; higher is better.",
    "price": "Regret of each run and what it sent, after the same number of episodes; crosses sent "
    "nothing. Best is low and to the left.",
    "worth": "Return of the last tenth of the episodes and what was sent, after the same number of "
    "episodes; crosses sent nothing. Best is high and to the left.",
    "rounds": "How often the agents synchronised. An agent that learns alone replans in its own "
    "rounds.",
}


def comparison_page(groups: Sequence[Group], svgs: dict[str, bytes], model: ModelClass) -> str:
    """The page; `svgs` are files by the name of their figure."""
    first = groups[0].first
    names = {group.first.algorithm for group in groups}
    one = f"{plural(len(groups), 'setting')} of {first.algorithm}"
    what = one if len(names) == 1 else f"{plural(len(names), 'algorithm')}"
    parts = [
        html.paragraph(_shared(groups), "sub"),
        html.paragraph(verdict(groups), "outcome"),
        html.paragraph(unfinished(groups)),
        ranking(groups, model),
        html.heading("Return" if "returns" in svgs else "Regret"),
        html.images(
            {n: svgs[n] for n in ("regret", "returns", "price", "worth") if n in svgs}, COMPARED
        ),
        units(first),
        html.heading("Rounds and traffic"),
        html.images({n: svgs[n] for n in ("rounds", "scalars") if n in svgs}, COMPARED),
        html.heading("Each run"),
        *(folded_run(group) for group in groups),
    ]
    return html.document(f"{what} on {first.environment_name}", parts)


def _shared(groups: Sequence[Group]) -> str:
    """What all of them have in common."""
    first, *others = (described(group) for group in groups)
    return ", ".join(part for part in first if all(part in other for other in others))


def judged(groups: Sequence[Group]) -> tuple[str, list[list[float]]]:
    """What groups are judged by, and its number for each of their runs.

    Everybody is judged after as many episodes as all have. The lists are empty where neither
    regret nor returns are known.
    """
    t = common(groups)
    if all(group.regrets() for group in groups):
        sizes, name = shares(groups)
        lost = [[v / m for v in g.regrets(t)] for g, m in zip(groups, sizes, strict=True)]
        return name.removeprefix("cumulative "), lost
    earned = [group.late_returns(t) for group in groups]
    if all(earned):
        return "return, last tenth", earned
    return "regret", [[] for _ in groups]


def ranked(groups: Sequence[Group]) -> list[int]:
    """The best first: by regret, by return, or as they came."""
    name, found = judged(groups)
    if not found[0]:
        return list(range(len(groups)))
    less = 1.0 if name.startswith("regret") else -1.0
    return [int(i) for i in np.argsort([less * np.median(values) for values in found])]


def verdict(groups: Sequence[Group]) -> str:
    """Who did best, by how much, and what it shared for that."""
    name, found = judged(groups)
    order, t = ranked(groups), common(groups)
    opening = "" if alike(groups) else f"After {plural(t, 'episode')} each, "
    raw = [any(group.counted("trajectories", t)) for group in groups]
    sent = [float(np.median(group.counted("scalars", t))) for group in groups]
    silent = [g.label for g in groups if not any(run.ledger.total for run in g.runs)]
    if found[0]:
        rows = [(groups[i].label, float(np.median(found[i])), raw[i]) for i in order]
        text = opening + best_and_worst(rows, name, name.startswith("regret"))
    else:
        text = "The return of the policies is not known for all of these runs."
    if silent:
        return f"{text} Nothing was sent by {', '.join(silent)}."
    frugal = int(np.argmin(sent))
    return f"{text} {groups[frugal].label} sent the fewest scalars, {number(round(sent[frugal]))}."


def best_and_worst(rows: Sequence[tuple[str, float, bool]], name: str, regret: bool) -> str:
    """The result in a sentence or two; sharing raw trajectories is part of it.

    Args:
        rows: Label, median and whether raw trajectories were sent, the best first.
        name: What the numbers are.
        regret: Less is better.
    """
    least, most = ("lost least", "lost most") if regret else ("earned most", "earned least")
    (best, top, raw), (worst, bottom, _) = rows[0], rows[-1]
    price = ", but sends raw trajectories" if raw else ""
    text = f"{best} {least} ({name}: {number(top)}){price}"
    text += f"; {worst} {most} ({number(bottom)})." if len(rows) > 1 else "."
    private = next(((label, value) for label, value, shares in rows if not shares), None)
    if raw and private is not None:
        label, value = private
        text += f" Among those that keep trajectories private, {label} {least} ({number(value)})."
    return text


def ranking(groups: Sequence[Group], model: ModelClass) -> str:
    """One row for each group, at as many episodes as all have."""
    name, found = judged(groups)
    head = ("", "seeds", MODEL, name, "rounds", "scalars sent", "of which raw", "smallest upload",
            "seconds")  # fmt: skip
    rows, t = [], common(groups)
    for i in ranked(groups):
        group, runs = groups[i], groups[i].runs
        counts = (group.counted(what, t) for what in ("rounds", "scalars", "trajectories"))
        seconds = [sum(r.summary(values=False)["seconds"].values()) for r in runs]
        rows.append((
            group.label, f"{len(runs)}", model.row(group.label).replace(" (", "\n("),
            measured(found[i]),
            *(measured(values) for values in counts), smallest_upload(runs),
            number(float(np.median(seconds))),
        ))  # fmt: skip
    sizes = sorted({len(group.runs) for group in groups} - {1})
    notes = [model.sentence(), *(f"{over_seeds(n).capitalize()}." for n in sizes)]
    if not alike(groups):
        notes.append(
            f"After {plural(t, 'episode')} each, the length of the shortest run; the smallest "
            "upload and the seconds refer to the whole runs."
        )
    return html.table(head, rows, stack=True) + html.paragraph(" ".join(notes), "note")


def comparison_figure(what: str, groups: Sequence[Group]) -> Any:
    """A figure that compares groups of runs."""
    more = 0.25 * max(0, len(groups) - 3)  # for the lines of the legend
    return make_figure([partial(DRAW_COMPARED[what], groups=groups)], size=(5.2, 3.8 + more))


def comparable(groups: Sequence[Group]) -> list[str]:
    """The figures that all these groups have data for."""
    runs = [run for group in groups for run in group.runs]
    missing = set()
    if any(run.regret is None for run in runs):
        missing |= {"regret", "price"}
    if any(run.mean_returns is None for run in runs):
        missing |= {"returns", "worth"}
    if not any(run.ledger.total for run in runs):
        missing |= {"price", "worth", "scalars"}
    return [what for what in DRAW_COMPARED if what not in missing]


def _numbers(groups: Sequence[Group]) -> dict[str, int]:
    """The place of each group in the palette."""
    return places({group.label: group.first.algorithm for group in groups})


def _regret(axes: Any, groups: Sequence[Group]) -> None:
    n, top, early = max(group.played for group in groups), 0.0, False
    sizes, name = shares(groups)
    numbers = _numbers(groups)
    for group, size in zip(groups, sizes, strict=True):
        at = thin(group.played, log=True)
        curves = group.regret(at)
        assert curves is not None
        how = look(numbers[group.label])
        mid, high = draw_median(axes, at + 1, curves / size, group.label, **how)
        top, early = max(top, high), early or learns_early(at + 1, mid)
    axes.set(ylabel=name)
    axes.set_title("Regret")
    frame(axes, n, 1.08 * top, early)


def _returns(axes: Any, groups: Sequence[Group]) -> None:
    numbers = _numbers(groups)
    for group in groups:
        edges = windows(group.played)
        curves = group.returns(edges)
        assert curves is not None
        how = look(numbers[group.label])
        draw_median(axes, (edges[1:] + edges[:-1]) / 2, curves, group.label, **how)
    axes.set(ylabel="mean return of the episodes")
    axes.set_title("Return")
    episodes(axes, max(group.played for group in groups))
    legend_above(axes)


def _price(axes: Any, groups: Sequence[Group]) -> None:
    """Regret after as many episodes as all have, against what was sent for it."""
    sizes, ylabel = shares(groups)
    t = common(groups)
    lost = [np.array(g.regrets(t)) / size for g, size in zip(groups, sizes, strict=True)]
    _against_scalars(axes, groups, lost)
    from_zero(axes, 1.08 * max(float(values.max()) for values in lost))
    axes.set(ylabel=ylabel)
    axes.set_title("Regret and its price")
    legend_above(axes)


def _worth(axes: Any, groups: Sequence[Group]) -> None:
    """What the last episodes earned, where regret is not known, against what was sent for it."""
    earned = [np.array(group.late_returns(common(groups))) for group in groups]
    _against_scalars(axes, groups, earned)
    close_around(axes, earned)
    axes.set(ylabel="mean return, last tenth")
    axes.set_title("Return and its price")
    legend_above(axes)


def _against_scalars(axes: Any, groups: Sequence[Group], values: Sequence[np.ndarray]) -> None:
    t = common(groups)
    until = "" if alike(groups) else f", first {plural(t, 'episode')}"
    numbers = _numbers(groups)
    dots = [Dots(g.label, numbers[g.label], np.array(g.counted("scalars", t)), found)
            for g, found in zip(groups, values, strict=True)]  # fmt: skip
    against_scalars(axes, dots, until)


def _rounds(axes: Any, groups: Sequence[Group]) -> None:
    _counts(axes, groups, "rounds")
    axes.set(ylabel="rounds so far")
    axes.set_title("Rounds of communication")
    logarithmic("xy", axes)
    legend_above(axes)


def _scalars(axes: Any, groups: Sequence[Group]) -> None:
    _counts(axes, groups, "scalars")
    t = np.geomspace(1, max(group.played for group in groups), 50)
    raw = {
        g.first.parameters.n_agents: g.first.scalars_raw / g.first.played
        for g in groups
        if g.first.scalars_raw is not None
    }
    for size, per_episode in raw.items():
        whose = "" if len(raw) == 1 else f", M = {size}"
        label = f"every trajectory{whose}"
        axes.plot(t, per_episode * t, color=MUTED, linestyle=":", label=label)
    axes.set(ylabel="scalars so far, all agents")
    axes.set_title("Communication")
    logarithmic("xy", axes)
    legend_above(axes)


def _counts(axes: Any, groups: Sequence[Group], what: str) -> None:
    """A count of each run against episodes."""
    numbers = _numbers(groups)
    for group in groups:
        at = thin(group.played, log=True)
        totals = group.count(what, at)
        if totals.max() > 0.0:
            label = [group.label, *[None] * (len(totals) - 1)]
            alpha = 1.0 if len(totals) == 1 else 0.6
            how = look(numbers[group.label])
            axes.plot(at + 1, totals.T, **how, alpha=alpha, drawstyle="steps-post", label=label)
    axes.set(xlabel="episode t (each agent)")


DRAW_COMPARED: dict[str, Callable[..., None]] = {
    "regret": _regret,
    "returns": _returns,
    "price": _price,
    "worth": _worth,
    "rounds": _rounds,
    "scalars": _scalars,
}
