"""Scalars over T for everybody who sends something."""

from __future__ import annotations

from fedlsvi.experiments.runner import Cell
from fedlsvi.experiments.sweeping import Size, cell, random_linear

SHARERS = (
    "fed-lsvi",
    "stale",
    "periodic",
    "centralised",
    "coop-lsvi",
    "async-coop",
    "coopts-phe",
    "coopts-lmc",
    "fedq-hoeffding",
    "fedq-bernstein",
    "fedq-advantage",
    "fed-ucbvi",
)

SLOW = ("coop-lsvi", "coopts-phe", "coopts-lmc")
"""Every agent of these replans every episode: their largest T is left out. Their scalars are
linear in T, so nothing is lost but the last point."""

EPISODES: dict[Size, list[int]] = {
    "quick": [30, 100, 300, 1000, 3000],
    "full": [30, 100, 300, 1000, 3000, 10000, 30000, 100000],
}
SLOWEST: dict[Size, int] = {"quick": 1000, "full": 10000}
SEEDS: dict[Size, int] = {"quick": 3, "full": 5}


def cells(size: Size) -> list[Cell]:
    """M = 8, d = 8, H = 5."""
    return [
        cell(name, random_linear(i), T, 8, i, {"arm": name})
        for name in SHARERS
        for T in EPISODES[size]
        if name not in SLOW or SLOWEST[size] >= T
        for i in range(SEEDS[size])
    ]
