"""Fed-LSVI and its one-shot ablation on problems whose reward lies many steps away, over γ."""

from __future__ import annotations

from typing import Any

from fedlsvi.experiments.runner import Cell
from fedlsvi.experiments.sweeping import INSTANCES, Size, cell

AGENTS = 8
EPISODES: dict[Size, int] = {"quick": 4000, "full": 40000}
SEEDS: dict[Size, int] = {"quick": 6, "full": 10}
FACTORS = (0.25, 1.0, 4.0)
"""γ as multiples of T/(Md): the rarer the rounds, the longer news is on its way."""


def problems(i: int) -> dict[str, tuple[dict[str, Any], tuple[int, int]]]:
    """Name → (environment, (H, d))."""
    return {
        "random-linear, H = 5": (
            {"name": "random-linear", "seed": INSTANCES + i, "horizon": 5, "dim": 8}, (5, 8)),
        "random-linear, H = 20": (
            {"name": "random-linear", "seed": INSTANCES + i, "horizon": 20, "dim": 8}, (20, 8)),
        "combination-lock, H = 10": ({"name": "combination-lock", "seed": INSTANCES + i}, (10, 10)),
        "deep-sea, H = 10": ({"name": "deep-sea", "size": 10}, (10, 20)),
        "n-chain, H = 18": ({"name": "n-chain"}, (18, 20)),
        "river-swim, H = 20": ({"name": "river-swim"}, (20, 12)),
    }  # fmt: skip


def cells(size: Size) -> list[Cell]:
    """Both protocols, three γ."""
    found, T = [], EPISODES[size]
    for i in range(SEEDS[size]):
        for name, (env, (H, d)) in problems(i).items():
            for factor in FACTORS:
                gamma = max(1.0, factor * T / (AGENTS * d))
                for algorithm in ("fed-lsvi", "stale"):
                    labels = {"problem": name, "factor": factor}
                    found.append(cell(algorithm, env, T, AGENTS, i, labels, (H, d), gamma=gamma))
    return found
