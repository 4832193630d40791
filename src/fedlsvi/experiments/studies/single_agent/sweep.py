"""One agent: Fed-LSVI, LSVI-UCB (replanning every episode), LSVI-UCB with determinant doubling."""

from __future__ import annotations

from fedlsvi.experiments.runner import Cell
from fedlsvi.experiments.sweeping import Size, cell, random_linear

EPISODES: dict[Size, list[int]] = {
    "quick": [500, 1000, 2000, 4000, 8000, 16000],
    "full": [1000, 4000, 16000, 64000, 256000],
}
SEEDS: dict[Size, int] = {"quick": 6, "full": 10}


def cells(size: Size) -> list[Cell]:
    """γ = T/d for Fed-LSVI."""
    return [
        cell(name, random_linear(i), T, 1, i, {"arm": name})
        for T in EPISODES[size]
        for name in ("fed-lsvi", "independent", "low-switching")
        for i in range(SEEDS[size])
    ]
