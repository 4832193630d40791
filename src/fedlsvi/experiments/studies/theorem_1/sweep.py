"""Regret over T, and over M beside agents that learn alone; the theorem's β on the side."""

from __future__ import annotations

from fedlsvi.experiments.runner import Cell
from fedlsvi.experiments.sweeping import Size, cell, random_linear

EPISODES: dict[Size, list[int]] = {
    "quick": [1000, 2000, 4000, 8000, 16000, 32000],
    "full": [1000, 4000, 16000, 64000, 256000, 1024000],
}
AGENTS: dict[Size, list[int]] = {"quick": [1, 2, 4, 8, 16, 32], "full": [1, 2, 4, 8, 16, 32, 64]}
SEEDS: dict[Size, int] = {"quick": 6, "full": 10}
ALONE: dict[Size, int] = {"quick": 3000, "full": 20000}
"""T of the sweep over M."""


def cells(size: Size) -> list[Cell]:
    """γ is T/(Md) in every run, so every T is a run of its own."""
    found = []
    for i in range(SEEDS[size]):
        env = random_linear(i)
        for T in EPISODES[size]:
            found.append(cell("fed-lsvi", env, T, 8, i, {"arm": "T"}))
        for T in EPISODES[size][:4]:
            found.append(cell("fed-lsvi", env, T, 8, i, {"arm": "theory"}, preset="paper"))
        T = ALONE[size]
        for M in AGENTS[size]:
            found.append(cell("fed-lsvi", env, T, M, i, {"arm": "M"}))
        # agents alone do not know of each other: M of them lose M times what one loses
        found.append(cell("independent", env, T, 4, i, {"arm": "alone"}))
    return found
