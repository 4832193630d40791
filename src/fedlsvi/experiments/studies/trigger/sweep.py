"""Regret and rounds over γ, from every episode a round to hardly any round."""

from __future__ import annotations

from fedlsvi.experiments.runner import Cell
from fedlsvi.experiments.sweeping import Size, cell, random_linear

AGENTS, DIM = 8, 8
EPISODES: dict[Size, int] = {"quick": 4096, "full": 65536}
GAMMAS: dict[Size, list[float]] = {
    "quick": [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0],
    "full": [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0],
}
SEEDS: dict[Size, int] = {"quick": 6, "full": 10}


def cells(size: Size) -> list[Cell]:
    """T is a power of two, so that T/(Md) is on the grid."""
    T = EPISODES[size]
    assert T / (AGENTS * DIM) in GAMMAS[size]
    return [
        cell("fed-lsvi", random_linear(i), T, AGENTS, i, {"γ": g, "arm": "γ"}, gamma=g)
        for g in GAMMAS[size]
        for i in range(SEEDS[size])
    ]
