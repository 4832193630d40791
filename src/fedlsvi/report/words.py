"""What came out, in sentences and numbers that a newcomer understands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedlsvi.report.contrast import shares
from fedlsvi.report.groups import Group
from fedlsvi.report.statistics import interval
from fedlsvi.run import Run


def number(value: float) -> str:
    """1,235 or 12.3 or 0.00123."""
    if 0.0 < abs(value) < 1e-5:
        return "under 0.00001"
    if abs(value) >= 1000.0 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.3g}"


def measured(values: Sequence[float]) -> str:
    """The mean of the runs, and half of its 95 % interval where there are several."""
    found = interval([float(v) for v in values])
    mean, high = found["mean"], found["high"]
    assert mean is not None
    if high is None or high == mean:
        return number(mean)
    return f"{number(mean)} ± {number(_short(high - mean))}"


def _short(half: float) -> float:
    """Three figures of a half width are enough."""
    return round(half, 2 - math.floor(math.log10(half)))


def count(n: int, what: str) -> str:
    """1 agent, 8 agents."""
    return f"1 {what}" if n == 1 else f"{n:,} {what}s"


def late_loss(run: Run) -> float:
    """Reward lost per episode and agent over the last tenth of the episodes."""
    assert run.regret is not None
    n = len(run.regret)
    last = max(1, n // 10)
    before = run.regret[n - last - 1] if last < n else 0.0
    return float(run.regret[-1] - before) / last / run.parameters.n_agents


def late_return(run: Run) -> float:
    """Mean return over the last tenth of the episodes."""
    found = Group("", [run]).returns(np.array([run.played - max(1, run.played // 10), run.played]))
    assert found is not None
    return float(found[0, 0])


def regrets(group: Group) -> list[float]:
    """Final regret of each run."""
    return [float(run.regret[-1]) for run in group.runs if run.regret is not None]


def judged(groups: Sequence[Group]) -> tuple[str, list[list[float]]]:
    """What groups are judged by, and its number for each of their runs; empty where not known."""
    if all(regrets(group) for group in groups):
        sizes, name = shares(groups)
        lost = [[v / m for v in regrets(g)] for g, m in zip(groups, sizes, strict=True)]
        return name.removeprefix("cumulative "), lost
    if all(group.first.mean_returns is not None for group in groups):
        return "return, last tenth", [[late_return(run) for run in g.runs] for g in groups]
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
    opening = f"After {count(run.played, 'episode')} each"
    if len(group.runs) > 1:
        opening += f", on average over {len(group.runs)} seeds"
    if run.regret is not None:
        lost = float(np.mean(regrets(group)))
        late = float(np.mean([late_loss(one) for one in group.runs]))
        who = "the agent" if p.n_agents == 1 else f"the {p.n_agents} agents together"
        text = (
            f"{opening}, {who} had lost {number(lost)} reward against an optimal policy, "
            f"{number(lost / run.played / p.n_agents)} per episode played and {number(late)} in "
            "the last tenth"
        )
    elif run.mean_returns is not None:
        late = float(np.mean([late_return(one) for one in group.runs]))
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
    ratio = group.first.scalars_raw / sent
    times = f"{ratio:,.3g} times fewer" if ratio >= 1.0 else f"{1.0 / ratio:,.3g} times more"
    return (
        f"it took {number(round(rounds))} synchronisations and {number(round(sent))} scalars, "
        f"{times} than sharing every trajectory"
    )


def verdict(groups: Sequence[Group]) -> str:
    """One sentence: who did best, and by how much."""
    name, found = judged(groups)
    order = ranked(groups)
    best, worst = groups[order[0]].label, groups[order[-1]].label
    if found[0]:
        top, bottom = (number(float(np.mean(found[i]))) for i in (order[0], order[-1]))
        did = ("lost least", "most") if name.startswith("regret") else ("earned most", "least")
        text = f"{best} {did[0]} ({name}: {top}), {worst} {did[1]} ({bottom})"
    else:
        text = "What the policies earned is not known for all of these runs"
    sent = [float(np.mean([run.ledger.total for run in group.runs])) for group in groups]
    silent = [group.label for group, n in zip(groups, sent, strict=True) if n == 0.0]
    if silent:
        return f"{text}; nothing was sent by {', '.join(silent)}."
    frugal = int(np.argmin(sent))
    least = number(round(sent[frugal]))
    return f"{text}; {groups[frugal].label} sent the fewest scalars, {least}."
