"""How much each algorithm sends, how it grows with T, and where Fed-LSVI sends the least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedlsvi.core import theory
from fedlsvi.core.statistics import packed_size
from fedlsvi.experiments.runner import Outcome, RunSpec
from fedlsvi.experiments.sweeps import (
    PAPERS_TRIGGER,
    Point,
    Size,
    crossing,
    curve,
    exponent,
    lost,
    matrix,
    random_linear,
    run_spec,
    select,
    values,
)
from fedlsvi.experiments.verdicts import Check, Finding, above, always, below
from fedlsvi.groups import TABLE_ROUNDS
from fedlsvi.report.colours import place
from fedlsvi.report.intervals import median
from fedlsvi.report.plotting import Panel

SHARERS = (
    "fed-lsvi",
    "stale",
    "periodic",
    "centralised",
    "coop-lsvi",
    "async-coop",
    "coopts-phe",
    "coopts-lmc",
    "fedq-hoeffding",
    "fedq-bernstein",
    "fedq-advantage",
    "fed-ucbvi",
)

DEFAULT = "fed-lsvi, default"
"""Fed-LSVI as it is out of the box; the other arm has the paper's trigger, which the claim is
about."""

SLOW = ("coop-lsvi", "coopts-phe", "coopts-lmc")
"""Every agent of these replans every episode: their largest T is left out. Their scalars are
linear in T, so nothing is lost but the last point."""

EPISODES: dict[Size, list[int]] = {
    "quick": [30, 100, 300, 1000, 3000],
    "full": [30, 100, 300, 1000, 3000, 10000, 30000, 100000],
}
SLOWEST: dict[Size, int] = {"quick": 1000, "full": 10000}
SEEDS: dict[Size, int] = {"quick": 3, "full": 5}


def _trigger(arm: str, T: int) -> dict[str, Any]:
    """The paper's trigger, for those that have one."""
    own = {"fed-lsvi": PAPERS_TRIGGER, "stale": {"gamma": theory.gamma_auto(8, 8, T)}}
    return own.get(arm, {})


def sweep(size: Size) -> list[RunSpec]:
    """M = 8, d = 8, H = 5."""
    arms = [(name, name) for name in SHARERS]
    arms.insert(1, (DEFAULT, "fed-lsvi"))
    return [
        run_spec(name, random_linear(i), T, 8, i, {"arm": arm}, **_trigger(arm, T))
        for arm, name in arms
        for T in EPISODES[size]
        if name not in SLOW or SLOWEST[size] >= T
        for i in range(SEEDS[size])
    ]


RAW = ("centralised", "coop-lsvi", "async-coop", "coopts-phe", "coopts-lmc")
"""Those that send raw transitions."""

TWIN = "stale"
"""Its rounds send what Fed-LSVI's send: in a figure one curve would cover the other."""

FLAT, LINEAR = 0.15, 0.85
LAST = 3
"""Growth is fitted on this many of the largest T: smaller ones are burn-in."""


def finding(points: Sequence[Point]) -> Finding:
    """Growth of each, and where the curves cross."""
    names = list(dict.fromkeys(p.labels["arm"] for p in points))
    sent = {n: matrix(select(points, arm=n), "T", lambda o: o.scalars) for n in names}
    growth = {n: exponent(x[-LAST:], y[:, -LAST:]) for n, (x, y) in sent.items()}
    ours = np.median(sent["fed-lsvi"][1], axis=0)
    raw = [n for n in RAW if n in names]
    wins = {}
    for n in raw:
        x, y = sent[n]
        wins[n] = crossing(x, ours[: len(x)], np.median(y, axis=0))
    checks = [
        Check(f"Fed-LSVI's scalars are flat in T: exponent at most {FLAT}",
              growth["fed-lsvi"].text(".2f"), below(growth["fed-lsvi"], FLAT)),
    ]  # fmt: skip
    for n in raw:
        x, y = matrix(select(points, arm=n), "T", _trajectories)
        linear = exponent(x[-LAST:], y[:, -LAST:])
        checks.append(Check(f"{n} sends raw transitions linearly in T: exponent of {LINEAR} or "
                            "more", linear.text(".2f"), above(linear, LINEAR)))  # fmt: skip
    checks.append(Check(
        "Fed-LSVI sends less than each algorithm that shares raw transitions, from some T on",
        "; ".join(f"{n}: {'not yet' if w is None else f'T ≥ {w:,.0f}'}" for n, w in wins.items()),
        always([w is not None for w in wins.values()]),
    ))  # fmt: skip
    losing = [f"{n} {_until(crossing(sent[n][0], ours[: len(sent[n][0])], middle))}"
              for n in names if n not in ("fed-lsvi", DEFAULT)
              and (middle := np.median(sent[n][1], axis=0))[0] < ours[0]]  # fmt: skip
    last = {n: median(y[:, -1]) for n, (_, y) in sent.items()}
    regrets = {n: matrix(select(points, arm=n), "T", lost)[1] for n in names}
    rows = [
        [n, f"{sent[n][0][-1]:,.0f}", last[n].text(), growth[n].text(".2f"),
         _when(wins.get(n), n in raw), _predicted(points, n), median(regrets[n][:, -1]).text()]
        for n in sorted(names, key=lambda n: last[n].mid)
    ]  # fmt: skip
    first = int(values(points, "T")[0])
    drawn = [n for n in names if n not in (TWIN, DEFAULT)]
    more = last[DEFAULT].mid / last["fed-lsvi"].mid
    return Finding(
        title="Communication: scalars against T",
        claim="Fed-LSVI's communication is logarithmic in T; cooperative algorithms that share "
        "raw trajectories pay linearly.",
        setup="Random linear MDPs (20 states, 4 actions, d = 8, H = 5), M = 8. `fed-lsvi` "
        "and `stale` have the paper's trigger, which the claim is about; every other algorithm has "
        "its default settings (`periodic` every 100 episodes). All scalars in both directions, 8 "
        "bytes each; a broadcast to M agents counts M times. The predicted crossing is "
        "T = 2(P + d)K/(Mρ) against Coop-LSVI and CoopTS, P = d(d+1)/2, ρ = 3. Exponents are "
        f"fitted on the {LAST} largest T of each algorithm: smaller ones are burn-in.",
        checks=checks,
        header=["algorithm", "largest T", "scalars there", "exponent in T", "Fed-LSVI sends less "
                "from", "predicted", "group regret there"],
        rows=rows,
        panels=[
            Panel("Scalars against T", "episodes per agent T", "scalars sent, all agents",
                  [curve(n, *sent[n], colour=place(n)) for n in drawn]),
            Panel("Regret against scalars, at the same runs", "scalars sent, all agents",
                  "group regret",
                  [curve(n, np.median(sent[n][1], axis=0), regrets[n], colour=place(n))
                   for n in drawn]),
        ],
        notes=[
            f"From T = {first} on, Fed-LSVI sends more than "
            f"{', '.join(losing) if losing else 'none of them'}. A round costs 2MH(P + d) scalars "
            "however few episodes it covers, and there are at least about min(T, Md) rounds.",
            f"With its default settings (`{DEFAULT}`: a cap, and no more rounds than the raw data "
            f"pay for, or {TABLE_ROUNDS} if that is more) Fed-LSVI sends {more:.2g} times as much "
            f"at the largest T, for {_share(regrets, DEFAULT):.2g} times the regret.",
            f"Not in the figure: `{TWIN}`, which sends as much per round as Fed-LSVI. Tabular "
            "algorithms (fedq-…, fed-ucbvi) send statistics of all S·A·H cells. Async-Coop sends a "
            "model with every message, which is most of its traffic at small T.",
        ],
    )  # fmt: skip


def _trajectories(o: Outcome) -> float:
    """Raw scalars in both directions."""
    return o.scalars_by_category["up_raw"] + o.scalars_by_category["down_raw"]


def _share(regrets: Mapping[str, np.ndarray], name: str) -> float:
    """Median regret at the largest T over that of Fed-LSVI with the paper's trigger."""
    return float(np.median(regrets[name][:, -1]) / np.median(regrets["fed-lsvi"][:, -1]))


def _until(at: float | None) -> str:
    return "at every T" if at is None else f"until T = {at:,.0f}"


def _when(at: float | None, asked: bool) -> str:
    if not asked:
        return ""
    return "not yet" if at is None else f"{at:,.0f}"


def _predicted(points: Sequence[Point], name: str) -> str:
    """T > 2(P + d)K/(Mρ), at Fed-LSVI's own K at the largest T."""
    if name not in ("coop-lsvi", "coopts-phe", "coopts-lmc"):
        return ""
    T = values(select(points, arm="fed-lsvi"), "T")[-1]
    o = select(points, arm="fed-lsvi", T=T)[0].outcome
    per_round = 2 * (packed_size(o.dim, "packed") + o.dim)
    return f"{per_round * o.rounds / (o.n_agents * o.raw_per_step):,.0f}"
