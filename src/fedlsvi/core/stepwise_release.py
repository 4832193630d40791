"""How much noise makes N synchronisations (ε, δ)-private where agents answer step by step.

At each of N synchronisations the server learns, step after step, what a round added to ΣΛ_h and
b_h = Σφ(r + V_{h+1}(x')) over the whole history, with a V_{h+1} that is new every time. So Λ has
the correlated noise of prefix sums, of σ, where a column of C has norm c = 1 up to rounding
(`core.factorisation`); b_h gets fresh noise σ_h every time, and an episode of the first round is in
all N of them. Targets lie in [0, y_h], y_h = 1 + the clip of V_{h+1}. One episode replaced, with
g = φᵀφ', moves a step by at most

    c²·2(1 − g²)/σ² + N·2y_h²(1 − g)/σ_h²           in squares, for g ∈ [−1, 0]

and less for larger g, as in `core.private_release`. What was released before decides V and the
next episodes, which is allowed: it is a composition of Gaussian mechanisms, each chosen when the
ones before it are known, and squares add up to μ² (Dong, Roth and Su 2022).

How the budget is divided. σ_h = σ·ρ·√N/c·s_h, with s_h ∝ y_h^(2/3) and Σ_h (y_h/s_h)² the number
of Gram matrices. A pass after the last round releases b once more, and Λ not: for b it is N + 1 in
place of N. The power is what makes Σ_h σ_h smallest for a given Σ_h (y_h/σ_h)²: an error at
one step is an error of V_1. Nonnegative features then spend 1/(1 + 1/ρ²) of μ² on Λ. Steps that
share one Λ share their data: each b_h has all H steps of an episode, which add up as distances.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedlsvi.core import discrete_gaussian
from fedlsvi.core.privacy_accountant import epsilon_of
from fedlsvi.core.private_release import FEWEST_UNITS, SMOOTHING, PrivateRelease
from fedlsvi.core.statistics import packed_size

RESPONSE_RATIO = 1.0
"""ρ: 1 gives Λ and b the same share of μ²; studies/private_steps.py compared others."""

LARGEST_BITS = 23
"""The largest σ is at most about 2^23 units of the grid, half of what the sampler takes."""

ROUNDING = 1.25
"""Units by which an entry may move beyond its share of Δ: one because both neighbours are rounded
to the grid, and a quarter for sums of doubles, whose own rounding is far below it."""


@dataclass(frozen=True)
class StepwiseRelease(PrivateRelease):
    """The noise of one run whose synchronisations go step by step.

    Attributes:
        targets: (H,) y_h, the largest r + V_{h+1} of each step.
        passes: Passes after the last round, which release b alone.
        response_ratio: ρ.
    """

    targets: tuple[float, ...] = ()
    passes: int = 0
    response_ratio: float = RESPONSE_RATIO

    @property
    def answers(self) -> int:
        """How often b is released."""
        return self.rounds + self.passes

    @cached_property
    def ratios(self) -> np.ndarray:
        """(H,) σ_h/σ."""
        y = np.array(self.targets)
        power = y ** (2.0 / 3.0)
        total = float(power.sum() if self.stationary else power.mean())
        times = self.response_ratio * math.sqrt(self.answers * total) / self.factors.norm
        return np.asarray(times * power)

    def _worst(self, prefix: float, fresh: float) -> tuple[float, float]:
        """The largest squared distance of an episode, in units of (σ/c)²: of Λ, and of b.

        Args:
            prefix, fresh: The share of c², and of all releases of b, that there were.
        """
        weights = self._answers_in_units * np.square(np.array(self.targets) / self.ratios)
        if self.stationary:  # every step's vector is in Λ once and in all b
            weights = weights.sum(keepdims=True)
        gram = response = 0.0
        for weight in (fresh * weights).tolist():
            g = 0.0 if self.nonnegative else -min(1.0, weight / (2.0 * prefix))
            gram += prefix * 2.0 * (1.0 - g * g)
            response += weight * 2.0 * (1.0 - g)
        times = self.horizon**2 if self.stationary else 1
        return times * gram, times * response

    @cached_property
    def sensitivity(self) -> float:
        """Δ: how far one episode can move all that is released, in units of σ/c."""
        return math.sqrt(sum(self._worst(1.0, 1.0)))

    @property
    def _answers_in_units(self) -> float:
        """Releases of b, in units of c²."""
        return self.answers / self.factors.norm**2

    def _touched(self, prefix: float, fresh: float) -> float:
        """What rounding adds to Δ, in units of the grid."""
        gram = 2.0 * packed_size(self.dim, self.packing)  # the least noise is σ/√2
        gram *= 1 if self.stationary else self.horizon
        each = self._answers_in_units * self.dim / np.square(self.ratios)
        return ROUNDING * math.sqrt(prefix * gram + fresh * float(each.sum()))

    @cached_property
    def bits(self) -> int:
        """s: bits after the point of the grid."""
        largest = self._noise(self.sensitivity) * max(1.0, float(self.ratios.max()))
        return min(self.most_bits, math.floor(LARGEST_BITS - math.log2(largest)))

    @cached_property
    def units(self) -> float:
        """σ of the noise on Λ, in units of the grid."""
        return self._noise(math.ldexp(self.sensitivity, self.bits) + self._touched(1.0, 1.0))

    @property
    def split(self) -> tuple[float, float]:
        """(μ_Λ, μ_b): what Λ and the responses spend of μ² = μ_Λ² + μ_b²."""
        gram, response = self._worst(1.0, 1.0)
        share = gram / (gram + response)
        return self.mu * math.sqrt(share), self.mu * math.sqrt(1.0 - share)

    def response_sigma(self, h: int) -> float:
        """σ_h of the noise on b_h."""
        return self.sigma * float(self.ratios[h - 1])

    def _largest_response(self) -> float:
        return self.sigma * float(self.ratios.max())

    def step_shares(self, h: int, parties: int) -> tuple[np.ndarray, np.ndarray]:
        """σ of what each of so many parties adds at step h: (P,) int64 to Λ_h as z, and
        (d,) int64 to b_h each time. Where steps share Λ it comes with step H, P = 0 before."""
        gram = self._gram_relative()
        if self.stationary and h < self.horizon:
            gram = gram[:0]
        return self._shared(gram, parties), self._shared(
            np.full(self.dim, self.ratios[h - 1]), parties
        )

    def fits(self, parties: int) -> bool:
        """Whether shares of so many parties have enough units, and not too many."""
        least = min(math.sqrt(0.5), float(self.ratios.min())) * self.units / math.sqrt(parties)
        most = max(1.0, float(self.ratios.max())) * self.units
        return (
            least >= FEWEST_UNITS
            and most + SMOOTHING + 1 <= discrete_gaussian.LARGEST
            and self.rounding <= discrete_gaussian.LARGEST_ROUNDING
        )

    def spent(self, k: int) -> float:
        """ε at the run's δ after k synchronisations, a pass after the last one included."""
        if k >= self.answers:
            return self.epsilon
        if k < 1:
            return 0.0
        reached = float(self.factors.norms[min(k, self.rounds) - 1]) / self.factors.norm
        shares = reached**2, k / self.answers
        moved = math.ldexp(math.sqrt(sum(self._worst(*shares))), self.bits) + self._touched(*shares)
        mu = self.episodes_per_user * moved * self.factors.norm / self.units
        return epsilon_of(mu, self.delta)
