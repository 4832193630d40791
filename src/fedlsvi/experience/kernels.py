"""Compiled loops over agents, steps and episodes of a finite MDP.

Every kernel works on agents lo … hi−1 of a cohort and nothing else. States lie in
log[agent, step, episode] so that the loop over episodes, whose iterations are independent, is the
inner one. All counting is in integers; numbers are formed from counts once per round, in an order
that depends on the counts alone, so neither block sizes nor threads can change a bit.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedlsvi.core.random import fill_uniforms
from fedlsvi.core.trigger import fires, logdet_in_place, settled

BLOCK = 128
"""Episodes whose uniforms are drawn at a time: small enough for the first-level cache."""

FEW = 24
"""Up to this many episodes a round is folded from its sorted transitions, not from a table."""


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
def _pick(u, first, width, prob, pair):  # type: ignore[no-untyped-def]
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
            fill_uniforms(seed, 0, agent, episode + begin, size, u)
            states = log[i, 0, at : at + size]
            for e in range(size):
                states[e] = _pick(u[0, e], first0, width0, prob0, pair0)
            for h in range(horizon):
                draws, firsts, widths = u[h + 1], first[h], width[h]
                states, following = log[i, h, at : at + size], log[i, h + 1, at : at + size]
                for e in range(size):
                    x = np.uint64(states[e])  # unsigned: spares the check for negative indices
                    following[e] = _pick(draws[e], firsts[x], widths[x], prob, pair)


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
def _sort(n, states, following, keys):  # type: ignore[no-untyped-def]
    """keys[:n] = 2³²·x + x' of n transitions, in ascending order."""
    for e in range(n):
        key = (np.int64(states[e]) << 32) | np.int64(following[e])
        at = e
        while at > 0 and keys[at - 1] > key:
            keys[at] = keys[at - 1]
            at -= 1
        keys[at] = key


@njit(inline="always")
def _repeats(keys, e, n):  # type: ignore[no-untyped-def]
    """How many of keys[e:n] are equal to keys[e]."""
    end = e + 1
    while end < n and keys[end] == keys[e]:
        end += 1
    return end - e


@njit(inline="always")
def _add_few(n, keys, policy, reward, moving, phi, index, outer, gram, u):  # type: ignore[no-untyped-def]
    """Fold n sorted transitions into u and Λ^loc, one distinct (x, x') at a time.

    outer[x·A + a] is φφᵀ packed, or `outer` is empty and φφᵀ is formed here: the same products.
    """
    n_actions = phi.shape[1]
    dim = u.size
    e = 0
    while e < n:
        same = _repeats(keys, e, n)
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
        same = _repeats(keys, e, n)
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
def _add_many(cells, policy, reward, moving, phi, index, gram, u, response):  # type: ignore[no-untyped-def]
    """Fold a table of (x, x') counts: N += Φ_πᵀ C, Λ += Φ_πᵀ diag(n) Φ_π, u += Φ_πᵀ Σr."""
    n_states = policy.size
    dim = u.size
    if phi.size == 0:
        for x in range(n_states):
            i = index[x, policy[x]]
            for to in range(n_states):
                if cells[x, to] > 0:
                    gram[i] += cells[x, to]
                    u[i] += cells[x, to] * reward[x, policy[x], to if moving else 0]
                    if response.size > 0:
                        response[i, to] += cells[x, to]
        return
    counts = cells.astype(np.float64)
    chosen = np.empty((n_states, dim))
    weighted = np.empty((n_states, dim))
    earned = np.empty(n_states)
    for x in range(n_states):
        row = reward[x, policy[x]]
        visits = counts[x].sum()
        earned[x] = np.sum(counts[x] * row) if moving else visits * row[0]
        for i in range(dim):
            chosen[x, i] = phi[x, policy[x], i]
            weighted[x, i] = visits * chosen[x, i]
    if response.size > 0:
        response += np.dot(chosen.T, counts)
    u += np.dot(earned, chosen)
    square = np.dot(weighted.T, chosen)
    at = 0
    for i in range(dim):
        for j in range(i, dim):
            gram[at + j - i] = square[i, j]
        at += dim - i


# reassociation lets the sum over x' use vector registers; its order is fixed by S and d alone
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
    cells = np.empty((n_states, n_states), np.int64)
    nothing = np.empty((u.shape[2], 0))
    for i in range(lo, hi):
        for h in range(horizon):
            if table.size > 0:
                cells[:] = table[i, h]
            else:
                cells[:] = 0
            _tally(log[i, h], log[i, h + 1], n, n_states, cells.reshape(-1))
            pay = reward[h if reward.shape[0] > 1 else 0]
            gram[h, i] = 0.0
            kept = response[h, i] if h + 1 < horizon else nothing
            _add_many(cells, policy[h], pay, moving, phi, index, gram[h, i], u[h, i], kept)


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
            _sort(n, log[i, h], log[i, h + 1], keys)
            _add_few(n, keys, policy[h], pay, moving, phi, index, outer, gram[i], u[i])
        respond(values, u[i], response[i], b[i])
        if n > 0 and response.size > 0:
            _follow_few(n, keys, policy[h], phi, index, values, response[i], b[i])
