"""The backward pass over all H steps in one compiled call: (u, N, Λ) → (w, V, π).

    b_h = u_h + N_h V_{h+1},  w_h = Λ_h⁻¹ b_h,  V_h = max_a Π(φᵀw_h + bonus_h),   h = H … 1.

Where an algorithm replans after every episode, the interpreter would cost more than the sums.
u, N and Λ have a row for each step, or one that all steps share. Scores and the bonus come from
`core.value`. The receiver of a model (w, Λ) calls `rebuild_*`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedlsvi.core.trigger import logdet_in_place
from fedlsvi.core.value import backup, backup_diagonal, take_rows
from fedlsvi.experience.finite_kernels import respond


@njit(cache=True, nogil=True)
def factor(gram, lower, whitener):  # type: ignore[no-untyped-def]
    """Λ = LLᵀ; whitener = L⁻ᵀ, so that whitening feature rows is one product."""
    dim = gram.shape[0]
    for j in range(dim):
        pivot = gram[j, j]
        for k in range(j):
            pivot -= lower[j, k] * lower[j, k]
        root = np.sqrt(pivot)
        lower[j, j] = root
        for i in range(j + 1, dim):
            acc = gram[i, j]
            for k in range(j):
                acc -= lower[i, k] * lower[j, k]
            lower[i, j] = acc / root
    for i in range(dim):
        for j in range(dim):
            whitener[i, j] = 0.0
    for j in range(dim):  # column j of L⁻¹ is row j of the whitener
        row = whitener[j]
        row[j] = 1.0 / lower[j, j]
        for i in range(j + 1, dim):
            acc = 0.0
            for k in range(j, i):
                acc -= lower[i, k] * row[k]
            row[i] = acc / lower[i, i]


@njit(cache=True, nogil=True)
def backward_dense(phi, u, response, gram, bonus, top, w, values, policy):  # type: ignore[no-untyped-def]
    """phi is (S, A, d); w and policy have an axis of H, values one of H + 1 with zeros last."""
    n_states, n_actions, dim = phi.shape
    flat = phi.reshape(n_states * n_actions, dim)
    lower = np.zeros((dim, dim))
    whitener = np.empty((dim, dim))
    whitened = np.empty((n_states * n_actions, dim))
    b, norms = np.empty(dim), np.empty(n_states)
    every, unkept = np.empty((0, 0), np.bool_), np.empty((0, 0))
    horizon, groups = w.shape[0], u.shape[0]
    for h in range(horizon - 1, -1, -1):
        g = h if groups == horizon else 0
        respond(values[h + 1], u[g], response[g], b)
        if groups == horizon or h == horizon - 1:
            factor(gram[g], lower, whitener)
            np.dot(flat, whitener, whitened)
        z = np.dot(b, whitener)  # L⁻¹b = Lᵀw
        np.dot(whitener, z, w[h])
        y = whitened.reshape(n_states, n_actions, dim)
        backup(y, z, bonus[h], top[h], values[h], policy[h], norms, every, unkept)


@njit(cache=True, nogil=True)
def backward_diagonal(index, u, response, gram, bonus, top, w, values, policy):  # type: ignore[no-untyped-def]
    """The same for one-hot features: Λ_h is the vector of its diagonal."""
    b = np.empty(u.shape[1])
    every, unkept = np.empty((0, 0), np.bool_), np.empty((0, 0))
    horizon = w.shape[0]
    for h in range(horizon - 1, -1, -1):
        g = h if u.shape[0] == horizon else 0
        respond(values[h + 1], u[g], response[g], b)
        for i in range(b.size):
            w[h, i] = b[i] / gram[g, i]
        backup_diagonal(index, w[h], gram[g], bonus[h], top[h], values[h], policy[h], every, unkept)


@njit(cache=True, nogil=True)
def rebuild_dense(phi, w, gram, bonus, top, values, policy, rows, norms):  # type: ignore[no-untyped-def]
    """V_h and π_h from a received model, with what a trigger needs of π_h."""
    n_states, n_actions, dim = phi.shape
    flat = phi.reshape(n_states * n_actions, dim)
    lower = np.zeros((dim, dim))
    whitener = np.empty((dim, dim))
    whitened = np.empty((n_states * n_actions, dim))
    z = np.empty(dim)
    every, unkept = np.empty((0, 0), np.bool_), np.empty((0, 0))
    for h in range(w.shape[0]):
        if h < gram.shape[0]:  # one that steps share is factored once
            factor(gram[h], lower, whitener)
            np.dot(flat, whitener, whitened)
        for j in range(dim):
            z[j] = 0.0
        for i in range(dim):
            for j in range(i + 1):
                z[j] += lower[i, j] * w[h, i]
        y = whitened.reshape(n_states, n_actions, dim)
        backup(y, z, bonus[h], top[h], values[h], policy[h], norms[h], every, unkept)
        take_rows(y, policy[h], rows[h])


@njit(cache=True, nogil=True)
def rebuild_diagonal(index, w, gram, bonus, top, values, policy, slots, norms):  # type: ignore[no-untyped-def]
    """The same for one-hot features."""
    every, unkept = np.empty((0, 0), np.bool_), np.empty((0, 0))
    for h in range(w.shape[0]):
        g = h if gram.shape[0] == w.shape[0] else 0
        backup_diagonal(index, w[h], gram[g], bonus[h], top[h], values[h], policy[h], every, unkept)
        for x in range(policy.shape[1]):
            slots[h, x] = index[x, policy[h, x]]
            norms[h, x] = 1.0 / gram[g, slots[h, x]]


@njit(cache=True, nogil=True)
def fold(states, actions, rewards, phi, index, u, response, gram):  # type: ignore[no-untyped-def]
    """Add raw episodes: u += φr, N[:, x'] += φ, Λ += φφᵀ.

    states, actions and rewards are (m, H, n); x_{H+1} is left out because V_{H+1} = 0. Where steps
    share their sums states are (m, H + 1, n).
    """
    m, horizon, n = actions.shape
    dim, known = u.shape[1], states.shape[1]
    for i in range(m):
        for h in range(horizon):
            g = h if u.shape[0] == horizon else 0
            for e in range(n):
                x, a, r = states[i, h, e], actions[i, h, e], rewards[i, h, e]
                if phi.size == 0:
                    j = index[x, a]
                    u[g, j] += r
                    gram[g].reshape(-1)[j] += 1.0
                    if h + 1 < known:
                        response[g, j, states[i, h + 1, e]] += 1.0
                    continue
                row = phi[x, a]
                square = gram[g].reshape(-1)
                for j in range(dim):
                    u[g, j] += r * row[j]
                    for k in range(dim):
                        square[j * dim + k] += row[j] * row[k]
                if h + 1 < known:
                    y = states[i, h + 1, e]
                    for j in range(dim):
                        response[g, j, y] += row[j]


@njit(cache=True, nogil=True)
def growth(gram, base, logdet, out):  # type: ignore[no-untyped-def]
    """out[h] = log det Λ_h − log det(base_h); a dense base is given by its log-determinants."""
    for h in range(gram.shape[0]):
        if gram.ndim == 3:
            out[h] = logdet_in_place(gram[h].copy()) - logdet[h]
            continue
        total, ratio = 0.0, 1.0
        entries, before = gram[h].reshape(-1), base[h].reshape(-1)
        for i in range(entries.size):
            ratio *= entries[i] / before[i]
            if ratio > 1e200:  # one logarithm for many factors, all of which are at least 1
                total += np.log(ratio)
                ratio = 1.0
        out[h] = total + np.log(ratio)
