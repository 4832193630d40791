"""V^π of a table that is mostly zeros, in compiled code; imported only when it is used.

Rows of P lie as in `FiniteMDP.tables`: row ((h−1)·S + x)·A + a, without h where stationary, has its
successors to[start[row]] … and their probabilities p beside them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

LARGE, DENSE = 128, 0.25
"""From this many states on, and up to this share of non-zero entries, the list is worth having."""


def cells(P: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """(start, to, p) of P (Hp, S, A, S), or None where a dense product is better."""
    if P.shape[-1] < LARGE or np.count_nonzero(P) > DENSE * P.size:
        return None
    return entries(P)


def entries(P: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(start, to, p) of P (Hp, S, A, S)."""
    laws = P.reshape(-1, P.shape[-1])
    counts = np.count_nonzero(laws, axis=1)
    start = np.zeros(len(laws) + 1, np.int64)
    np.cumsum(counts, out=start[1:])
    where = np.nonzero(laws)
    return start, where[1].astype(np.int32), laws[where]


@njit(cache=True, nogil=True)
def evaluate(start, to, p, rewards, policy, stationary, values):  # type: ignore[no-untyped-def]
    """Fill values (H+1, S), whose last row is zero; rewards are (1 or H, S, A)."""
    horizon, n_states = policy.shape
    n_actions = rewards.shape[2]
    for h in range(horizon - 1, -1, -1):
        pay = rewards[h if rewards.shape[0] > 1 else 0]
        base = 0 if stationary else h * n_states
        following = values[h + 1]
        for x in range(n_states):
            a = policy[h, x]
            row = (base + x) * n_actions + a
            total = pay[x, a]
            for c in range(start[row], start[row + 1]):
                total += p[c] * following[to[c]]
            values[h, x] = total
