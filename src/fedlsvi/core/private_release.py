"""How much noise makes N synchronisations (ε, δ)-private, from numbers that everybody knows.

What is released of all agents is Λ_h, u_h = Σφr and N_h = Σφ e_{x'}ᵀ of all steps, summed over the
first k rounds, k = 1 … N. Replace one episode: with noise σ, u_ratio·σ and n_ratio·σ on the three,
a step contributes to the squared distance, in units of σ², at most

    ‖φφᵀ − φ'φ'ᵀ‖² + ‖φr − φ'r'‖²/u_ratio² + ‖φe_xᵀ − φ'e_x'ᵀ‖²/n_ratio²,

for g = φᵀφ' ∈ [−1, 0] at most 2(1 − g²) + 2(1/u_ratio² + 1/n_ratio²)(1 − g), which is concave in g,
and for g ≥ 0 at most its value at 0. Features that are never negative have g ≥ 0. Steps that keep
sums of their own add squares; steps that share their sums add distances. A unit of m episodes
counts m times. With the prefix sums factorised as B·C (`core.factorisation`) and c the largest norm
of a column of C, 1 up to rounding,

    μ = m·Δ·c/σ,

and `core.privacy_accountant` turns μ into (ε, δ). studies/protections.md has the proof, with
the two details that are here: what rounding to integers adds to Δ, and `SMOOTHING`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedlsvi.core import discrete_gaussian
from fedlsvi.core.factorisation import Factorisation, factorise
from fedlsvi.core.privacy_accountant import epsilon_of, mu_of
from fedlsvi.core.statistics import Packing, packed_size

U_RATIO, N_RATIO = 0.5, 0.5
"""Noise on u and on N over noise on Λ; a trial chose them (studies/private.py)."""

GRID_BITS = 20
"""σ is about 2^20 units of the grid, so that rounding costs next to nothing."""

SMOOTHING = 3.0
"""A discrete Gaussian of variance σ² + r² is a continuous one of variance σ² that was rounded at
random with parameter r (Peikert 2010), up to a factor 1 ± e^(−2π²r²) = 1 ± 10^-77. So with r = 3
units of variance more, the formula for continuous noise holds."""

FEWEST_UNITS = 64
"""A share of fewer units would not add up to a discrete Gaussian to the last digit (Kairouz, Liu
and Steinke 2021, whose bound is below 10^-4000 from here on)."""


@dataclass(frozen=True)
class PrivateRelease:
    """The noise of one run.

    Attributes:
        epsilon, delta: What the whole run may spend.
        episodes_per_user: m, the episodes of one unit.
        weights: (N,) what the sums of the first k rounds count (`core.factorisation`); one round
            more where logs are the first.
        horizon, dim, states: H, d and S.
        packing: How Gram matrices travel.
        stationary: Whether steps share their sums.
        nonnegative: Whether no feature is negative.
        most_bits: The most bits after the point that sums leave room for.
    """

    epsilon: float
    delta: float
    episodes_per_user: int
    weights: tuple[float, ...]
    horizon: int
    dim: int
    states: int
    packing: Packing
    stationary: bool
    nonnegative: bool
    most_bits: int

    @cached_property
    def mu(self) -> float:
        """μ of the whole run."""
        return mu_of(self.epsilon, self.delta)

    @property
    def rounds(self) -> int:
        """N."""
        return len(self.weights)

    @property
    def factors(self) -> Factorisation:
        """How the noise of one round goes into that of the next."""
        return factorise(self.weights)

    @property
    def rounding(self) -> int:
        """The parameter with which mixed noise is rounded to the grid: wide enough that the sum is
        a discrete Gaussian, as `SMOOTHING` is, whatever D does to distances."""
        return math.ceil(1.01 * SMOOTHING * self.factors.spread)

    @cached_property
    def sensitivity(self) -> float:
        """Δ: how far one episode can move the sums, in units of the noise on Λ."""
        last = self._step(0.0)
        other = self._step(1.0 / N_RATIO**2)
        if self.stationary:
            return self.horizon * math.sqrt(other)
        return math.sqrt((self.horizon - 1) * other + last)

    def _step(self, following: float) -> float:
        """The largest squared distance at one step; `following` is 1/n_ratio², or 0 without N."""
        rest = 1.0 / U_RATIO**2 + following
        g = 0.0 if self.nonnegative else -min(1.0, rest / 2.0)
        return 2.0 * (1.0 - g * g) + 2.0 * rest * (1.0 - g)

    @property
    def _rounded(self) -> float:
        """What rounding adds to Δ, in units of the grid: each entry that the episode touches may
        move by one more, and the least noise is on u, N or off the diagonal."""
        size = packed_size(self.dim, self.packing)
        touched = self.horizon * (size + self.dim + 2 * self.dim)
        return math.sqrt(touched) / min(U_RATIO, N_RATIO, math.sqrt(0.5))

    @cached_property
    def bits(self) -> int:
        """s: bits after the point of the grid."""
        sigma = self._noise(self.sensitivity)
        return min(self.most_bits, math.floor(GRID_BITS - math.log2(sigma)))

    @cached_property
    def units(self) -> float:
        """σ of the noise on Λ, in units of the grid."""
        return self._noise(math.ldexp(self.sensitivity, self.bits) + self._rounded)

    @property
    def sigma(self) -> float:
        """σ of z, the noise on the diagonal of Λ that is new in a round."""
        return math.ldexp(self.units, -self.bits)

    def _noise(self, distance: float) -> float:
        return self.episodes_per_user * distance * self.factors.norm / self.mu

    def shares(self, parties: int) -> np.ndarray:
        """(words,) int64, σ of what each of so many parties adds to the words of one upload, so
        that their sum has the noise that is needed."""
        d, matrices = self.dim, 1 if self.stationary else self.horizon
        tables = 1 if self.stationary else self.horizon - 1
        relative = np.concatenate(
            [np.tile(self._gram_relative(), matrices), np.full(matrices * d, U_RATIO),
             np.full(tables * d * self.states, N_RATIO)]
        )  # fmt: skip
        return self._shared(relative, parties)

    def _gram_relative(self) -> np.ndarray:
        """(P,) noise on the entries of one Λ over σ."""
        gram = np.full(packed_size(self.dim, self.packing), 1.0)
        if self.packing == "packed":  # each entry off the diagonal stands for two
            rows, columns = np.triu_indices(self.dim)
            gram[rows != columns] = math.sqrt(0.5)
        return gram

    def _shared(self, relative: np.ndarray, parties: int) -> np.ndarray:
        """One party's share of noise that is so many times σ."""
        needed = np.square(relative * self.units) + SMOOTHING**2
        found: np.ndarray = np.ceil(np.sqrt(needed / parties)).astype(np.int64)
        return found

    def fits(self, parties: int) -> bool:
        """Whether shares of so many parties have enough units, and not too many."""
        smallest = min(U_RATIO, N_RATIO) * self.units / math.sqrt(parties)
        return (
            smallest >= FEWEST_UNITS
            and self.units + SMOOTHING + 1 <= discrete_gaussian.LARGEST
            and self.rounding <= discrete_gaussian.LARGEST_ROUNDING
        )

    def spent(self, k: int) -> float:
        """ε at the run's δ after k synchronisations."""
        if k >= self.rounds:
            return self.epsilon
        if k < 1:
            return 0.0
        reached = float(self.factors.norms[k - 1]) / self.factors.norm
        return epsilon_of(reached * self.mu, self.delta)

    def gram_norm(self, times: float, confidence: float | None = None) -> float:
        """r: the spectral norm of noise on Λ of so many times its variance, as expected, or not
        exceeded at any step and round with probability 1 − α.

        Isotropic noise of σ in Frobenius norm has E‖Z‖ ≤ σ√(2d), and ‖·‖ is 1-Lipschitz, so that it
        is exceeded by σx with probability at most 2e^(−x²/2).

        Args:
            times: Of the sums in question over z's, times the parties that add all of the noise.
            confidence: α.
        """
        each = self.sigma * np.sqrt(times)
        if self.packing == "diagonal":
            width = np.sqrt(2.0 * np.log(2.0 * self.dim))
        else:
            width = np.sqrt(2.0 * self.dim)
        if confidence is not None:
            width += self._tail(confidence)
        return float(each * width)

    def _tail(self, confidence: float) -> float:
        return math.sqrt(2.0 * math.log(2.0 * self.horizon * self.rounds / confidence))

    def theory_width(self, lam: float, times: float, confidence: float) -> float:
        """What the theorem's β grows by: 2H√d·√(λ + 3r), because Λ is off by at most λ + 3r, and
        the noise of b in the norm of Λ⁻¹, whose eigenvalues are at most 1/(λ + r).

        Args:
            lam: λ.
            times: How many times the variance that privacy needs sums may have.
            confidence: α.
        """
        summed = self.factors.summed
        most, least = (self.gram_norm(times * n, confidence) for n in (summed.max(), summed.min()))
        noise = self._largest_response() * (math.sqrt(self.dim) + self._tail(confidence))
        off = 2.0 * self.horizon * math.sqrt(self.dim * (lam + 3.0 * most))
        return off + noise * math.sqrt(times) / math.sqrt(lam + least)

    def _largest_response(self) -> float:
        """σ of an entry of u + NV, V ≤ H in S states."""
        square = U_RATIO**2 + self.states * (N_RATIO * self.horizon) ** 2
        return self.sigma * math.sqrt(float(self.factors.summed.max()) * square)
