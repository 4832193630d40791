"""Compiled trigger over whitened feature rows, for continuous states.

grown[i, h] is I + Σ y yᵀ over the settled episodes of the round, bounds[i, h] the two sums that
bracket its log-determinant (`core.trigger`). Rows are added one episode at a time, so the sums do
not depend on how exploration was cut.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedlsvi.core.trigger import fires, logdet_in_place, settled


@njit(cache=True, nogil=True)
def _add(y, begin, end, h, grown, bounds):  # type: ignore[no-untyped-def]
    """Add rows begin … end−1 of step h; only the lower triangle of `grown` is kept."""
    dim = y.shape[2]
    for e in range(begin, end):
        row = y[e, h]
        norm2 = 0.0
        for i in range(dim):
            norm2 += row[i] * row[i]
            target = grown[i]
            for j in range(i + 1):
                target[j] += row[i] * row[j]
        bounds[0] += norm2
        bounds[1] += np.log1p(norm2)


@njit(cache=True, nogil=True)
def absorb(y, grown, bounds):  # type: ignore[no-untyped-def]
    """Add all rows (m, n, H, d): the episodes explored last did not fire."""
    m, n, horizon = y.shape[:3]
    for i in range(m):
        for h in range(horizon):
            _add(y[i], 0, n, h, grown[i, h], bounds[i, h])


@njit(cache=True, nogil=True)
def _fires_at(y, begin, end, h, grown, bounds, length, log_gamma):  # type: ignore[no-untyped-def]
    """Whether step h fires after `length` episodes; grown and bounds advance from begin to end."""
    _add(y, begin, end, h, grown, bounds)
    verdict = settled(length, np.log1p(bounds[0]), bounds[1], log_gamma)
    if verdict != 0:
        return verdict == 1
    return fires(length, logdet_in_place(grown.copy()), log_gamma)


@njit(cache=True, nogil=True)
def first_firing(y, grown, bounds, length, n, log_gamma, clock, when, steps):  # type: ignore[no-untyped-def]
    """The first of the n episodes at which some agent fires; see `firing.first_firing`."""
    m, _, horizon = y.shape[:3]
    best = n
    for i in range(m):
        when[i] = 0
        for h in range(horizon):
            # once an agent is known to fire at `best`, another of its steps matters only before it
            limit = best if when[i] == 0 else best - 1
            if limit == 0:
                break
            base, base_bounds = grown[i, h].copy(), bounds[i, h].copy()
            trial, trial_bounds = base.copy(), base_bounds.copy()
            elapsed = 1 + clock * (length + limit - 1)
            if not _fires_at(y[i], 0, limit, h, trial, trial_bounds, elapsed, log_gamma):
                continue
            silent, loud = 0, limit
            while loud - silent > 1:
                middle = (silent + loud) // 2
                trial, trial_bounds = base.copy(), base_bounds.copy()
                elapsed = 1 + clock * (length + middle - 1)
                if _fires_at(y[i], silent, middle, h, trial, trial_bounds, elapsed, log_gamma):
                    loud = middle
                else:
                    silent, base, base_bounds = middle, trial, trial_bounds
            best = loud
            when[i] = loud
            steps[i] = h + 1
