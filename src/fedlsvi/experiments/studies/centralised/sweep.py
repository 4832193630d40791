"""Fed-LSVI, the centralised learner and agents alone, on three families, at a long T."""

from __future__ import annotations

from typing import Any

from fedlsvi.experiments.runner import Cell
from fedlsvi.experiments.sweeping import INSTANCES, Size, cell

AGENTS = 8
EPISODES: dict[Size, int] = {"quick": 5000, "full": 100000}
SEEDS: dict[Size, int] = {"quick": 3, "full": 6}


def problems(i: int) -> dict[str, tuple[dict[str, Any], tuple[int, int]]]:
    """Name → (environment, (H, d))."""
    return {
        "random-linear": ({"name": "random-linear", "seed": INSTANCES + i}, (5, 8)),
        "n-chain": ({"name": "n-chain", "n_states": 6}, (14, 12)),
        "river-swim": ({"name": "river-swim", "n_states": 6, "horizon": 20}, (20, 12)),
    }


def cells(size: Size) -> list[Cell]:
    """Fed-LSVI at γ = T/(Md), the default, and at fractions of it."""
    found, T = [], EPISODES[size]
    for i in range(SEEDS[size]):
        for name, (env, (H, d)) in problems(i).items():
            for arm, factor in (("1", 1.0), ("1/4", 0.25), ("1/8", 0.125), ("1/16", 0.0625)):
                gamma = max(1.0, factor * T / (AGENTS * d))
                labels = {"problem": name, "arm": arm}
                found.append(cell("fed-lsvi", env, T, AGENTS, i, labels, (H, d), gamma=gamma))
            labels = {"problem": name, "arm": "centralised"}
            found.append(cell("centralised", env, T, AGENTS, i, labels, (H, d)))
    return found
