"""How results vary over seeds: the median and an interval around it, the same everywhere.

Regret is skewed: one seed that gets stuck should move the picture by one seed, not by its size, so
the middle is the median. Its interval is the percentile bootstrap over whole runs, from a fixed
seed. Fewer than five runs cannot carry a 95 % interval: for those it is the range, min to max, and
is labelled so. (The range of n runs covers the true median with probability 1 − 2^{1−n}: 75 % for
three runs, 94 % for five.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedlsvi.checks import plural

FEWEST = 5
"""Runs from which on there is a 95 % interval."""

RESAMPLES = 2000

MEASURES = ("regret", "return", "rounds", "scalars")
"""What `aggregate` takes from the summary of a run."""


@dataclass(frozen=True)
class Interval:
    """A median and the ends of its interval, which are infinite for a single run."""

    mid: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float | None]:
        """A JSON form; unknown ends are null."""
        ends = {"low": self.low, "high": self.high}
        return {"median": self.mid} | {k: v if math.isfinite(v) else None for k, v in ends.items()}

    def text(self, form: str = ",.0f") -> str:
        """'12 [10, 15]', or '12' for a single run."""
        if not math.isfinite(self.low):
            return f"{self.mid:{form}}"
        return f"{self.mid:{form}} [{self.low:{form}}, {self.high:{form}}]"


def interval_name(n: int) -> str:
    """What the interval of n runs is: 'min–max' or '95 % bootstrap interval'; '' for one run."""
    return "" if n == 1 else "min–max" if n < FEWEST else "95 % bootstrap interval"


def over_seeds(n: int) -> str:
    """'1 seed' or 'median of 3 seeds, min–max in brackets'."""
    return "1 seed" if n == 1 else f"median of {plural(n, 'seed')}, {interval_name(n)} in brackets"


def bootstrap(values: np.ndarray, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """Median and interval of each point, (runs, points) → (3, points): median, low, high.

    Whole runs are drawn with replacement, so that the points of a curve stay together.

    Args:
        values: One row for each run.
        resamples: How often the runs are drawn.
        seed: Decides the draws; the same values and seed give the same interval.

    Returns:
        The median and the 2.5 and 97.5 % percentiles of the resampled medians; min and max for
        fewer than five runs; infinite ends for one.
    """
    runs = np.asarray(values, np.float64)
    mid = np.median(runs, axis=0)
    if len(runs) == 1:
        return np.stack([mid, np.full_like(mid, -np.inf), np.full_like(mid, np.inf)])
    if len(runs) < FEWEST:
        return np.stack([mid, runs.min(axis=0), runs.max(axis=0)])
    drawn = np.random.default_rng(seed).integers(len(runs), size=(resamples, len(runs)))
    medians = np.median(runs[drawn], axis=1)
    low, high = np.percentile(medians, [2.5, 97.5], axis=0, method="inverted_cdf")
    return np.stack([mid, low, high])


def median(values: Sequence[float] | np.ndarray, seed: int = 0) -> Interval:
    """The median and interval of one number per run."""
    column = bootstrap(np.asarray(values, np.float64)[:, None], seed=seed)[:, 0]
    return Interval(*(float(v) for v in column))


def aggregate(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Seeds and, for each measure that all runs have, its median and interval, ready for JSON."""
    found: dict[str, Any] = {"seeds": [s["seed"] for s in summaries]}
    found["interval"] = interval_name(len(summaries)) or None
    for name in MEASURES:
        values = [s[name] for s in summaries]
        found[name] = None if None in values else median(values).to_dict()
    return found
