"""When the trigger fires in a finite state space, from counts of the states that were visited.

Sums of ‖y‖² bracket the log-determinant and settle most questions; where they do not, the counts
decide, so that neither block sizes nor threads can change the answer.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedlsvi.core.trigger import fires, logdet_in_place, settled


@njit(cache=True, nogil=True)
def log_ratio(visits, rows, norms, slots):  # type: ignore[no-untyped-def]
    """log det(I + Σ_x n_x y_x y_xᵀ); with one-hot features (no rows) Σ_i log(1 + n_i/Λ_ii)."""
    n_states, dim = rows.shape
    if dim == 0:
        grown = np.zeros(slots.max() + 1)
        for x in range(n_states):
            grown[slots[x]] += visits[x] * norms[x]
        return np.log1p(grown).sum()
    work = np.zeros((dim, dim))
    for i in range(dim):
        work[i, i] = 1.0
    for x in range(n_states):
        if visits[x] > 0:
            for i in range(dim):
                scaled = visits[x] * rows[x, i]
                for j in range(i + 1):
                    work[i, j] += scaled * rows[x, j]
    return logdet_in_place(work)


# reassociation lets the sum use vector registers; it only brackets, counts decide
@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _growth(states, begin, end, norms):  # type: ignore[no-untyped-def]
    """s = Σ‖y‖² over logged episodes begin … end−1 of one step: log(1 + s) ≤ log ratio ≤ s."""
    total = 0.0
    for e in range(begin, end):
        total += norms[np.uint64(states[e])]
    return total


@njit(cache=True, nogil=True)
def _fires(length, growth, states, end, table, rows, norms, slots, log_gamma):  # type: ignore[no-untyped-def]
    """Whether one step fires after `length` episodes: `end` logged ones and those in the table."""
    verdict = settled(length, np.log1p(growth), growth, log_gamma)
    if verdict != 0:
        return verdict == 1
    visits = np.zeros(norms.size, np.int64)
    if table.size > 0:
        visits += table.sum(axis=1)
    for e in range(end):
        visits[np.uint64(states[e])] += 1
    return fires(length, log_ratio(visits, rows, norms, slots), log_gamma)


@njit(cache=True, nogil=True)
def first_firing(  # type: ignore[no-untyped-def]
    lo, hi, sums, length, offset, n, log, table, marks, log_gamma, clock, when, steps
):
    """Find the first of the n episodes logged from `offset` on at which some agent fires.

    `length` episodes of the round precede them; their sums[agent, h] = Σ‖y‖² advance past them,
    unless somebody fires. when[i] is that agent's first firing episode (1 … n)
    if no agent before it in the range fired earlier, else 0; steps[i] the lowest step h that fires
    there. clock is 1, or 0 for a trigger on the determinants alone, without Δt.
    marks: (rows, norms, slots) of the greedy actions, see `values.TabularValues`.
    """
    rows, norms, slots = marks
    horizon = norms.shape[0]
    best = n
    none = np.empty((0, 0), np.int64)
    for i in range(lo, hi):
        when[i] = 0
        for h in range(horizon):
            # once this agent is known to fire at `best`, another step matters only before that
            limit = best if when[i] == 0 else best - 1
            if limit == 0:
                break
            states = log[i, h]
            cells = table[i, h] if table.size > 0 else none
            growth = sums[i, h]
            more = _growth(states, offset, offset + limit, norms[h])
            if limit == n:
                sums[i, h] += more
            if not _fires(
                1 + clock * (length + limit - 1),
                growth + more,
                states,
                offset + limit,
                cells,
                rows[h],
                norms[h],
                slots[h],
                log_gamma,
            ):
                continue
            silent, loud = 0, limit
            while loud - silent > 1:
                middle = (silent + loud) // 2
                more = _growth(states, offset + silent, offset + middle, norms[h])
                if _fires(
                    1 + clock * (length + middle - 1),
                    growth + more,
                    states,
                    offset + middle,
                    cells,
                    rows[h],
                    norms[h],
                    slots[h],
                    log_gamma,
                ):
                    loud = middle
                else:
                    silent = middle
                    growth += more
            best = loud
            when[i] = loud
            steps[i] = h + 1


def earliest(
    before: int, when: np.ndarray, steps: np.ndarray
) -> tuple[int, np.ndarray, np.ndarray]:
    """The round's length at the first firing episode (0 if none), the positions of the agents that
    fire there, and their steps. when[i] counts episodes after the first `before`; 0 is silence."""
    fired = when > 0
    if not fired.any():
        return 0, when[:0], steps[:0]
    first = int(when[fired].min())
    chosen = np.flatnonzero(when == first)
    return before + first, chosen, steps[chosen]
