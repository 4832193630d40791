"""Regret as the agents' MDPs move apart, with three ways to widen β."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

from fedlsvi.config import PRACTICAL_BETA
from fedlsvi.core.theory import beta_homogeneous, misspecification_width
from fedlsvi.experiments.runner import Cell
from fedlsvi.experiments.sweeping import INSTANCES, Size, cell

AGENTS, DIM, HORIZON = 8, 8, 5
EPISODES: dict[Size, int] = {"quick": 4000, "full": 16000}
SPREAD = (0.25, 4.0)
"""Other T, in units of that one, at which β as it is shows where the break goes."""

FACTORS: dict[Size, list[float]] = {
    "quick": [0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0],
    "full": [0.0, 0.1, 0.3, 0.6, 1.0, 2.0, 3.0, 10.0, 30.0],
}
"""ξ in units of the predicted break √(d/(MT))."""

SEEDS: dict[Size, int] = {"quick": 6, "full": 10}
ARMS = ("as it is", "in proportion", "as printed")


def predicted(episodes: int) -> float:
    """ξ* = √(d/(MT))."""
    return math.sqrt(DIM / (AGENTS * episodes))


def widening(arm: str, xi: float, T: int) -> dict[str, Any]:
    """Settings of an arm. In proportion: 2Hξ√(dMT) scaled down as the practical β is from the
    theorem's, so that both parts of β keep their proportion."""
    if arm == "as it is":
        return {}
    if arm == "as printed":
        return {"xi": xi}
    beta = PRACTICAL_BETA * HORIZON
    share = beta / beta_homogeneous(DIM, HORIZON, AGENTS, T)
    return {"beta": beta + share * misspecification_width(DIM, HORIZON, AGENTS, T, xi)}


def cells(size: Size) -> list[Cell]:
    """Point-mass noise at exactly ξ: the agents' MDPs are not linear in φ."""
    main, found = EPISODES[size], []
    for i in range(SEEDS[size]):
        reference = {
            "name": "random-linear",
            "params": {"seed": INSTANCES + i, "dim": DIM, "horizon": HORIZON},
        }
        for factor, T in product(FACTORS[size], (main, *(int(main * s) for s in SPREAD))):
            xi = min(1.0, factor * predicted(T))
            env = {
                "name": "xi-close", "reference": reference, "xi": xi, "mode": "exact",
                "noise": "point", "seed": i,
            }  # fmt: skip
            for arm in ARMS:
                if (factor == 0.0 or main != T) and arm != "as it is":
                    continue
                labels = {"arm": arm, "factor": factor, "ξ": xi, "main": main == T}
                found.append(cell("fed-lsvi", env, T, AGENTS, i, labels, **widening(arm, xi, T)))
    return found
