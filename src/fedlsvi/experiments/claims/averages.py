"""Averages of weights, and sums of statistics: why not just average what agents learned?

The averages get the settings that are best for them in hindsight, problem by problem and on the
reported runs, and more rounds; Fed-LSVI has its defaults, with a model for every step as they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from fedlsvi.experiments.claims.periods import problems
from fedlsvi.experiments.runner import Outcome, RunSpec
from fedlsvi.experiments.sweeps import Point, Size, lost, matrix, run_spec, select
from fedlsvi.experiments.tune import score
from fedlsvi.experiments.verdicts import Check, Finding, below
from fedlsvi.report.intervals import bootstrap, median
from fedlsvi.report.plotting import Curve, Panel

AGENTS = 8
EPISODES: dict[Size, int] = {"quick": 500, "full": 2000}
SEEDS: dict[Size, int] = {"quick": 5, "full": 8}
PERIOD = 5
"""Episodes between two averages: more rounds than Fed-LSVI may have."""

RATES = (0.1, 0.3)
ARMS: dict[str, tuple[str, dict[str, Any]]] = {"Fed-LSVI": ("fed-lsvi", {"stationary": False})}
ARMS |= {
    f"q-avg, {weights}, ε = {epsilon}, η = {rate}":
        ("q-avg", {"weights": weights, "epsilon": epsilon, "rate": rate, "period": PERIOD})
    for weights, epsilon, rate in product(("equal", "importance"), (0.0, 0.05), RATES)
} | {
    f"fed-sarsa, temperature {temperature}, α = {rate}":
        ("fed-sarsa", {"temperature": temperature, "rate": rate, "period": PERIOD})
    for temperature, rate in product((0.01, 0.05), RATES)
}  # fmt: skip

OURS = "Fed-LSVI"
KINDS = {"q-avg": "averages of Q-tables", "fed-sarsa": "averages of SARSA's weights"}


def sweep(size: Size) -> list[RunSpec]:
    """Everybody on every problem."""
    return [
        run_spec(algorithm, env, EPISODES[size], AGENTS, i, {"problem": name, "arm": arm}, about,
                 **own)
        for i in range(SEEDS[size])
        for name, (env, about) in problems(i).items()
        for arm, (algorithm, own) in ARMS.items()
    ]  # fmt: skip


def _late(o: Outcome) -> float:
    """Regret of the last tenth of the episodes over the uniform policy's there."""
    assert o.late is not None
    assert o.uniform
    return o.late / (o.uniform / 10.0)


def best(here: Sequence[Point], algorithm: str) -> str:
    """The settings with the lowest median regret."""
    arms = [arm for arm, (name, _) in ARMS.items() if name == algorithm]
    return min(arms, key=lambda arm: float(np.median([lost(p.outcome) for p in
                                                      select(here, arm=arm)])))  # fmt: skip


def finding(points: Sequence[Point]) -> Finding:
    """Ratios of regret to the best average, seed by seed."""
    names = list(dict.fromkeys(p.labels["problem"] for p in points))
    checks, rows, panels = [], [], []
    for n in names:
        here = select(points, problem=n)
        chosen = {kind: best(here, kind) for kind in KINDS}
        regret = {arm: matrix(select(here, arm=arm), "T", lost)[1][:, 0] for arm in ARMS}
        rival = min(chosen.values(), key=lambda arm: float(np.median(regret[arm])))
        ratio = median(regret[OURS] / regret[rival])
        checks.append(Check(f"{n}: Fed-LSVI loses less than the best average: ratio at most 1",
                            f"{ratio.text('.2f')} ({rival})", below(ratio, 1.0)))  # fmt: skip
        for arm in ARMS:
            runs = [p.outcome for p in select(here, arm=arm)]
            shares = (median([measure(o) for o in runs]).text(".3f") for measure in (score, _late))
            sent = (f"{np.median([value(o) for o in runs]):,.0f}" for value in
                    (lambda o: o.rounds, lambda o: o.scalars))  # fmt: skip
            rows.append([n, arm, *shares, *sent])
        curves = []
        for i, arm in enumerate((OURS, *chosen.values())):
            runs = [p.outcome for p in select(here, arm=arm)]
            mid, low, high = bootstrap(np.array([o.curve["regret"] for o in runs]))
            curves.append(Curve(arm, np.array(runs[0].curve["t"]), mid, low, high, colour=i,
                                marks=False))  # fmt: skip
        panels.append(Panel(n, "episodes per agent", "group regret", curves))
    first = points[0].outcome
    return Finding(
        title="Averages of weights, and sums of statistics",
        claim="Sums of statistics lose less than averages of weights, whatever the averages' "
        "settings: they are the statistics of pooled data, and they explore.",
        setup=f"M = {first.n_agents}, T = {first.episodes:,}; Fed-LSVI has its defaults and a "
        f"model for every step. Averages are made every {PERIOD} episodes: of Q-tables, with equal "
        "or importance weights and ε-greedy from optimistic values, or of the weights of SARSA "
        "with a softmax. On each problem the averages have the settings that turned out best on "
        "these runs, so the comparison favours them.",
        checks=checks,
        header=["problem", "algorithm", "regret ÷ uniform", "in the last tenth", "rounds",
                "scalars"],
        rows=rows,
        panels=panels,
        notes=[
            f"{' and '.join(KINDS)} promise nothing about regret; their works have other questions "
            "([related work](../related-work.md)). An average is cheaper than sums where features "
            "are many: it sends d numbers for each step, sums send d(d + 3)/2, or 2d where "
            "features are one-hot.",
        ],
    )  # fmt: skip
