"""Where actions have gaps: does regret grow like log T, as it does for one agent in theory?

The hard chain has a gap that can be set. Kept fixed, it leaves a logarithm; shrinking as 1/√T it
leaves √T, which shows that the measure can tell the two apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedlsvi.experiments.runner import RunSpec
from fedlsvi.experiments.sweeps import (
    PAPERS_TRIGGER,
    Point,
    Size,
    curve,
    exponent,
    lost,
    matrix,
    run_spec,
    select,
)
from fedlsvi.experiments.verdicts import Check, Finding, above, below
from fedlsvi.report.intervals import median
from fedlsvi.report.plotting import Curve, Panel

AGENTS, DIM, HORIZON = 8, 3, 4
EPISODES: dict[Size, list[int]] = {
    "quick": [4**k for k in range(4, 9)],
    "full": [4**k for k in range(4, 11)],
}
"""An odd number of them: the middle one halves log T."""

SEEDS: dict[Size, int] = {"quick": 6, "full": 12}

SMALLEST = {"gap 1": 0.25, "gap ½": 0.125}
"""The smallest loss by one wrong action, in the two problems of the claim."""

ARMS = {
    "gap 1": "gap 1",
    "gap ½": "gap ½",
    "shrinking": "gap √(T₀/T)",
    "default": "gap 1, all settings at their defaults",
    "paper": "gap 1, the paper's trigger",
}


def beta(T: int, first: int) -> float:
    """β_h = v_h/4 at the smallest T, and ∝ √log(MT), which confidence in T episodes takes."""
    return HORIZON / 4.0 * float(np.sqrt(np.log(AGENTS * T) / np.log(AGENTS * first)))


def sweep(size: Size) -> list[RunSpec]:
    """A round ends at the latest when a determinant has grown by 1 + 1/M."""
    grid, found = EPISODES[size], []
    for i in range(SEEDS[size]):
        for T in grid:
            rare = {"beta": beta(T, grid[0]), "taper": True, "bonus": "constant"}
            often = rare | {"cap": "agents", "rounds": "off", "stationary": False}
            arms: dict[str, tuple[float, dict[str, Any]]] = {
                "gap 1": (1.0, often),
                "gap ½": (0.5, often),
                "shrinking": (float(np.sqrt(grid[0] / T)), often),
                "default": (1.0, {}),
                "paper": (1.0, rare | PAPERS_TRIGGER),
            }
            for arm, (gap, own) in arms.items():
                env = {"name": "hard-chain", "dim": DIM, "horizon": HORIZON, "gap": gap, "seed": i}
                labels, about = {"arm": arm}, (HORIZON, DIM + 1)
                found.append(run_spec("fed-lsvi", env, T, AGENTS, i, labels, about, **own))
    return found


def halves(T: np.ndarray, runs: np.ndarray) -> np.ndarray:
    """(runs,): what the second half of log T adds to regret, over what the first half adds. It is
    1 for a + b·log T, and √(T_n/T_mid) for a + b·√T."""
    mid = len(T) // 2
    added: np.ndarray = (runs[:, -1] - runs[:, mid]) / (runs[:, mid] - runs[:, 0])
    return added


def between(T: np.ndarray) -> float:
    """The limit: the geometric mean of what the two laws give."""
    return float((T[-1] / T[len(T) // 2]) ** 0.25)


def finding(points: Sequence[Point]) -> Finding:
    """Growth at fixed gaps, and at one that shrinks."""
    data = {arm: matrix(select(points, arm=arm), "T", lost) for arm in ARMS}
    T = data["gap 1"][0]
    limit, root = between(T), between(T) ** 2
    added = {arm: median(halves(*data[arm])) for arm in ARMS}
    law = f"log T is 1, √T is {root:.2g}"
    checks = [
        Check(f"{ARMS[arm]}: the second half of log T adds at most {limit:.2g} times what the "
              f"first half adds ({law})", added[arm].text(".2f"), below(added[arm], limit))
        for arm in SMALLEST
    ]  # fmt: skip
    shrinks = added["shrinking"]
    checks.append(Check(f"{ARMS['shrinking']}: it adds at least {limit:.2g} times as much",
                        shrinks.text(".2f"), above(shrinks, limit)))  # fmt: skip
    checks += [
        Check(f"{ARMS[arm]}: at most {limit:.2g} times", added[arm].text(".2f"),
              below(added[arm], limit), counts=False)
        for arm in ("default", "paper")
    ]  # fmt: skip
    price = median(data["gap ½"][1][:, -1] / data["gap 1"][1][:, -1])
    rows = [
        [f"{t:,.0f}", *(median(data[arm][1][:, j]).text() for arm in ARMS)]
        for j, t in enumerate(T)
    ]  # fmt: skip
    growth = ", ".join(f"{ARMS[arm]} {exponent(*data[arm]).text('.2f')}" for arm in ARMS)
    middle = np.median(data["gap 1"][1], axis=0)
    line = middle[0] + (middle[-1] - middle[0]) * np.log(T / T[0]) / np.log(T[-1] / T[0])
    return Finding(
        title="Gaps: regret that grows like log T",
        claim="Where every wrong action costs at least a fixed amount, regret grows like log T. "
        "Known for LSVI-UCB and for federated Q-learning; not proven for Fed-LSVI.",
        setup=f"Hard chains with d = {DIM + 1}, H = {HORIZON}, four actions and a hidden best one "
        f"for each seed; one wrong action costs at least {SMALLEST['gap 1']} or "
        f"{SMALLEST['gap ½']}. M = {AGENTS}, β_h = v_h/4 at the smallest T and ∝ √log(MT), a cap "
        "of 1 + 1/M and no budget of rounds. In the third problem the gap is 1 at the smallest "
        "T₀ and shrinks: no regret can then grow more slowly than √T.",
        checks=checks,
        header=["T", *ARMS.values()],
        rows=rows,
        panels=[
            Panel("Regret against log T", "episodes per agent T", "group regret",
                  [*(curve(ARMS[arm], T, data[arm][1], colour=i)
                     for i, arm in enumerate(SMALLEST)),
                   Curve("a + b·log T", T, line, colour=-1, marks=False, dashed=True)],
                  logy=False),
            Panel("All settings", "episodes per agent T", "group regret",
                  [curve(label, T, data[arm][1], colour=i)
                   for i, (arm, label) in enumerate(ARMS.items())]),
        ],
        notes=[
            f"Exponents of regret in T over the whole grid: {growth}.",
            f"At the largest T half the gap costs {price.text('.2f')} times the regret; a bound "
            "∝ 1/gap would allow 2.",
        ],
    )  # fmt: skip
