"""Compiled loops of finite MDPs: episodes of many agents under a frozen policy, and their sums.

Every kernel works on agents lo … hi−1 of a cohort and nothing else. States lie in
log[agent, step, episode] so that the loop over episodes, whose iterations are independent, is the
inner one. The sums are u, N and Λ^loc of a round, and b = u + N V: all counting is in integers, and
numbers are formed from counts once per round, in an order that depends on the counts alone, so
neither block sizes nor threads can change a bit.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedlsvi.core.alias import AliasTables
from fedlsvi.core.random import fill_uniforms

BLOCK = 128
"""Episodes whose uniforms are drawn at a time: small enough for the first-level cache."""

FEW = 24
"""Up to this many episodes a round is folded from its sorted transitions, not from a table."""


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
    lo, hi, seed, agents, episodes, n, offset, law, tables, first, width, log
):
    """Play n episodes of each agent, from its own in `episodes` on, with the frozen policy; append
    their states to the log.

    Alias cells come as (prob, pair), pair = keep + 2³²·alias; `law` has (start, prob, pair).
    """
    start0, prob0, pair0 = law
    prob, pair = tables
    horizon = first.shape[0]
    laws = start0.size - 1
    u = np.empty((horizon + 1, BLOCK))
    for i in range(lo, hi):
        agent, episode = agents[i], episodes[i]
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


@njit(inline="always")
def _tally(states, following, n, n_states, cells):  # type: ignore[no-untyped-def]
    """cells[x·S + x'] += 1 for each of n transitions."""
    width = np.uint64(n_states)
    for e in range(n):
        cells[np.uint64(states[e]) * width + np.uint64(following[e])] += 1


@njit(cache=True, nogil=True)
def spill(lo, hi, n, log, table):  # type: ignore[no-untyped-def]
    """Add the transitions of the first n logged episodes to table[agent, h, x, x']."""
    horizon, n_states = table.shape[1:3]
    for i in range(lo, hi):
        for h in range(horizon):
            _tally(log[i, h], log[i, h + 1], n, n_states, table[i, h].reshape(-1))


@njit(inline="always")
def sort_transitions(n, states, following, keys):  # type: ignore[no-untyped-def]
    """keys[:n] = 2³²·x + x' of n transitions, in ascending order."""
    for e in range(n):
        key = (np.int64(states[e]) << 32) | np.int64(following[e])
        at = e
        while at > 0 and keys[at - 1] > key:
            keys[at] = keys[at - 1]
            at -= 1
        keys[at] = key


@njit(inline="always")
def repeats(keys, e, n):  # type: ignore[no-untyped-def]
    """How many of keys[e:n] are equal to keys[e]."""
    end = e + 1
    while end < n and keys[end] == keys[e]:
        end += 1
    return end - e


@njit(inline="always")
def add_few(n, keys, policy, reward, moving, phi, index, outer, gram, u):  # type: ignore[no-untyped-def]
    """Fold n sorted transitions into u and Λ^loc, one distinct (x, x') at a time.

    outer[x·A + a] is φφᵀ packed, or `outer` is empty and φφᵀ is formed here: the same products.
    """
    n_actions = phi.shape[1]
    dim = u.size
    e = 0
    while e < n:
        same = repeats(keys, e, n)
        x, to = keys[e] >> 32, keys[e] & 0xFFFFFFFF
        e += same
        a = policy[x]
        earned = same * reward[x, a, to if moving else 0]
        if phi.size == 0:
            gram[index[x, a]] += same
            u[index[x, a]] += earned
            continue
        row = phi[x, a]
        for i in range(dim):
            u[i] += earned * row[i]
        if outer.size > 0:
            square = outer[x * n_actions + a]
            for p in range(square.size):
                gram[p] += same * square[p]
            continue
        at = 0
        for i in range(dim):
            for j in range(i, dim):
                gram[at + j - i] += same * (row[i] * row[j])
            at += dim - i


@njit(inline="always")
def _follow_few(n, keys, policy, phi, index, values, response, b):  # type: ignore[no-untyped-def]
    """Fold n sorted transitions into N, and what they add to NV into b."""
    e = 0
    while e < n:
        same = repeats(keys, e, n)
        x, to = keys[e] >> 32, keys[e] & 0xFFFFFFFF
        e += same
        if phi.size == 0:
            i = index[x, policy[x]]
            b[i] += same * values[to]
            response[i, to] += same
            continue
        row = phi[x, policy[x]]
        for i in range(b.size):
            more = same * row[i]
            b[i] += more * values[to]
            response[i, to] += more


@njit(inline="always")
def _add_cells(cells, policy, reward, moving, index, gram, u, response):  # type: ignore[no-untyped-def]
    """Fold a table of (x, x') counts with one-hot features."""
    n_states = policy.size
    for x in range(n_states):
        i = index[x, policy[x]]
        for to in range(n_states):
            if cells[x, to] > 0:
                gram[i] += cells[x, to]
                u[i] += cells[x, to] * reward[x, policy[x], to if moving else 0]
                if response.size > 0:
                    response[i, to] += cells[x, to]


@njit(inline="always")
def _add_many(cells, pay, phi, rows, room, gram, u, response):  # type: ignore[no-untyped-def]
    """Fold a table of (x, x') counts: N += Φ_πᵀ C, Λ += Φ_πᵀ diag(n) Φ_π, u += Φ_πᵀ Σr.

    phi is Φ_π (S, d) and rows its transpose; pay (S, 1), or (S, S) when the reward depends on x'.
    """
    earned, weighted, product, summed, square = room
    n_states, dim = phi.shape
    for x in range(n_states):
        visits, paid = 0.0, 0.0
        for to in range(n_states):
            visits += cells[x, to]
        for to in range(n_states if pay.shape[1] > 1 else 0):
            paid += cells[x, to] * pay[x, to]
        earned[x] = paid if pay.shape[1] > 1 else visits * pay[x, 0]
        for i in range(dim):
            weighted[x, i] = visits * phi[x, i]
    if response.size > 0:
        np.dot(rows, cells, product)
        for i in range(dim):
            for x in range(n_states):
                response[i, x] += product[i, x]
    np.dot(earned, phi, summed)
    for i in range(dim):
        u[i] += summed[i]
    np.dot(rows, weighted, square)
    at = 0
    for i in range(dim):
        for j in range(i, dim):
            gram[at + j - i] = square[i, j]
        at += dim - i


# reassociation lets the sum over x' use vector registers; its order is fixed by S, d and the CPU
@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def respond(values, u, response, b):  # type: ignore[no-untyped-def]
    """b = u + N V."""
    dim, n_states = response.shape
    for i in range(dim):
        row = response[i]
        total = 0.0
        for x in range(n_states):
            total += row[x] * values[x]
        b[i] = u[i] + total


@njit(cache=True, nogil=True)
def respond_all(lo, hi, values, u, response, b):  # type: ignore[no-untyped-def]
    """b = u + N V of agents lo … hi−1."""
    for i in range(lo, hi):
        respond(values, u[i], response[i], b[i])


@njit(cache=True, nogil=True)
def fold(  # type: ignore[no-untyped-def]
    lo, hi, n, log, table, policy, reward, moving, phi, index, u, response, gram
):
    """Fold a long round, n logged episodes and whatever was spilled, into u, N and Λ^loc.

    u (H, m, d) and response (H − 1, m, d, S) accumulate, N_H meeting V_{H+1} = 0 only; gram
    (H, m, P) is overwritten: the round's own. reward is (Hr, S, A, 1), or (Hr, S, A, S) when it
    depends on the next state (`moving`).
    """
    horizon, n_states = policy.shape
    dim = u.shape[2]
    cells = np.empty((n_states, n_states))  # whole numbers
    nothing = np.empty((dim, 0))
    # all rooms are empty with one-hot features, whose d is large
    S, d = (n_states, dim) if phi.size > 0 else (0, 0)
    room = (np.empty(S), np.empty((S, d)), np.empty((d, S)), np.empty(d), np.empty((d, d)))
    chosen, rows = np.empty((S, d)), np.empty((d, S))
    for h in range(horizon):
        rewards = reward[h if reward.shape[0] > 1 else 0]
        pay = np.empty((n_states, rewards.shape[2]))
        for x in range(n_states):
            a = policy[h, x]
            for to in range(pay.shape[1]):
                pay[x, to] = rewards[x, a, to]
            for j in range(d):
                chosen[x, j] = phi[x, a, j]
                rows[j, x] = phi[x, a, j]
        for i in range(lo, hi):
            for x in range(n_states):
                for to in range(n_states):
                    cells[x, to] = table[i, h, x, to] if table.size > 0 else 0
            _tally(log[i, h], log[i, h + 1], n, n_states, cells.reshape(-1))
            for p in range(gram.shape[2]):
                gram[h, i, p] = 0.0
            kept = response[h, i] if h < response.shape[0] else nothing
            if phi.size > 0:
                _add_many(cells, pay, chosen, rows, room, gram[h, i], u[h, i], kept)
            else:
                _add_cells(cells, policy[h], rewards, moving, index, gram[h, i], u[h, i], kept)


@njit(cache=True, nogil=True)
def fold_few(  # type: ignore[no-untyped-def]
    lo, hi, n, log, policy, reward, moving, phi, index, outer, u, response, gram
):
    """Fold a short round of n episodes, all steps into one u (m, d), N (m, d, S) and Λ^loc (m, P);
    the first two accumulate."""
    horizon, n_states = policy.shape
    keys, nothing, spare = np.empty(FEW, np.int64), np.zeros(n_states), np.zeros(u.shape[1])
    for i in range(lo, hi):
        gram[i] = 0.0
        for h in range(horizon):
            pay = reward[h if reward.shape[0] > 1 else 0]
            sort_transitions(n, log[i, h], log[i, h + 1], keys)
            add_few(n, keys, policy[h], pay, moving, phi, index, outer, gram[i], u[i])
            _follow_few(n, keys, policy[h], phi, index, nothing, response[i], spare)


@njit(cache=True, nogil=True)
def summarise(  # type: ignore[no-untyped-def]
    lo, hi, h, n, log, policy, reward, moving, phi, index, outer, values, u, response, gram, b
):
    """One step's upload: b = u + N V, folding a short round of n episodes (0: it is folded).

    Arrays of the step alone: u (m, d), response (m, d, S), gram (m, P), b (m, d). An empty response
    is not kept (the last step's: nothing follows it). New transitions enter N after the product,
    which has then brought all of an agent's N into the cache: they are scattered over it.
    """
    keys = np.empty(FEW, np.int64)
    pay = reward[h if reward.shape[0] > 1 else 0]
    for i in range(lo, hi):
        if n > 0:
            gram[i] = 0.0
            sort_transitions(n, log[i, h], log[i, h + 1], keys)
            add_few(n, keys, policy[h], pay, moving, phi, index, outer, gram[i], u[i])
        respond(values, u[i], response[i], b[i])
        if n > 0 and response.size > 0:
            _follow_few(n, keys, policy[h], phi, index, values, response[i], b[i])
