"""Gram matrices Λ: packed to travel, added, and factored for ridge regression.

What travels is d(d+1)/2 scalars, the upper triangle row by row, (0,0) (0,1) … (0,d−1) (1,1) …, or d
when Λ is diagonal, as it always is with one-hot features.

Λ = LLᵀ, one Cholesky factorisation per (round, step), serves everything that needs Λ⁻¹: the
regression w = Λ⁻¹b (eq. 7), the norm ‖φ‖_{Λ⁻¹} = ‖L⁻¹φ‖ and the log-determinant 2·Σ log L_ii.
`DiagonalFactor` is the same three things for a vector of diagonal entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, Protocol

import numpy as np
from numba import njit
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtri

from fedlsvi.errors import InvalidInput

Packing = Literal["packed", "dense", "diagonal"]
PACKINGS: tuple[Packing, ...] = ("packed", "dense", "diagonal")

WHOLE = 32
"""Below this dimension whitening is one matrix product; from it on L⁻ᵀ is taken in strips, which
leaves out most of the products with its zeros."""


def packed_size(dim: int, packing: Packing) -> int:
    """P: scalars of one Gram matrix on the wire."""
    return {"packed": dim * (dim + 1) // 2, "dense": dim * dim, "diagonal": dim}[packing]


@lru_cache(maxsize=64)
def _upper(dim: int) -> tuple[np.ndarray, np.ndarray]:
    return np.triu_indices(dim)


@lru_cache(maxsize=64)
def _mirror(dim: int) -> np.ndarray:
    """index[i, j]: where entry (i, j) stands in the packed vector."""
    index = np.empty((dim, dim), np.int64)
    rows, columns = _upper(dim)
    index[rows, columns] = index[columns, rows] = np.arange(len(rows))
    return index


def pack(gram: np.ndarray, packing: Packing) -> np.ndarray:
    """The wire form (…, P) of symmetric matrices (…, d, d) or of diagonals (…, d)."""
    if packing == "diagonal":
        return gram
    if packing == "dense":
        return gram.reshape(*gram.shape[:-2], -1)
    rows, columns = _upper(gram.shape[-1])
    return gram[..., rows, columns]


def unpack(packed: np.ndarray, dim: int, packing: Packing) -> np.ndarray:
    """The inverse of `pack`: (…, d, d), or (…, d) when diagonal. What is empty stays empty: steps
    that share a Gram matrix send it once."""
    if packing == "diagonal" or packed.shape[-1] == 0:
        return packed
    if packing == "dense":
        return packed.reshape(*packed.shape[:-1], dim, dim)
    return packed[..., _mirror(dim)]


def full(grams: np.ndarray) -> np.ndarray:
    """(H, d, d) matrices, also where they are kept as (H, d) diagonals."""
    return grams if grams.ndim == 3 else np.stack([np.diag(row) for row in grams])


def identity(dim: int, scale: float, packing: Packing) -> np.ndarray:
    """scale · I in the form that `unpack` gives."""
    return np.full(dim, scale) if packing == "diagonal" else scale * np.eye(dim)


def every_step(grams: np.ndarray, horizon: int) -> np.ndarray:
    """(H, …) Gram matrices to read, also where there is one for all steps."""
    return np.broadcast_to(grams, (horizon, *grams.shape[1:]))


def shared(one: np.ndarray, n: int) -> np.ndarray:
    """(n, …) rows that are all the same memory as `one` (1, …): to write one is to write all."""
    return np.lib.stride_tricks.as_strided(one, (n, *one.shape[1:]), (0, *one.strides[1:]))


def read_only(array: np.ndarray) -> np.ndarray:
    """The same numbers, in C order and not to be written. A kernel is compiled once for each kind
    of array, and takes seconds: what is only read should always be of one kind."""
    view = np.ascontiguousarray(array).view()
    view.setflags(write=False)
    return view


@njit(cache=True, nogil=True)
def add_rows(total, rows):  # type: ignore[no-untyped-def]
    """total += Σ_i rows[i], one row after another: the order of additions is that of the rows.
    Rows may be empty."""
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            total[j] += rows[i, j]


class Factor(Protocol):
    """What the algorithm needs of Λ."""

    @property
    def logdet(self) -> float:
        """log det Λ."""
        ...

    def unseen(self, lam: float) -> float:
        """λ·tr Λ⁻¹, how many directions no data has moved."""
        ...

    def solve(self, b: np.ndarray) -> np.ndarray:
        """w = Λ⁻¹ b."""
        ...


def strip_width(dim: int) -> int:
    """Columns of a strip. Narrow ones leave out more products, but there are more of them, and
    threads wait for each other between two."""
    if dim < WHOLE:
        return dim
    return 16 if dim <= 100 else 32


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

    def unseen(self, lam: float) -> float:
        return float(((np.sqrt(lam) * self.inverse) ** 2).sum())

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

    def unseen(self, lam: float) -> float:
        return float((lam / self.entries).sum())

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
                f"gram must be positive, but its smallest entry is {gram.min()!r}", code="bad-gram"
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
