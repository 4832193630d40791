"""Ridge regression from sufficient statistics, by one Cholesky factorisation per (round, step).

Λ = LLᵀ serves everything that needs Λ⁻¹: the regression w = Λ⁻¹b (eq. 7), the norm
‖φ‖_{Λ⁻¹} = ‖L⁻¹φ‖ and the log-determinant 2·Σ log L_ii. With one-hot features every Gram matrix is
diagonal; `DiagonalFactor` is the same three things for a vector of diagonal entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtri

from fedlsvi.errors import InvalidInput

WHOLE = 32
"""Below this dimension whitening is one matrix product; from it on L⁻ᵀ is taken in strips, which
leaves out most of the products with its zeros."""


def strip_width(dim: int) -> int:
    """Columns of a strip. Narrow ones leave out more products, but there are more of them, and
    threads wait for each other between two."""
    if dim < WHOLE:
        return dim
    return 16 if dim <= 100 else 32


class Factor(Protocol):
    """What the algorithm needs of Λ."""

    @property
    def logdet(self) -> float:
        """log det Λ."""
        ...

    def solve(self, b: np.ndarray) -> np.ndarray:
        """w = Λ⁻¹ b."""
        ...


@dataclass(frozen=True)
class DenseFactor:
    """Λ = LLᵀ with L lower triangular."""

    lower: np.ndarray

    @cached_property
    def logdet(self) -> float:
        return 2.0 * float(np.log(self.lower.diagonal()).sum())

    @cached_property
    def inverse(self) -> np.ndarray:
        """L⁻¹."""
        found: np.ndarray = dtrtri(self.lower, lower=1)[0]
        return found

    @cached_property
    def strips(self) -> list[tuple[slice, np.ndarray]]:
        """L⁻ᵀ, so that whitening any block of feature rows is a matrix product: its columns in
        strips, each down to the diagonal, below which all is zero."""
        inverse = self.inverse
        dim, width = len(inverse), strip_width(len(inverse))
        cuts = [slice(at, min(at + width, dim)) for at in range(0, dim, width)]
        return [(cut, np.ascontiguousarray(inverse[cut, : cut.stop].T)) for cut in cuts]

    def solve(self, b: np.ndarray) -> np.ndarray:
        w: np.ndarray = dpotrs(self.lower, b, lower=1)[0]
        return w

    def whiten(self, phi: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Rows L⁻¹φ of a block of feature rows (n, d)."""
        if out is None:
            out = np.empty(phi.shape)
        for cut, strip in self.strips:
            np.matmul(phi[:, : cut.stop], strip, out=out[:, cut])
        return out


@dataclass(frozen=True)
class DiagonalFactor:
    """Λ = diag(entries)."""

    entries: np.ndarray

    @cached_property
    def logdet(self) -> float:
        return float(np.log(self.entries).sum())

    def solve(self, b: np.ndarray) -> np.ndarray:
        w: np.ndarray = b / self.entries
        return w


def factorise(gram: np.ndarray) -> DenseFactor | DiagonalFactor:
    """Factor Λ, given as (d, d) or, when diagonal, as the (d,) vector of its entries.

    Λ ⪰ λI for valid statistics, so the factorisation fails only on statistics that are not valid.
    """
    if gram.ndim == 1:
        if not bool(np.all(gram > 0.0)):
            raise InvalidInput(
                f"gram must be positive, got a smallest entry of {gram.min()!r}", code="bad-gram"
            )
        return DiagonalFactor(gram)
    lower, info = dpotrf(gram, lower=1, clean=1)
    if info != 0:
        raise InvalidInput(
            f"gram must be positive definite, but its leading minor of order {info} is not: "
            "increase lam, or check the feature map for NaN",
            code="bad-gram",
        )
    return DenseFactor(lower)
