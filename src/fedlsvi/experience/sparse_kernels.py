"""Compiled loops for one-hot features with counts over the cells that P can reach.

Cells (x, a, x') lie row by row: those of (x, a) are first[x·A + a] … first[x·A + a + 1] − 1, in
ascending order of x' = to[cell].
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(inline="always")
def _locate(to, begin, end, y):  # type: ignore[no-untyped-def]
    """The cell of the successor y among begin … end−1, by bisection."""
    while end - begin > 1:
        middle = (begin + end) // 2
        if to[middle] <= y:
            begin = middle
        else:
            end = middle
    return begin


@njit(inline="always")
def _tally(states, following, n, policy, n_actions, first, to, cells):  # type: ignore[no-untyped-def]
    """cells[(x, π(x), x')] += 1 for each of n transitions."""
    for e in range(n):
        x = np.int64(states[e])
        row = x * n_actions + policy[x]
        cells[_locate(to, first[row], first[row + 1], np.int64(following[e]))] += 1


@njit(cache=True, nogil=True)
def spill(lo, hi, n, log, policy, n_actions, first, to, cells, visits):  # type: ignore[no-untyped-def]
    """Add the first n logged episodes to cells[agent, h, cell] and visits[agent, h, x, 0]."""
    for i in range(lo, hi):
        for h in range(cells.shape[1]):
            states = log[i, h]
            _tally(states, log[i, h + 1], n, policy[h], n_actions, first, to, cells[i, h])
            for e in range(n):
                visits[i, h, np.int64(states[e]), 0] += 1


@njit(cache=True, nogil=True)
def fold(  # type: ignore[no-untyped-def]
    lo, hi, n, log, table, policy, reward, moving, index, first, to, u, counts, gram
):
    """Fold a closed round into u (H, m, d), counts (H, m, cells) and gram (H, m, d).

    The round is what was spilled into table[agent, h, cell], and the first n logged episodes.
    """
    horizon = policy.shape[0]
    n_states, n_actions = index.shape
    cells = np.zeros(to.size, np.int64)
    for i in range(lo, hi):
        for h in range(horizon):
            pay = reward[h if reward.shape[0] > 1 else 0]
            if table.size > 0:
                cells[:] = table[i, h]
            _tally(log[i, h], log[i, h + 1], n, policy[h], n_actions, first, to, cells)
            for x in range(n_states):
                a = policy[h, x]
                at = index[x, a]
                for c in range(first[x * n_actions + a], first[x * n_actions + a + 1]):
                    new = cells[c]
                    if new > 0:
                        gram[h, i, at] += new
                        u[h, i, at] += new * pay[x, a, to[c] if moving else 0]
                        counts[h, i, c] += new
                        cells[c] = 0


@njit(cache=True, nogil=True)
def respond(lo, hi, index, first, to, values, u, counts, b):  # type: ignore[no-untyped-def]
    """b_i = u_i + Σ_{cells of i} count·V(x') of one step, for agents lo … hi−1."""
    n_states, n_actions = index.shape
    for i in range(lo, hi):
        b[i] = u[i]
        for x in range(n_states):
            for a in range(n_actions):
                at = index[x, a]
                for c in range(first[x * n_actions + a], first[x * n_actions + a + 1]):
                    if counts[i, c] > 0:
                        b[i, at] += counts[i, c] * values[to[c]]
