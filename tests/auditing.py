"""A lower bound on ε from outcomes with and without a canary."""

from __future__ import annotations

import numpy as np
from scipy.stats import beta

QUANTILES = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998)


def lower_bound(
    without: np.ndarray, with_: np.ndarray, delta: float, confidence: float = 0.999
) -> float:
    """ε is at least this, by Clopper and Pearson, with the confidence for each of a few thresholds:
    P(with > t) ≤ e^ε·P(without > t) + δ. Both have as many independent trials."""
    best, n = 0.0, len(without)
    for threshold in np.quantile(without, QUANTILES):
        hits, alarms = int((with_ > threshold).sum()), int((without > threshold).sum())
        if hits == 0 or alarms == n:
            continue
        power = beta.ppf(1.0 - confidence, hits, n - hits + 1)
        level = beta.ppf(confidence, alarms + 1, n - alarms)
        if power > delta:
            best = max(best, float(np.log((power - delta) / level)))
    return best
