"""Integers k with probability ∝ exp(−k²/2σ²), drawn exactly: no floating-point number is involved.

The low bits of a Gaussian made of doubles can give away what it was added to (Mironov 2012). This
is the sampler of Canonne, Kamath and Steinke (2020): a discrete Laplace draw of scale σ, kept with
probability exp(−(|k| − σ)²/2σ²), where every coin is a comparison of integers. σ is a whole number,
so that all of them fit into 64 bits.

Randomness is a stream of SHAKE-256 under a key: the same key and label give the same integers, so a
party that restarts adds the same noise again. The key itself comes from the operating system.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import shake_256

import numpy as np
from numba import njit

KEY_BYTES = 32

LARGEST = 2**24
"""σ is at most this: 2σ² times a small factor, and (|k| − σ)², stay below 2^63."""

WORDS = 4
"""Random words that a draw takes on average, with room to spare."""

LARGEST_ROUNDING = 256
"""The largest parameter of random rounding, for the same reason: 2σ²·2^32 is below 2^53."""


def discrete_gaussian(key: bytes, label: bytes, sigma: np.ndarray) -> np.ndarray:
    """Independent draws of standard parameters sigma, (n,) int64, as (n,) int64.

    Args:
        key: 32 secret bytes.
        label: What these draws are for; two labels give independent draws.
        sigma: Whole numbers from 1 to 2^24.
    """
    sigma = np.ascontiguousarray(sigma, np.int64)
    if len(key) != KEY_BYTES or sigma.min(initial=1) < 1 or sigma.max(initial=1) > LARGEST:
        raise ValueError("discrete_gaussian needs a key of 32 bytes and sigma from 1 to 2^24")
    return _drawn(key, label, _draw, sigma)


def randomly_rounded(key: bytes, label: bytes, numbers: np.ndarray, sigma: int) -> np.ndarray:
    """Whole numbers k with probability ∝ exp(−(k − c)²/2σ²) about each c, (n,) int64, exactly.

    Args:
        key: 32 secret bytes.
        label: What these draws are for.
        numbers: (n,) int64, c in units of 2^-16.
        sigma: A whole number from 1 to 256.
    """
    if len(key) != KEY_BYTES or not 1 <= sigma <= LARGEST_ROUNDING:
        raise ValueError("randomly_rounded needs a key of 32 bytes and sigma from 1 to 256")
    return _drawn(key, label, _round, np.ascontiguousarray(numbers, np.int64), sigma)


def _drawn(
    key: bytes, label: bytes, draw: Callable[..., int], numbers: np.ndarray, *more: int
) -> np.ndarray:
    """What a sampler makes of as many random words as it needs."""
    made, words = np.empty(numbers.size, np.int64), WORDS * numbers.size + 64
    while True:
        # a longer stream begins with the shorter one
        stream = shake_256(len(label).to_bytes(8, "little") + label + key).digest(8 * words)
        if draw(np.frombuffer(stream, "<u8"), numbers, *more, made) >= 0:
            return made
        words *= 2


@njit(cache=True, nogil=True)
def _round(words, numbers, sigma, made):  # type: ignore[no-untyped-def]
    """Fill `made`; the number of bits used, or −1 if they ran out.

    With c = m + f, 0 ≤ f < 1, k − m is a discrete Laplace draw e of scale σ, kept with probability
    exp(−(e − f − σ)²/2σ²) for e ≥ 0, exp(−(|e| + f − σ)²/2σ² − 2f/σ) else.
    """
    at, one = 0, np.int64(1) << 16
    below = 2 * sigma * sigma * one * one
    for i in range(numbers.size):
        whole = numbers[i] >> 16
        part = numbers[i] - whole * one
        while True:
            e, at = _laplace(words, at, sigma)
            if at < 0:
                return -1
            if e >= 0:
                away = e * one - part - sigma * one
                above = away * away
            else:
                away = -e * one + part - sigma * one
                above = away * away + 4 * part * sigma * one
            kept, at = _exponential(words, at, above, below)
            if at < 0:
                return -1
            if kept:
                made[i] = whole + e
                break
    return at


@njit(cache=True, nogil=True)
def _draw(words, sigma, made):  # type: ignore[no-untyped-def]
    """Fill `made`; the number of bits used, or −1 if they ran out."""
    at = 0
    for i in range(sigma.size):
        scale = sigma[i]
        while True:
            k, at = _laplace(words, at, scale)
            if at < 0:
                return -1
            away = (k if k >= 0 else -k) - scale
            kept, at = _exponential(words, at, away * away, 2 * scale * scale)
            if at < 0:
                return -1
            if kept:
                made[i] = k
                break
    return at


@njit(cache=True, nogil=True)
def _below(words, at, n):  # type: ignore[no-untyped-def]
    """A uniform integer in [0, n), n < 2^63: as many bits as n − 1 has, until they are below n."""
    width = 0
    while (n - 1) >> width > 0:
        width += 1
    mask = np.uint64((1 << width) - 1)
    while at + width <= 64 * words.size:
        word, skipped = at >> 6, at & 63
        drawn = words[word] >> np.uint64(skipped)
        if skipped + width > 64:
            drawn |= words[word + 1] << np.uint64(64 - skipped)
        at += width
        number = np.int64(drawn & mask)
        if number < n:
            return number, at
    return np.int64(0), -1


@njit(cache=True, nogil=True)
def _fraction(words, at, n, d):  # type: ignore[no-untyped-def]
    """A coin that shows true with probability exp(−n/d), 0 ≤ n ≤ d."""
    k = 1
    while True:
        drawn, at = _below(words, at, d * k)
        if at < 0:
            return False, at
        if drawn >= n:
            return k % 2 == 1, at
        k += 1


@njit(cache=True, nogil=True)
def _exponential(words, at, n, d):  # type: ignore[no-untyped-def]
    """A coin that shows true with probability exp(−n/d), n ≥ 0."""
    for _ in range(n // d):
        shown, at = _fraction(words, at, 1, 1)
        if at < 0 or not shown:
            return False, at
    return _fraction(words, at, n % d, d)


@njit(cache=True, nogil=True)
def _laplace(words, at, scale):  # type: ignore[no-untyped-def]
    """An integer k with probability ∝ exp(−|k|/scale)."""
    while True:
        low, at = _below(words, at, scale)
        if at < 0:
            return np.int64(0), at
        shown, at = _fraction(words, at, low, scale)
        if at < 0:
            return np.int64(0), at
        if not shown:
            continue
        high = 0
        while True:
            shown, at = _fraction(words, at, 1, 1)
            if at < 0:
                return np.int64(0), at
            if not shown:
                break
            high += 1
        sign, at = _below(words, at, 2)
        if at < 0:
            return np.int64(0), at
        k = low + scale * high
        if sign == 1 and k == 0:
            continue
        return (-k if sign == 1 else k), at
