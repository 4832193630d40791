"""Compiled simulation of a finite MDP: many episodes of many agents under a frozen policy.

Every kernel works on agents lo … hi−1 of a cohort and nothing else. States lie in
log[agent, step, episode] so that the loop over episodes, whose iterations are independent, is the
inner one.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedlsvi.core.alias import AliasTables
from fedlsvi.core.random import fill_uniforms

BLOCK = 128
"""Episodes whose uniforms are drawn at a time: small enough for the first-level cache."""


def packed(tables: AliasTables) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Alias tables with both outcomes of a cell in one word: (start, prob, keep + 2³²·alias)."""
    pair = tables.keep.astype(np.int64) | (tables.alias.astype(np.int64) << 32)
    return tables.start, tables.prob, pair


@njit(cache=True, nogil=True)
def policy_rows(start, stationary, n_actions, policy, first, width):  # type: ignore[no-untyped-def]
    """Where the alias cells of (h, x, π_h(x)) begin and how many there are (as a float)."""
    horizon, n_states = policy.shape
    for h in range(horizon):
        base = 0 if stationary else h * n_states
        for x in range(n_states):
            row = (base + x) * n_actions + policy[h, x]
            first[h, x] = start[row]
            width[h, x] = start[row + 1] - start[row]


@njit(inline="always")
def pick_state(u, first, width, prob, pair):  # type: ignore[no-untyped-def]
    """`core.alias.pick` without a branch. u < 1 and u·n is rounded to nearest, so u·n < n."""
    y = u * width
    k = np.int64(y)
    slot = np.uint64(first + k)
    shift = np.int64(y - k >= prob[slot]) << 5
    return np.uint32((pair[slot] >> shift) & 0xFFFFFFFF)


@njit(cache=True, nogil=True)
def simulate(  # type: ignore[no-untyped-def]
    lo, hi, seed, agents, episode, n, offset, law, tables, first, width, log
):
    """Play n episodes from `episode` on with the frozen policy; append their states to the log.

    Alias cells come as (prob, pair), pair = keep + 2³²·alias; `law` has (start, prob, pair).
    """
    start0, prob0, pair0 = law
    prob, pair = tables
    horizon = first.shape[0]
    laws = start0.size - 1
    u = np.empty((horizon + 1, BLOCK))
    for i in range(lo, hi):
        agent = agents[i]
        first0 = start0[agent % laws]
        width0 = np.float64(start0[agent % laws + 1] - first0)
        for begin in range(0, n, BLOCK):
            size = min(BLOCK, n - begin)
            at = offset + begin
            fill_uniforms(seed, np.int64(0), agent, episode + begin, size, u)
            states = log[i, 0, at : at + size]
            for e in range(size):
                states[e] = pick_state(u[0, e], first0, width0, prob0, pair0)
            for h in range(horizon):
                draws, firsts, widths = u[h + 1], first[h], width[h]
                states, following = log[i, h, at : at + size], log[i, h + 1, at : at + size]
                for e in range(size):
                    x = np.uint64(states[e])  # unsigned: spares the check for negative indices
                    following[e] = pick_state(draws[e], firsts[x], widths[x], prob, pair)
