"""Rounds that a determinant ends, and rounds of a fixed length: who loses less with equally many?

The trigger's rounds are known only afterwards. So the period is swept, and its regret is read off,
straight in logarithms, at the number of rounds that the trigger took.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedlsvi.experiments.runner import Outcome, RunSpec
from fedlsvi.experiments.sweeps import INSTANCES, Point, Size, curve, lost, matrix, run_spec, select
from fedlsvi.experiments.verdicts import Check, Finding, Verdict, above
from fedlsvi.report.intervals import median
from fedlsvi.report.plotting import Curve, Panel

AGENTS = 8
EPISODES: dict[Size, int] = {"quick": 4096, "full": 16384}
ROUNDS: dict[Size, list[int]] = {
    "quick": [8, 16, 32, 64, 128, 256, 512],
    "full": [8, 16, 32, 64, 128, 256, 512, 1024],
}
"""Of fixed periods; they divide the episodes."""

SEEDS: dict[Size, int] = {"quick": 6, "full": 10}

ALIKE: dict[str, Any] = {"stationary": False, "diversity": 0, "bonus": "noise"}
"""What both have; diversity is Fed-LSVI's alone."""

TRIGGERS: dict[str, dict[str, Any]] = {
    "doubling": {"gamma": 1e9, "cap": 2.0, "rounds": "off"},
    "paper": {"cap": "off", "rounds": "off"},
}

ARMS = {"doubling": "a determinant that doubles", "paper": "the paper's trigger"}

WORSE = 1.1
"""The ratio of regrets from which on a period counts as worse."""


def problems(i: int) -> dict[str, tuple[dict[str, Any], tuple[int, int]]]:
    """Name → (environment, (H, d))."""
    n = INSTANCES + i
    return {
        "random-linear": ({"name": "random-linear", "seed": n, "dim": 8, "horizon": 5}, (5, 8)),
        "combination-lock": ({"name": "combination-lock", "horizon": 8, "seed": n}, (8, 10)),
        "river-swim": ({"name": "river-swim", "n_states": 6, "horizon": 20}, (20, 12)),
        "garnet": ({"name": "garnet", "n_states": 10, "n_actions": 2, "horizon": 6, "seed": n},
                   (6, 20)),
    }  # fmt: skip


def sweep(size: Size) -> list[RunSpec]:
    """Two triggers and all periods, with the same draws."""
    found, T = [], EPISODES[size]
    for i in range(SEEDS[size]):
        for name, (env, about) in problems(i).items():
            for arm, own in TRIGGERS.items():
                labels = {"problem": name, "arm": arm}
                settings = ALIKE | own
                found.append(run_spec("fed-lsvi", env, T, AGENTS, i, labels, about, **settings))
            for K in ROUNDS[size]:
                labels = {"problem": name, "arm": "period"}
                settings = {k: v for k, v in ALIKE.items() if k != "diversity"}
                settings |= {"period": T // K}
                found.append(
                    run_spec("periodic", env, T, AGENTS, i, labels | {"K": K}, about, **settings)
                )
    return found


def at_equal_rounds(rounds: np.ndarray, K: np.ndarray, regret: np.ndarray) -> np.ndarray:
    """(runs,), (periods,), (runs, periods) → (runs,): regret of a period with as many rounds. NaN
    where no period has as many."""
    found = [np.interp(np.log(k), np.log(K), np.log(row), left=np.nan, right=np.nan)
             for k, row in zip(rounds, regret, strict=True)]  # fmt: skip
    same: np.ndarray = np.exp(np.array(found))
    return same


def _rounds(o: Outcome) -> float:
    return o.rounds


def finding(points: Sequence[Point]) -> Finding:
    """Ratios of regret at equal rounds, seed by seed."""
    names = list(dict.fromkeys(p.labels["problem"] for p in points))
    checks, rows, panels = [], [], []
    for n in names:
        here = select(points, problem=n)
        K, regret = matrix(select(here, arm="period"), "K", lost)
        curves = [curve("fixed periods", K, regret, colour=1)]
        for arm in TRIGGERS:
            runs = select(here, arm=arm)
            own, rounds = (matrix(runs, "T", f)[1][:, 0] for f in (lost, _rounds))
            ratios = at_equal_rounds(rounds, K, regret) / own
            known = bool(np.all(np.isfinite(ratios)))
            ratio = median(ratios) if known else None
            checks.append(Check(
                f"{n}, {ARMS[arm]}: a period with as many rounds has at least {WORSE} times the "
                "regret", f"{ratio.text('.2f')} times" if ratio else "no period has as many rounds",
                above(ratio, WORSE) if ratio else Verdict.OPEN,
            ))  # fmt: skip
            rows.append([n, ARMS[arm], median(rounds).text(), median(own).text(),
                         ratio.text(".2f") if ratio else ""])  # fmt: skip
            mid, low, high = (np.array([getattr(median(own), end)]) for end in
                              ("mid", "low", "high"))  # fmt: skip
            colour = 0 if arm == "paper" else 2
            curves.append(Curve(ARMS[arm], np.array([np.median(rounds)]), mid, low, high, colour))
        rows += [
            [n, f"a round every {points[0].outcome.episodes / k:,.0f} episodes", f"{k:,.0f}",
             median(column).text(), ""]
            for k, column in zip(K, regret.T, strict=True)
        ]  # fmt: skip
        panels.append(Panel(n, "rounds K", "group regret", curves))
    first = points[0].outcome
    return Finding(
        title="Determinants and fixed periods, at equal rounds",
        claim="With as many rounds, a determinant that ends them loses less than a fixed period: "
        "it puts rounds where something was learned.",
        setup=f"M = {first.n_agents}, T = {first.episodes:,}, practical preset, a model for every "
        "step, the same seeds. *A determinant that doubles* is γ = 10⁹ with a cap of 2; the "
        "paper's trigger has γ = T/(Md). Regret of a period at the trigger's number of rounds is "
        "read between the two nearest periods, straight in logarithms.",
        checks=checks,
        header=["problem", "rounds end by", "rounds", "group regret",
                "a period's regret at as many rounds, over it"],
        rows=rows,
        panels=panels,
    )  # fmt: skip
