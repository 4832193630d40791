"""(ε, δ) of Gaussian noise, exactly: what a release of N synchronisations spends.

A value of sensitivity Δ (in units of the noise's standard deviation, μ = Δ/σ) is (ε, δ)-private for

    δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)

and for no smaller δ (Balle and Wang 2018). Several releases with μ_1, μ_2, … are together like one
with μ² = Σμ_i², which is how budgets are divided and added up (Dong, Roth and Su 2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

LARGEST_MU = 1e3
"""Beyond this there is no privacy to speak of."""


def delta_of(mu: float, epsilon: float) -> float:
    """δ(ε) of Gaussian noise with sensitivity over standard deviation μ."""
    from scipy.special import log_ndtr  # a fifth of what it takes to import the package

    if mu == 0.0:
        return 0.0
    low = -mu / 2.0 - epsilon / mu
    first = float(log_ndtr(mu / 2.0 - epsilon / mu))
    second = epsilon + float(log_ndtr(low))
    if second >= first:  # both vanish
        return 0.0
    return math.exp(first) * -math.expm1(second - first)


def mu_of(epsilon: float, delta: float) -> float:
    """The largest μ that is (ε, δ)-private."""
    return _largest(lambda mu: delta_of(mu, epsilon) <= delta, 0.0, LARGEST_MU)


def epsilon_of(mu: float, delta: float) -> float:
    """The smallest ε for which μ is (ε, δ)-private."""
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while delta_of(mu, high) > delta:
        high *= 2.0
    return _smallest(lambda epsilon: delta_of(mu, epsilon) <= delta, 0.0, high)


def composed(epsilons: Sequence[float], delta: float) -> float:
    """ε of releases of the same records at this δ together: squares of μ add up."""
    return epsilon_of(math.hypot(*(mu_of(epsilon, delta) for epsilon in epsilons)), delta)


def share_of(epsilon: float, delta: float, share: float) -> float:
    """ε of one that has this share of the budget, which is of μ²."""
    return epsilon_of(math.sqrt(share) * mu_of(epsilon, delta), delta)


def _largest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The largest number in [low, high] for which it holds; it holds at `low`."""
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _smallest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The smallest number in [low, high] for which it holds; it holds at `high`."""
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
