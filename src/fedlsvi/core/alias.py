"""Exact sampling from discrete laws in constant time (Walker's alias method, Vose's construction).

A row of n outcomes is cut into n equal cells; cell k keeps outcome keep[k] on the fraction prob[k]
of its width and hands the rest to alias[k]. One uniform u picks cell ⌊u·n⌋ and, by its fractional
part, the outcome. Only outcomes of positive probability take part, so sparse rows stay short.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit


class AliasTables(NamedTuple):
    """Rows of alias cells, one after the other: row i is cells start[i] … start[i+1]−1."""

    start: np.ndarray  # int64 (rows + 1,)
    prob: np.ndarray  # float64 (cells,)
    keep: np.ndarray  # int32 (cells,)
    alias: np.ndarray  # int32 (cells,)


@njit(cache=True)
def _vose(values, outcomes, prob, keep, alias):  # type: ignore[no-untyped-def]
    """Fill the cells of one row from its positive probabilities."""
    n = values.size
    scaled = values * (n / values.sum())
    small = np.empty(n, np.int64)
    large = np.empty(n, np.int64)
    n_small = n_large = 0
    for k in range(n):
        keep[k] = outcomes[k]
        alias[k] = outcomes[k]
        prob[k] = 1.0
        if scaled[k] < 1.0:
            small[n_small] = k
            n_small += 1
        else:
            large[n_large] = k
            n_large += 1
    while n_small > 0 and n_large > 0:
        n_small -= 1
        s = small[n_small]
        big = large[n_large - 1]
        prob[s] = scaled[s]
        alias[s] = outcomes[big]
        scaled[big] -= 1.0 - scaled[s]
        if scaled[big] < 1.0:
            n_large -= 1
            small[n_small] = big
            n_small += 1


def build(rows: np.ndarray) -> AliasTables:
    """Alias tables of the laws in `rows` (R, S); each row is non-negative and sums to one."""
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    support = rows > 0.0
    start = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(support.sum(axis=1), out=start[1:])
    cells = int(start[-1])
    tables = AliasTables(
        start, np.empty(cells), np.empty(cells, np.int32), np.empty(cells, np.int32)
    )
    for i, row in enumerate(rows):
        cut = slice(start[i], start[i + 1])
        outcomes = np.flatnonzero(support[i])
        _vose(row[outcomes], outcomes, tables.prob[cut], tables.keep[cut], tables.alias[cut])
    for array in tables:
        array.setflags(write=False)
    return tables


@njit(inline="always")
def pick(start, prob, keep, alias, row, u):  # type: ignore[no-untyped-def]
    """The outcome of one row at the uniform u; the compiled twin of `draw`."""
    first = start[row]
    n = start[row + 1] - first
    y = u * n
    k = min(np.int64(y), n - 1)
    slot = first + k
    return keep[slot] if y - k < prob[slot] else alias[slot]


def draw(tables: AliasTables, row: int, u: float) -> int:
    """The outcome of one row at the uniform u ∈ [0, 1)."""
    return int(pick.py_func(*tables, row, u))
