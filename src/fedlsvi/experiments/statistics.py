"""Statistics over runs: pure functions, axes (runs, points), randomness from a seed that is used.

Medians, because regret is skewed: a seed that gets stuck should move the picture by one seed, not
by its size. The percentile bootstrap of a median never leaves [min, max] of the runs, which covers
the true median with probability 1 − 2^{1−n}: 75 % for three runs, 94 % for five, 97 % for six.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """A median and the ends of its interval; they are infinite where one run is all there is."""

    mid: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float | None]:
        """A JSON form; an end that is not known is null."""
        ends = {"low": self.low, "high": self.high}
        return {"median": self.mid} | {k: v if math.isfinite(v) else None for k, v in ends.items()}

    def text(self, form: str = ",.0f") -> str:
        """12 [10, 15]."""
        if not math.isfinite(self.low):
            return f"{self.mid:{form}}"
        return f"{self.mid:{form}} [{self.low:{form}}, {self.high:{form}}]"


def bootstrap(
    values: np.ndarray, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> np.ndarray:
    """(runs, points) → (3, points): median, lower and upper end of its percentile interval.

    Whole runs are drawn with replacement, so that the points of a curve stay together.
    """
    runs = np.asarray(values, np.float64)
    mid = np.median(runs, axis=0)
    if len(runs) == 1:
        return np.stack([mid, np.full_like(mid, -np.inf), np.full_like(mid, np.inf)])
    drawn = np.random.default_rng(seed).integers(len(runs), size=(resamples, len(runs)))
    medians = np.median(runs[drawn], axis=1)
    tail = 50.0 * (1.0 - level)
    low, high = np.percentile(medians, [tail, 100.0 - tail], axis=0, method="inverted_cdf")
    return np.stack([mid, low, high])


def median(values: Sequence[float] | np.ndarray, level: float = 0.95, seed: int = 0) -> Interval:
    """The median of one number per run."""
    column = bootstrap(np.asarray(values, np.float64)[:, None], level, seed=seed)[:, 0]
    return Interval(*(float(v) for v in column))


def slopes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(points,), (runs, points) → (runs,): least-squares slope of log y on log x, run by run.

    y ∝ x^a gives a exactly. Nothing is known about a slope where y is not positive.
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if np.any(x <= 0.0) or np.any(y <= 0.0):
        raise ValueError("an exponent needs positive numbers")
    u = np.log(x) - np.log(x).mean()
    found: np.ndarray = np.log(y) @ u / (u @ u)
    return found


def exponent(x: np.ndarray, y: np.ndarray, level: float = 0.95, seed: int = 0) -> Interval:
    """The exponent a of y ∝ x^a: median over the runs, with its interval."""
    return median(slopes(x, y), level, seed)


def crossing(x: np.ndarray, ours: np.ndarray, theirs: np.ndarray) -> float | None:
    """The first x from which on `ours` stays below `theirs`, straight in logarithms; None: never.

    x[0] where that is so from the start.
    """
    gap = np.log(np.asarray(ours, np.float64)) - np.log(np.asarray(theirs, np.float64))
    if gap[-1] >= 0.0:
        return None
    over = np.flatnonzero(gap >= 0.0)
    if not len(over):
        return float(x[0])
    i = int(over[-1])
    share = gap[i] / (gap[i] - gap[i + 1])
    return float(np.exp(np.log(x[i]) + share * (np.log(x[i + 1]) - np.log(x[i]))))
