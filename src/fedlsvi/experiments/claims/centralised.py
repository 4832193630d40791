"""Fed-LSVI and the learner that sees everything after every episode: regret and scalars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedlsvi.experiments.runner import RunSpec
from fedlsvi.experiments.sweeps import (
    INSTANCES,
    PAPERS_TRIGGER,
    Point,
    Size,
    lost,
    run_spec,
    select,
)
from fedlsvi.experiments.verdicts import Check, Finding, below
from fedlsvi.report.intervals import Interval, bootstrap, median
from fedlsvi.report.plotting import Curve, Panel

AGENTS = 8
EPISODES: dict[Size, int] = {"quick": 5000, "full": 100000}
SEEDS: dict[Size, dict[str, int]] = {
    "quick": {"random-linear": 3, "n-chain": 3, "river-swim": 3},
    "full": {"random-linear": 16, "n-chain": 6, "river-swim": 6},
}

JUDGED = ("random-linear", "n-chain", "river-swim")
"""The problems of the claim; the other families are in the table, with two seeds each."""

# the centralised learner has a model for every step, and so have those it is compared with
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {"stationary": False},
    "anytime": {"gamma": "anytime", "stationary": False},
    "paper": PAPERS_TRIGGER,
    "alike": {"stationary": False, "diversity": 0},
}
DIVERSE = ("n-chain", "deep-sea")
"""Deterministic problems, where Fed-LSVI's agents have different policies and the centralised
learner's do not; the arm "alike" has that switched off."""

ARMS = {
    "default": "Fed-LSVI",
    "anytime": "Fed-LSVI, T not known",
    "paper": "Fed-LSVI, the paper's trigger",
    "alike": "Fed-LSVI, no diversity",
    "centralised": "centralised",
}

PALETTE = ("default", "centralised", "anytime", "paper", "alike")
"""In the order of the colours: `report.colours` has the algorithms'."""


def problems(i: int) -> dict[str, tuple[dict[str, Any], tuple[int, int]]]:
    """Name → (environment, (H, d))."""
    n = INSTANCES + i
    return {
        "random-linear": ({"name": "random-linear", "seed": n}, (5, 8)),
        "n-chain": ({"name": "n-chain", "n_states": 6}, (14, 12)),
        "river-swim": ({"name": "river-swim", "n_states": 6, "horizon": 20}, (20, 12)),
        "combination-lock": ({"name": "combination-lock", "horizon": 8, "seed": n}, (8, 10)),
        "hard-chain": ({"name": "hard-chain", "seed": n}, (6, 5)),
        "deep-sea": ({"name": "deep-sea", "size": 8}, (8, 16)),
        "garnet": ({"name": "garnet", "n_states": 10, "n_actions": 2, "horizon": 6, "seed": n},
                   (6, 20)),
    }  # fmt: skip


def sweep(size: Size) -> list[RunSpec]:
    """Fed-LSVI as it is out of the box, without knowing T, and with the paper's trigger."""
    found, T = [], EPISODES[size]
    for i in range(max(SEEDS[size].values())):
        for name, (env, (H, d)) in problems(i).items():
            if i >= SEEDS[size].get(name, 2):
                continue
            for arm, own in SETTINGS.items():
                if arm == "alike" and name not in DIVERSE:
                    continue
                labels = {"problem": name, "arm": arm}
                found.append(run_spec("fed-lsvi", env, T, AGENTS, i, labels, (H, d), **own))
            labels = {"problem": name, "arm": "centralised"}
            found.append(run_spec("centralised", env, T, AGENTS, i, labels, (H, d)))
    return found


NEAR, SHARE = 1.25, 0.02
"""Largest ratio of regrets, and largest share of the scalars."""


def finding(points: Sequence[Point]) -> Finding:
    """Ratios seed by seed."""
    problems = list(dict.fromkeys(p.labels["problem"] for p in points))
    checks, rows, panels = [], [], []
    for n in problems:
        near, share = (_ratio(points, n, "default", what) for what in ("regret", "scalars"))
        checks += [
            Check(f"{n}: regret ÷ centralised at most {NEAR}",
                  near.text(".2f"), below(near, NEAR), counts=n in JUDGED),
            Check(f"{n}: at most {SHARE:.0%} of its scalars", f"{share.mid:.2%}",
                  below(share, SHARE), counts=n in JUDGED),
        ]  # fmt: skip
        for arm, title in ARMS.items():
            runs = [p.outcome for p in select(points, problem=n, arm=arm)]
            if not runs:
                continue
            shares = [lost(o) / o.uniform for o in runs if o.uniform]
            rows.append([
                n, title,
                median([lost(o) for o in runs]).text(), median(shares).text(".4f"),
                _ratio(points, n, arm, "regret").text(".2f"),
                median([o.rounds for o in runs]).text(), median([o.scalars for o in runs]).text(),
                f"{_ratio(points, n, arm, 'scalars').mid:.2%}",
            ])  # fmt: skip
        if n in JUDGED:
            panels.append(_panel(points, n))
    first = points[0].outcome
    return Finding(
        title="Fed-LSVI and the centralised learner",
        claim=f"Fed-LSVI's regret is within {NEAR} times that of the learner that pools all "
        f"trajectories after every episode, at less than {SHARE:.0%} of its scalars.",
        setup=f"M = {first.n_agents}, T = {first.episodes:,}, practical preset: a round also ends "
        "when a determinant has grown by 1 + 1/M, and no run sends more than its raw data. Both "
        "have the bonus that knows the noise, and a model for every step. Random linear MDPs with "
        "20 states, d = 8, H = 5; N-chain with 6 states (d = 12, H = 14); RiverSwim with 6 states "
        "(d = 12, H = 20). The claim is about these three; the other families are informational, "
        "with two seeds each.",
        checks=checks,
        header=["problem", "algorithm", "group regret", "regret ÷ uniform", "regret ÷ centralised",
                "rounds", "scalars", "scalars ÷ centralised"],
        rows=rows,
        panels=panels,
        notes=[
            "The paper's trigger has γ = T/(Md): the longer the run, the longer agents keep each "
            f"early policy. Compared with the default, {_cost(points)}.",
            *_diverse(points),
        ],
    )  # fmt: skip


def _ratio(points: Sequence[Point], problem: str, arm: str, field: str) -> Interval:
    ours, theirs = (
        {p.labels["seed"]: float(getattr(p.outcome, field))
         for p in select(points, problem=problem, arm=name)}
        for name in (arm, "centralised")
    )  # fmt: skip
    return median([ours[s] / theirs[s] for s in sorted(ours)])


def _diverse(points: Sequence[Point]) -> list[str]:
    """Why the learner that sees everything may lose more."""
    said = [
        f"{_ratio(points, n, 'default', 'regret').mid:.2f} becomes "
        f"{_ratio(points, n, 'alike', 'regret').mid:.2f} ({n})"
        for n in DIVERSE
        if select(points, problem=n)
    ]
    return [
        "On deterministic problems Fed-LSVI's agents have different policies (diversity), while "
        "those of the centralised learner all follow one and see the same. So Fed-LSVI can lose "
        "less there than the learner that sees everything. Where both explore alike, with "
        f"`diversity=0`, it does not: its regret relative to the centralised learner's, "
        f"{', '.join(said)}."
    ]


def _cost(points: Sequence[Point]) -> str:
    """The paper's trigger and the default: regret over the centralised learner's, and scalars."""
    said = []
    for n in JUDGED:
        before, after = (_ratio(points, n, arm, "regret").mid for arm in ("paper", "default"))
        sent = [_ratio(points, n, arm, "scalars").mid for arm in ("paper", "default")]
        said.append(f"regret is {before:.2f} times the centralised learner's instead of "
                    f"{after:.2f}, with {sent[0] / sent[1]:.0%} of the scalars ({n})")  # fmt: skip
    return "; ".join(said)


def _panel(points: Sequence[Point], problem: str) -> Panel:
    curves = []
    for arm, name in ARMS.items():
        runs = [p.outcome.curve for p in select(points, problem=problem, arm=arm)]
        if not runs:
            continue
        mid, low, high = bootstrap(np.array([run["regret"] for run in runs]))
        t, colour = np.array(runs[0]["t"]), PALETTE.index(arm)
        curves.append(Curve(name, t, mid, low, high, colour=colour, marks=False))
    return Panel(problem, "episode t (each agent)", "group regret", curves)
