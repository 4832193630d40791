"""What came out, in sentences and numbers that a newcomer understands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.errors import FedLSVIError
from fedlsvi.protocol.records import tenth
from fedlsvi.report.command import command
from fedlsvi.report.groups import Group, alike, common, shares
from fedlsvi.report.statistics import interval
from fedlsvi.run import Run


def number(value: float) -> str:
    """1,235 or 12.3 or 0.00123."""
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0.0 else "−∞"
    if 0.0 < abs(value) < 1e-5:
        return "under 0.00001"
    if abs(value) >= 999.5 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.3g}"


def measured(values: Sequence[float]) -> str:
    """The mean of the runs, and half of its 95 % interval where there are several."""
    found = interval([float(v) for v in values])
    mean, high = found["mean"], found["high"]
    assert mean is not None
    if high is None or high == mean or not math.isfinite(high):
        return number(mean)
    return f"{number(mean)} ± {number(_short(high - mean))}"


def _short(half: float) -> float:
    """Three figures of a half width are enough."""
    return round(half, 2 - math.floor(math.log10(half)))


def late_loss(run: Run) -> float:
    """Reward lost per episode and agent over the last tenth of the episodes."""
    assert run.regret is not None
    n = len(run.regret)
    last = tenth(n)
    before = run.regret[n - last - 1] if last < n else 0.0
    return float(run.regret[-1] - before) / last / run.parameters.n_agents


def regrets(group: Group, t: int | None = None) -> list[float]:
    """Regret of each run after t episodes, or as many as all of them have; empty where one has
    none."""
    curves = group.regret(np.array([(t or group.played) - 1]))
    return [] if curves is None else [float(value) for value in curves[:, 0]]


def unit(run: Run) -> float:
    """What 1 of regret is in the environment's own units: high − low, where rewards were mapped
    from [low, high] into [0, 1]; 1 where only an environment says so that cannot be made here."""
    try:
        return round(float(run.original_value(1.0) - run.original_value(0.0)), 9)
    except (FedLSVIError, ImportError):
        return 1.0


def judged(groups: Sequence[Group]) -> tuple[str, list[list[float]]]:
    """What groups are judged by, and its number for each of their runs after as many episodes as
    all have; empty where not known."""
    t = common(groups)
    if all(regrets(group) for group in groups):
        sizes, name = shares(groups)
        lost = [[v / m for v in regrets(g, t)] for g, m in zip(groups, sizes, strict=True)]
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
    return [int(i) for i in np.argsort([less * np.mean(values) for values in found])]


def outcome(group: Group, levels: Mapping[str, float]) -> str:
    """One sentence: what was learned, and what it took."""
    run = group.first
    p = run.parameters
    opening = f"After {plural(run.played, 'episode')} each"
    if len(group.runs) > 1:
        opening += f", on average over {len(group.runs)} seeds"
    if run.regret is not None:
        lost = unit(run) * float(np.mean(regrets(group)))
        late = unit(run) * float(np.mean([late_loss(one) for one in group.runs]))
        who = "the agent" if p.n_agents == 1 else f"the {p.n_agents} agents together"
        text = (
            f"{opening}, {who} had lost {number(lost)} reward against an optimal policy, "
            f"{number(lost / run.played / p.n_agents)} per episode played and {number(late)} in "
            "the last tenth"
        )
    elif earned := group.late_returns(group.played):
        late = float(np.mean(earned))
        text = f"{opening}, the last tenth of the episodes earned {number(late)} each"
        known = [f"{name} {number(level)}" for name, level in levels.items()]
        text += f" ({', '.join(known)})" if known else ""
    else:
        text = f"{opening}, what the policy earned is not known"
    return f"{text}; {_price(group)}."


def _price(group: Group) -> str:
    """What was sent for it."""
    sent = float(np.mean([run.ledger.total for run in group.runs]))
    if sent == 0.0:
        return "nothing was sent"
    rounds = float(np.mean([run.rounds for run in group.runs]))
    took = f"it took {plural(round(rounds), 'synchronisation')} and {plural(round(sent), 'scalar')}"
    if group.first.scalars_raw is None:
        return took
    ratio = group.first.scalars_raw / sent
    times = f"{number(ratio)} times fewer" if ratio >= 1.0 else f"{number(1.0 / ratio)} times more"
    return f"{took}, {times} than sharing every trajectory"


def verdict(groups: Sequence[Group]) -> str:
    """One sentence: who did best, and by how much, after as many episodes as all have."""
    name, found = judged(groups)
    order, t = ranked(groups), common(groups)
    opening = "" if alike(groups) else f"After {plural(t, 'episode')} each, "
    best, worst = groups[order[0]].label, groups[order[-1]].label
    if found[0]:
        top, bottom = (number(float(np.mean(found[i]))) for i in (order[0], order[-1]))
        did = ("lost least", "most") if name.startswith("regret") else ("earned most", "least")
        text = f"{opening}{best} {did[0]} ({name}: {top}), {worst} {did[1]} ({bottom})"
    else:
        text = "What the policies earned is not known for all of these runs"
    sent = [float(np.mean(group.counted("scalars", t))) for group in groups]
    silent = [g.label for g in groups if not any(run.ledger.total for run in g.runs)]
    if silent:
        return f"{text}; nothing was sent by {', '.join(silent)}."
    frugal = int(np.argmin(sent))
    least = number(round(sent[frugal]))
    return f"{text}; {groups[frugal].label} sent the fewest scalars, {least}."


def unfinished(groups: Sequence[Group]) -> str:
    """Who was interrupted and which seeds are left out for it; empty where it needs no word."""
    found = []
    for group in groups:
        several = len(groups) > 1
        if several and group.first.played < group.first.parameters.episodes:
            found.append(f"{group.label} was interrupted after {_so_far(group.first)}.")
        for run in group.left_out:
            who = f"{group.label}, seed {run.seed}," if several else f"Seed {run.seed}"
            rest = f": {command('resume', run.folder)} plays the rest." if run.folder else "."
            found.append(f"{who} was interrupted after {_so_far(run)} and is left out{rest}")
    return " ".join(found)


def _so_far(run: Run) -> str:
    return f"{run.played:,} of {plural(run.parameters.episodes, 'episode')}"
