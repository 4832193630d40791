"""Statistics over runs: pure functions, one number per run in, mean and interval out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

MEASURES = ("regret", "rounds", "scalars")


def interval(values: Sequence[float], level: float = 0.95) -> dict[str, float | None]:
    """Mean and Student-t interval: x̄ ± t·s/√n; the ends are None for a single value."""
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return {"mean": mean, "low": None, "high": None}
    from scipy.stats import t

    variance = math.fsum((v - mean) ** 2 for v in values) / (n - 1)
    half = float(t.ppf(0.5 + level / 2.0, n - 1)) * math.sqrt(variance / n)
    return {"mean": mean, "low": mean - half, "high": mean + half}


def aggregate(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Seeds and, for each measure that all runs have, its mean and 95 % interval."""
    found: dict[str, Any] = {"seeds": [s["seed"] for s in summaries]}
    for name in MEASURES:
        values = [s[name] for s in summaries]
        found[name] = None if None in values else interval([float(v) for v in values])
    return found
