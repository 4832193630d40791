"""Packing of symmetric matrices: what travels is d(d+1)/2 scalars, or d when diagonal.

The packed order is the upper triangle row by row: (0,0) (0,1) … (0,d−1) (1,1) … (d−1,d−1).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np
from numba import njit

Packing = Literal["packed", "dense", "diagonal"]
PACKINGS: tuple[Packing, ...] = ("packed", "dense", "diagonal")


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
