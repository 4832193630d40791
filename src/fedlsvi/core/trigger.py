"""When a round ends: det(Λ_h + Λ_h^loc)/det(Λ_h) ≥ γ/Δt for some step h (eq. 3), and variants.

In logarithms, with the ratio written in whitened rows y = L⁻¹φ:

    log Δt + log det(I + Σ_j y_j y_jᵀ) ≥ log γ.

The left side is strictly increasing in Δt within a round, so the first episode that fires can be
found by bisection. For s = Σ‖y_j‖² the determinant lies in [1 + s, Π(1 + ‖y_j‖²)] ⊆ [1 + s, eˢ],
which settles most questions without computing it.

The variants (docs/trigger.md) keep this monotone. A cap c also fires at ratio ≥ c, so that a round
cannot outlive what one agent has learned; a floor keeps a round from ending before Δt = n; a budget
of K rounds is a floor that grows: no round ends before the next of K points in time; and γ(t) may
grow with the episode t at which the round began, so that nobody needs to know T.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit

TOLERANCE = 1e-9
"""Slack on the logarithm, so that an exact tie fires in spite of rounding."""


class Rule(NamedTuple):
    """The trigger of one round, as the compiled searches take it: fire at Δt if Δt ≥ floor and
    log ratio ≥ min(log γ − log Δt, log c, D/Δt); D is DisLinUCB's."""

    log_gamma: float
    log_cap: float = math.inf
    floor: int = 1
    scaled: float = math.inf


@dataclass(frozen=True)
class Trigger:
    """When rounds end; a function of the numbers in force, so that all parties agree on it.

    Attributes:
        gamma: γ of the paper.
        episodes: T. The last round ends there.
        log_cap: log c, c > 1: a ratio of c fires however short the round is; infinite in the paper.
        min_round: The fewest episodes of a round.
        rounds: The most rounds of the run; None sets no limit.
        growth: γ(t) = max(growth·t, 1) for a round that begins after episode t; 0 is a fixed γ.
        public: Whether rounds end at the points of the budget's schedule and nowhere else, so that
            when they end says nothing about data. γ is 1 then: all agents fire there.
    """

    gamma: float
    episodes: int
    log_cap: float = math.inf
    min_round: int = 1
    rounds: int | None = None
    growth: float = 0.0
    public: bool = False

    def threshold(self, t: int) -> float:
        """γ of the round that begins after episode t."""
        return max(self.growth * t, 1.0) if self.growth else self.gamma

    def floor(self, t: int) -> int:
        """The fewest episodes of the round that begins after episode t."""
        if self.rounds is None:
            return self.min_round
        points = schedule(self.episodes, self.rounds, self.min_round)
        i = int(np.searchsorted(points, t, side="right"))
        return max(self.min_round, int(points[min(i, len(points) - 1)]) - t)

    def rule(self, t: int) -> Rule:
        """The rule of the round that begins after episode t."""
        return Rule(math.log(self.threshold(t)), self.log_cap, self.floor(t))

    def longest(self, t: int) -> int:
        """The most episodes of the round that begins after episode t, nothing kept beyond it."""
        left = self.episodes - t
        most = max(math.ceil(min(self.threshold(t), left)), self.floor(t))
        return left if left - most < self.min_round else most

    def ends(self, t: int, last: int) -> bool:
        """Whether a round that began after episode t may end with episode `last`, by its length."""
        if self.public:
            return last - t == self.floor(t)
        return last - t >= self.floor(t) and (last == self.episodes or last <= self.latest)

    def number(self, t: int) -> int:
        """Which of the rounds of a public schedule ends with episode t, from 1 on; 0 is none."""
        points = schedule(self.episodes, self.rounds or 1, self.min_round)
        k = int(np.searchsorted(points, t))
        return k + 1 if k < len(points) and points[k] == t else 0

    @property
    def is_fixed(self) -> bool:
        """Whether no round is longer than ⌈γ⌉, whenever it begins."""
        return self.min_round == 1 and self.rounds is None and self.growth == 0.0

    @property
    def latest(self) -> int:
        """No round but the last ends after this episode: the one that followed would be short."""
        return self.episodes - self.min_round


@lru_cache(maxsize=64)
def schedule(episodes: int, rounds: int, first: int = 1) -> np.ndarray:
    """Episodes (K,) before which round 1 … K may not end: T in K geometric lengths from `first` on.

    At most K rounds follow, because each contains one of the points and the last point is T. Early
    rounds are short, when every episode is news, and later ones long.
    """
    K = max(1, min(rounds, episodes // first))
    low, high = 1.0, max(1.0, (episodes / first) ** (1.0 / max(K - 1, 1)))
    for _ in range(100):  # the common ratio q of the lengths: first·(1 + q + … + q^(K−1)) = T
        q = 0.5 * (low + high)
        low, high = (low, q) if first * _geometric(q, K) > episodes else (q, high)
    points = [max(math.ceil(first * _geometric(low, j)), first * j) for j in range(1, K)]
    made = np.array(
        [*(min(s, episodes - first * (K - j)) for j, s in enumerate(points, 1)), episodes]
    )
    made.setflags(write=False)
    return made


def _geometric(q: float, n: int) -> float:
    """1 + q + … + q^(n−1)."""
    return float(n) if q - 1.0 < 1e-12 else math.expm1(n * math.log(q)) / (q - 1.0)


@njit(inline="always")
def fires(length, log_ratio, rule):  # type: ignore[no-untyped-def]
    """Whether Δt ≥ floor and ratio ≥ min(γ/Δt, c), or Δt·log ratio ≥ D. A ratio is never below one:
    rounding may not delay Δt ≥ γ."""
    if length < rule.floor:
        return False
    ratio = max(log_ratio, 0.0) + TOLERANCE
    if np.log(length) + ratio >= rule.log_gamma or ratio >= rule.log_cap:
        return True
    return length * ratio >= rule.scaled


@njit(inline="always")
def settled(length, low, high, rule):  # type: ignore[no-untyped-def]
    """1: fires for sure, −1: cannot fire, 0: the determinant decides. low ≤ log ratio ≤ high."""
    if fires(length, 0.0, rule):
        return 1
    # a margin far above the rounding of the brackets and far below anything that matters
    if fires(length, low - 1e-7, rule):
        return 1
    if not fires(length, high + 1e-7, rule):
        return -1
    return 0


@njit(cache=True, nogil=True)
def logdet_in_place(a):  # type: ignore[no-untyped-def]
    """log det of a positive definite matrix; its lower triangle is overwritten by the factor."""
    dim = a.shape[0]
    total = 0.0
    for j in range(dim):
        pivot = a[j, j]
        for k in range(j):
            pivot -= a[j, k] * a[j, k]
        root = np.sqrt(pivot)
        a[j, j] = root
        total += np.log(pivot)
        for i in range(j + 1, dim):
            acc = a[i, j]
            for k in range(j):
                acc -= a[i, k] * a[j, k]
            a[i, j] = acc / root
    return total
