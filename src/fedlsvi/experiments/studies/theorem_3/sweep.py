"""Rounds over T, M, d, H and γ, one at a time, at both presets; and over T at a fixed γ."""

from __future__ import annotations

from typing import Any

from fedlsvi.experiments.runner import Cell
from fedlsvi.experiments.sweeping import Size, cell, random_linear

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


def cells(size: Size) -> list[Cell]:
    """Every run."""
    found = []
    for preset in ("practical", "paper"):
        for name, grid in GRID[size].items():
            for x in grid:
                found += _column(preset, name, name, x, SEEDS[size])
        for T in GRID[size]["T"]:
            found += _column(preset, "T, γ fixed", "T", T, SEEDS[size], gamma=FIXED)
    return found


def _column(preset: str, arm: str, name: str, x: int, seeds: int, **settings: Any) -> list[Cell]:
    at = BASE | {name: x}
    if name == "γ":
        settings["gamma"] = float(x)
    size = (at["H"], at["d"])
    return [
        cell(
            "fed-lsvi", random_linear(i, at["d"], at["H"]), at["T"], at["M"], i,
            {"arm": arm, "x": x, "preset": preset}, size, preset=preset, **settings,
        )
        for i in range(seeds)
    ]  # fmt: skip
