"""Discrete noise: the distribution, exactly, and a literal sampler that draws the same integers."""

from __future__ import annotations

from hashlib import shake_256

import numpy as np
import pytest
from scipy.stats import chisquare

from fedlsvi.core.discrete_gaussian import (
    LARGEST,
    LARGEST_ROUNDING,
    discrete_gaussian,
    randomly_rounded,
)

KEY = bytes(range(32))


class Bits:
    """A stream of bits, lowest bit of the first byte first."""

    def __init__(self, data: bytes) -> None:
        self.rest = int.from_bytes(data, "little")

    def below(self, n: int) -> int:
        """A uniform integer in [0, n)."""
        width = (n - 1).bit_length()
        while True:
            drawn = self.rest & ((1 << width) - 1)
            self.rest >>= width
            if drawn < n:
                return drawn

    def exp(self, n: int, d: int) -> bool:
        """True with probability exp(−n/d), by the series of von Neumann."""
        while n >= d > 1:
            if not self.exp(1, 1):
                return False
            n -= d
        k = 1
        while self.below(d * k) < n:
            k += 1
        return k % 2 == 1

    def laplace(self, scale: int) -> int:
        """k with probability ∝ exp(−|k|/scale)."""
        while True:
            low = self.below(scale)
            if not self.exp(low, scale):
                continue
            high = 0
            while self.exp(1, 1):
                high += 1
            negative, k = self.below(2), low + scale * high
            if not (negative and k == 0):
                return -k if negative else k

    def gaussian(self, sigma: int) -> int:
        """Canonne, Kamath and Steinke's Algorithm 3 with t = σ."""
        while True:
            k = self.laplace(sigma)
            if self.exp((abs(k) - sigma) ** 2, 2 * sigma**2):
                return k


def test_the_literal_sampler_draws_the_same() -> None:
    sigma = np.array([1, 2, 3, 100, 2**20, LARGEST] * 40)
    label = b"anything"
    stream = shake_256(len(label).to_bytes(8, "little") + label + KEY).digest(8 * 60 * sigma.size)
    literal = Bits(stream)
    assert discrete_gaussian(KEY, label, sigma).tolist() == [
        literal.gaussian(int(s)) for s in sigma
    ]


@pytest.mark.parametrize("sigma", [1, 3, 7])
def test_probabilities(sigma: int) -> None:
    n = 200_000
    drawn = discrete_gaussian(KEY, b"probabilities", np.full(n, sigma))
    k = np.arange(-12 * sigma, 12 * sigma + 1)
    p = np.exp(-0.5 * (k / sigma) ** 2)
    p /= p.sum()
    counts = np.array([(drawn == one).sum() for one in k])
    assert counts.sum() == n
    often = n * p >= 10
    seen = np.append(counts[often], counts[~often].sum())
    expected = np.append(n * p[often], n * p[~often].sum())
    assert chisquare(seen, expected).pvalue > 1e-4


@pytest.mark.parametrize("sigma", [100, 2**20, LARGEST])
def test_moments_where_the_grid_is_fine(sigma: int) -> None:
    n = 100_000
    drawn = discrete_gaussian(KEY, b"moments", np.full(n, sigma)) / sigma
    assert abs(drawn.mean()) < 5.0 / np.sqrt(n)
    assert abs((drawn**2).mean() - 1.0) < 5.0 * np.sqrt(2.0 / n)
    assert abs((drawn**4).mean() - 3.0) < 5.0 * np.sqrt(96.0 / n)


def test_a_key_and_a_label_decide() -> None:
    sigma = np.full(64, 1000)
    one = discrete_gaussian(KEY, b"a", sigma)
    assert np.array_equal(one, discrete_gaussian(KEY, b"a", sigma))
    assert not np.array_equal(one, discrete_gaussian(KEY, b"b", sigma))
    assert not np.array_equal(one, discrete_gaussian(bytes(32), b"a", sigma))


@pytest.mark.parametrize(("key", "sigma"), [(b"short", 1), (KEY, 0), (KEY, LARGEST + 1), (KEY, -3)])
def test_what_it_cannot_draw(key: bytes, sigma: int) -> None:
    with pytest.raises(ValueError, match="discrete_gaussian needs"):
        discrete_gaussian(key, b"", np.array([sigma]))


def literally_rounded(bits: Bits, number: int, sigma: int) -> int:
    """k with probability ∝ exp(−(k − c)²/2σ²), c in units of 2^-16, as the module's docstrings."""
    one = 1 << 16
    whole, part = divmod(number, one)
    while True:
        e = bits.laplace(sigma)
        above = (abs(e) * one - part - sigma * one) ** 2
        if e < 0:
            above = (abs(e) * one + part - sigma * one) ** 2 + 4 * part * sigma * one
        if bits.exp(above, 2 * (sigma * one) ** 2):
            return whole + e


def test_random_rounding_is_that_of_the_literal_sampler() -> None:
    numbers = np.array([0, 1, -1, 65_535, -65_535, 1 << 40, -(1 << 40) - 12_345, 98_304])
    for sigma in (1, 9, LARGEST_ROUNDING):
        drawn = randomly_rounded(KEY, b"round", numbers, sigma)
        label = len(b"round").to_bytes(8, "little") + b"round"
        bits = Bits(shake_256(label + KEY).digest(1 << 14))
        assert drawn.tolist() == [literally_rounded(bits, int(c), sigma) for c in numbers]


@pytest.mark.parametrize("part", [0, 1 << 14, 1 << 15, 60_000])
def test_random_rounding_has_its_distribution(part: int) -> None:
    sigma, n = 3, 100_000
    drawn = randomly_rounded(KEY, b"law", np.full(n, (7 << 16) + part), sigma)
    support = np.arange(7 - 15, 7 + 17)
    law = np.exp(-np.square(support - 7 - part / 65_536) / (2 * sigma**2))
    seen = np.array([(drawn == k).sum() for k in support])
    law = law / law.sum() * n
    often = law > 5
    assert chisquare(seen[often], law[often] * seen[often].sum() / law[often].sum()).pvalue > 1e-4
