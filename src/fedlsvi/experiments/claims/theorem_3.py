"""Theorem 3: rounds over T, M, d, H and γ, one at a time, at both presets; T also at a fixed γ.

Is K below the bound everywhere, flat in T with γ ∝ T, and linear in T with γ fixed?
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.core.theory import rounds_floor
from fedlsvi.experiments.runner import Outcome, RunSpec
from fedlsvi.experiments.sweeps import (
    PAPERS_BONUS,
    PAPERS_TRIGGER,
    SAID_BONUS,
    Point,
    Size,
    curve,
    exponent,
    matrix,
    random_linear,
    run_spec,
    select,
    theorem_3,
    values,
)
from fedlsvi.experiments.verdicts import Check, Finding, above, always, below
from fedlsvi.report.intervals import median
from fedlsvi.report.plotting import Curve, Panel

GRID: dict[Size, dict[str, list[int]]] = {
    "quick": {
        "T": [500, 1000, 2000, 4000, 8000, 16000],
        "M": [1, 2, 4, 8, 16, 32],
        "d": [2, 4, 8, 16],
        "H": [2, 4, 8, 16],
        "γ": [4, 16, 64, 256, 1024],
    },
    "full": {
        "T": [1000, 4000, 16000, 64000, 256000, 1024000],
        "M": [1, 2, 4, 8, 16, 32, 64, 128],
        "d": [2, 4, 8, 16, 32, 64],
        "H": [2, 4, 8, 16, 32],
        "γ": [4, 16, 64, 256, 1024, 4096],
    },
}
BASE = {"T": 4000, "M": 8, "d": 8, "H": 5}
FIXED = 64.0
"""γ of the sweep over T that keeps γ fixed."""

SEEDS: dict[Size, int] = {"quick": 3, "full": 6}


def sweep(size: Size) -> list[RunSpec]:
    """Every run."""
    found = []
    for preset in ("practical", "paper"):
        for name, grid in GRID[size].items():
            for x in grid:
                found += _column(preset, name, name, x, SEEDS[size])
        for T in GRID[size]["T"]:
            found += _column(preset, "T, γ fixed", "T", T, SEEDS[size], gamma=FIXED)
    return found


def _column(preset: str, arm: str, name: str, x: int, seeds: int, **settings: Any) -> list[RunSpec]:
    at = BASE | {name: x}
    if name == "γ":
        settings["gamma"] = float(x)
    size = (at["H"], at["d"])
    return [
        run_spec(
            "fed-lsvi", random_linear(i, at["d"], at["H"]), at["T"], at["M"], i,
            {"arm": arm, "x": x, "preset": preset}, size, preset=preset,
            **PAPERS_TRIGGER | PAPERS_BONUS | settings,
        )
        for i in range(seeds)
    ]  # fmt: skip


FLAT, LINEAR = 0.15, 0.85
"""Exponents of K in T up to which it counts as flat, and from which on as linear."""

ARMS = ("T", "T, γ fixed", "M", "d", "H", "γ")


def finding(points: Sequence[Point]) -> Finding:
    """Bound, floor and growth."""
    every = list({id(p.outcome): p.outcome for p in points}.values())  # arms may share a run
    bound = always([o.rounds <= theorem_3(o) for o in every])
    floor = always([o.rounds >= rounds_floor(o.episodes, o.gamma) for o in every])
    largest = max(o.rounds / theorem_3(o) for o in every)
    checks = [
        Check("K ≤ 1 + 2T/γ + (dH/log 2)·log(1 + MT/(λd)), or T if that is less, in every run",
              f"{plural(len(every), 'run')}, the largest K is {largest:.0%} of its bound", bound),
        Check("K ≥ ⌈T/⌈γ⌉⌉ in every run", f"{plural(len(every), 'run')}", floor),
    ]  # fmt: skip
    for preset in values(points, "preset"):
        auto = matrix(select(points, arm="T", preset=preset), "x", lambda o: o.rounds)
        # the smallest T are within the burn-in, where every episode is a round
        growth = exponent(auto[0][-4:], auto[1][:, -4:])
        checks.append(Check(f"with γ = T/(Md), K is flat in T: exponent at most {FLAT} ({preset})",
                            growth.text(".2f"), below(growth, FLAT)))  # fmt: skip
        fixed = matrix(select(points, arm="T, γ fixed", preset=preset), "x", lambda o: o.rounds)
        growth = exponent(fixed[0][-4:], fixed[1][:, -4:])
        checks.append(Check(f"with γ fixed, K is linear in T: exponent of {LINEAR} or more "
                            f"({preset})", growth.text(".2f"), above(growth, LINEAR)))  # fmt: skip
    rows = []
    for arm in ARMS:
        for x in values(select(points, arm=arm), "x"):
            row = [arm, f"{x:,}"]
            for preset in ("practical", "paper"):
                runs = [p.outcome for p in select(points, arm=arm, x=x, preset=preset)]
                row += [median([o.rounds for o in runs]).text(), f"{_bound(runs):,.0f}"]
            rows.append([*row, f"{rounds_floor(runs[0].episodes, runs[0].gamma):,}"])
    return Finding(
        title="Theorem 3: rounds of communication",
        claim="K ≤ 1 + 2T/γ + (dH/log 2)·log(1 + MT/(λd)): logarithmic in T when γ = T/(Md).",
        setup="Random linear MDPs (20 states, 4 actions) around T = 4,000, M = 8, d = 8, H = 5, "
        "γ = T/(Md), varying one of them at a time; `γ fixed` is 64. The bound depends on λ: "
        "0.001 at the practical preset, 1 at the paper's; it is T if the formula gives more. "
        f"The bonus is {SAID_BONUS}.",
        checks=checks,
        header=["varied", "value", "K, practical", "bound", "K, paper", "bound", "floor"],
        rows=rows,
        panels=[_panel(points, "T", "Rounds against T"), _others(points)],
        notes=["γ ∝ T makes K flat, at the cost of regret: see the page on the trigger. The floor "
               "⌈T/⌈γ⌉⌉ ≈ Md applies to every problem."],
    )  # fmt: skip


def _bound(runs: Sequence[Outcome]) -> float:
    return float(np.median([theorem_3(o) for o in runs]))


def _panel(points: Sequence[Point], arm: str, title: str) -> Panel:
    curves = []
    for i, (name, preset) in enumerate(
        [(arm, "practical"), (arm, "paper"), (f"{arm}, γ fixed", "practical")]
    ):
        chosen = select(points, arm=name, preset=preset)
        x, runs = matrix(chosen, "x", lambda o: o.rounds)
        label = f"γ = 64, {preset}" if "fixed" in name else f"γ = T/(Md), {preset}"
        curves.append(curve(label, x, runs, colour=i))
        _, most = matrix(chosen, "x", theorem_3)
        curves.append(Curve("", x, most[0], colour=i, marks=False, dashed=True))
    return Panel(title, "episodes per agent T", "rounds K (dashed: Theorem 3)", curves)


def _others(points: Sequence[Point]) -> Panel:
    curves = []
    for i, arm in enumerate(("M", "d", "H", "γ")):
        x, runs = matrix(select(points, arm=arm, preset="practical"), "x", lambda o: o.rounds)
        curves.append(curve(f"over {arm}", x, runs, colour=i))
    return Panel("Rounds against M, d, H, γ", "value of M, d, H or γ (T = 4,000)",
                 "rounds K, practical preset", curves)  # fmt: skip
