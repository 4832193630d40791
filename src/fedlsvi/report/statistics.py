"""Statistics over runs: pure functions, one number or curve per run in, mean and interval out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

MEASURES = ("regret", "return", "rounds", "scalars")


def interval(values: Sequence[float], level: float = 0.95) -> dict[str, float | None]:
    """Mean and Student-t interval: x̄ ± t·s/√n; the ends are None for a single value."""
    n = len(values)
    mean = values[0] if all(v == values[0] for v in values) else math.fsum(values) / n
    if n == 1:
        return {"mean": mean, "low": None, "high": None}
    variance = math.fsum((v - mean) ** 2 for v in values) / (n - 1)
    half = _student(n, level) * math.sqrt(variance / n)
    return {"mean": mean, "low": mean - half, "high": mean + half}


def aggregate(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Seeds and, for each measure that all runs have, its mean and 95 % interval."""
    found: dict[str, Any] = {"seeds": [s["seed"] for s in summaries]}
    for name in MEASURES:
        values = [s[name] for s in summaries]
        found[name] = None if None in values else interval([float(v) for v in values])
    return found


def band(curves: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, low and high at each point of (runs, points): Student's interval of the mean.

    Two runs say too little about their spread for that; theirs is the range between them.
    """
    n, mean = len(curves), curves.mean(axis=0)
    if n < 3:
        return mean, curves.min(axis=0), curves.max(axis=0)
    half = _student(n, level) * curves.std(axis=0, ddof=1) / math.sqrt(n)
    return mean, mean - half, mean + half


def band_name(n: int) -> str:
    """What `band` of n runs is, in words."""
    return "range of the two" if n == 2 else "95 % interval"


def _student(n: int, level: float) -> float:
    from scipy.stats import t

    return float(t.ppf(0.5 + level / 2.0, n - 1))
