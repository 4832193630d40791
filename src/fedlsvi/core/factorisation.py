"""Prefix sums of N rounds with correlated noise: a factorisation in place of a tree.

The server wants the sums of the first k rounds, k = 1 … N: A·x, A lower triangular, all ones. Write
A = B·C and let y = C·x + z be released, z ~ N(0, σ²I); then B·y has the noise B·z. One round's data
replaced moves y by a column of C times what the round moves, so that the whole run is one Gaussian
mechanism whose sensitivity is that of a round times the largest norm of a column of C, whatever
later rounds do with earlier releases (Denisov et al. 2022, Theorem 2.1). A binary tree is one such
factorisation; this one minimises the noise of the sums, Σ_k weight_k·‖B_k‖², over all lower
triangular C with columns of norm 1. With X = CᵀC and G = AᵀWA that is min tr(GX⁻¹), diag X = 1,
solved by their fixed point

    v = diag((V^½ G V^½)^½),   X = V^-½ (V^½ G V^½)^½ V^-½,   V = diag(v).

Nobody has to keep old rounds: C⁻¹y = x + D·z with D = C⁻¹ says the same as y, so round k is sent as
x_k + (D·z)_k, and the server only adds. D is rounded to multiples of 2⁻¹⁶, and C is its inverse.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

BITS = 16
"""D is in units of 2^-16."""

LARGEST_OPTIMISED = 256
"""More rounds take the square root of A (Fichtenberger, Henzinger and Upadhyay 2023), which is
known in closed form and has hardly more noise."""

MOST_ROUNDS = 1000
"""Noise of a round is made of that of all rounds before it, so there is a limit."""

_CLOSE, _STEPS = 1e-5, 500


@dataclass(frozen=True, eq=False)
class Factorisation:
    """A = B·C for N rounds.

    Attributes:
        mixing: (N, N) int64, D = C⁻¹ in units of 2^-16.
        norms: (N,) after k rounds, the largest norm of a column of the first k rows of C.
        fresh: (N,) ‖D_k‖²: the variance of what round k brings, over that of z.
        summed: (N,) ‖B_k‖²: that of the noise in the sums of rounds 1 … k.
        spread: ‖D‖: how far apart D moves neighbouring z.
    """

    mixing: np.ndarray
    norms: np.ndarray
    fresh: np.ndarray
    summed: np.ndarray
    spread: float

    @property
    def norm(self) -> float:
        """How many times the sensitivity of a round that of the run is."""
        return float(self.norms[-1])


@lru_cache(maxsize=32)
def factorise(weights: tuple[float, ...]) -> Factorisation:
    """The factorisation for N rounds.

    Args:
        weights: (N,) what the noise in the sums of rounds 1 … k counts: the episodes that are
            played with them.
    """
    w = np.array(weights)
    mixing = np.rint(np.ldexp(np.linalg.inv(_encoder(w)), BITS)).astype(np.int64)
    d = np.ldexp(mixing.astype(float), -BITS)
    squares = np.square(np.linalg.inv(d))
    norms = np.sqrt(np.cumsum(squares, axis=0).max(axis=1)) * (1.0 + 1e-9)  # rounding of doubles
    summed = np.square(np.cumsum(d, axis=0)).sum(axis=1)
    for array in (mixing, norms, summed):
        array.setflags(write=False)
    spread = float(np.linalg.norm(d, 2))
    return Factorisation(mixing, norms, np.square(d).sum(axis=1), summed, spread)


def _encoder(weights: np.ndarray) -> np.ndarray:
    """C, lower triangular, columns of norm at most 1."""
    n = len(weights)
    if n > LARGEST_OPTIMISED:
        return square_root(n)
    ones = np.tril(np.ones((n, n)))
    gram = ones.T @ (weights[:, None] / weights.max() * ones)
    v = np.sqrt(np.diag(gram))
    for _ in range(_STEPS):
        scale = np.sqrt(v)
        values, vectors = np.linalg.eigh(scale[:, None] * gram * scale)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        moved = np.abs(np.diag(root) / v - 1.0).max()
        v = np.diag(root).copy()
        if moved < _CLOSE:
            break
    inner = root / np.outer(scale, scale)
    size = np.sqrt(np.diag(inner))
    inner /= np.outer(size, size)
    # CᵀC = X with C lower triangular: Cholesky from the last row up
    reverse: np.ndarray = np.linalg.cholesky(inner[::-1, ::-1])[::-1, ::-1].T
    return reverse


def square_root(n: int) -> np.ndarray:
    """(n, n) the square root of A, Toeplitz with c_0 = 1 and c_k = c_{k−1}(2k − 1)/2k, its columns
    divided by the norm of the first."""
    k = np.arange(1, n)
    c = np.cumprod(np.append(1.0, (2 * k - 1) / (2 * k)))
    apart = np.subtract.outer(np.arange(n), np.arange(n))
    root: np.ndarray = np.where(apart >= 0, c[np.abs(apart)], 0.0) / np.linalg.norm(c)
    return root
