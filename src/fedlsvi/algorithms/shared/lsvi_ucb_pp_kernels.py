"""Compiled parts of LSVI-UCB++: samples weighted by 1/σ̄², and tables that only ever tighten.

Σ_h = LLᵀ is kept by its factor, which a new sample changes in O(d²); φ's norm, the regressions at φ
and the growth of log det Σ_h all follow from L⁻¹φ. With one-hot features Σ_h is its diagonal, and
`lower` the square roots of its entries.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedlsvi.core.value import upper


@njit(cache=True, nogil=True)
def _rank_one(lower, v):  # type: ignore[no-untyped-def]
    """LLᵀ + vvᵀ, in place; v is used up."""
    dim = v.size
    for j in range(dim):
        root = np.hypot(lower[j, j], v[j])
        c, s = root / lower[j, j], v[j] / lower[j, j]
        lower[j, j] = root
        for i in range(j + 1, dim):
            lower[i, j] = (lower[i, j] + s * v[i]) / c
            v[i] = c * v[i] - s * lower[i, j]


@njit(cache=True, nogil=True)
def _forward(lower, v, out):  # type: ignore[no-untyped-def]
    """out = L⁻¹v."""
    for i in range(v.size):
        acc = v[i]
        for j in range(i):
            acc -= lower[i, j] * out[j]
        out[i] = acc / lower[i, i]


@njit(cache=True, nogil=True)
def _backward(lower, v, out):  # type: ignore[no-untyped-def]
    """out = L⁻ᵀv."""
    for i in range(v.size - 1, -1, -1):
        acc = v[i]
        for j in range(i + 1, v.size):
            acc -= lower[j, i] * out[j]
        out[i] = acc / lower[i, i]


@njit(inline="always")
def _inverse_variance(at_high, at_low, at_square, u, H, radii, factors):  # type: ignore[no-untyped-def]
    """1/σ̄² from φᵀŵ, φᵀw̌, φᵀw₂ and u = ‖φ‖_{Σ⁻¹}."""
    _, bar, tilde = radii
    factor_d, factor_sigma = factors
    mean = min(max(at_high, 0.0), H)
    variance = max(min(max(at_square, 0.0), H * H) - mean * mean, 0.0)
    error = min(tilde * u, H * H) + min(2.0 * H * bar * u, H * H)
    distance = factor_d * max(at_high - at_low + 2.0 * bar * u, 0.0)
    distance = min(distance, factor_d / 4.0 * H)  # d³H³ with the same scale
    return 1.0 / max(variance + error + distance + H, factor_sigma * factor_sigma * u)


@njit(cache=True, nogil=True)
def absorb(  # type: ignore[no-untyped-def]
    states, actions, phi, index, values, below, radii, factors, gram, lower, sums, grown
):
    """Add episodes (H, n) one after the other until some log det Σ_h has grown by log 2.

    → (episodes used, whether that happened); grown[h] counts the growth since the last switch.
    """
    horizon, n = actions.shape
    dim, n_states = sums.shape[1:]
    H = float(horizon)
    row, y, s = np.empty(dim), np.empty(dim), np.empty(dim)
    for e in range(n):
        due = False
        for h in range(horizon):
            x, a = states[h, e], actions[h, e]
            high = low = square = 0.0
            if phi.size == 0:
                i = index[x, a]
                entries, roots = gram[h].reshape(-1), lower[h].reshape(-1)
                u2 = 1.0 / entries[i]
                for z in range(n_states):
                    p = sums[h, i, z] * u2
                    v = values[h + 1, z]
                    high += p * v
                    low += p * below[h + 1, z]
                    square += p * v * v
                weight = _inverse_variance(high, low, square, np.sqrt(u2), H, radii, factors)
                entries[i] += weight
                roots[i] = np.sqrt(entries[i])
                if h + 1 < horizon:
                    sums[h, i, states[h + 1, e]] += weight
            else:
                row[:] = phi[x, a]
                full, factor = gram[h].reshape(dim, dim), lower[h].reshape(dim, dim)
                _forward(factor, row, y)
                _backward(factor, y, s)
                u2 = np.dot(y, y)
                for z in range(n_states):
                    p = 0.0
                    for i in range(dim):
                        p += sums[h, i, z] * s[i]
                    v = values[h + 1, z]
                    high += p * v
                    low += p * below[h + 1, z]
                    square += p * v * v
                weight = _inverse_variance(high, low, square, np.sqrt(u2), H, radii, factors)
                for i in range(dim):
                    for j in range(dim):
                        full[i, j] += weight * row[i] * row[j]
                    if h + 1 < horizon:
                        sums[h, i, states[h + 1, e]] += weight * row[i]
                row *= np.sqrt(weight)
                _rank_one(factor, row)
            grown[h] += np.log1p(weight * u2)
            if grown[h] >= np.log(2.0):
                due = True
        if due:
            return e + 1, True
    return n, False


@njit(cache=True, nogil=True)
def renew(  # type: ignore[no-untyped-def]
    phi, index, reward, gram, lower, sums, radii, top, score, low, values, below, policy, w
):
    """Q = min{r + φᵀŵ + βu, Q, c_h}, Q̌ = max{r + φᵀw̌ − β̄u, Q̌, 0}, h = H … 1.

    score keeps the estimates before the clip, so that ties at the clip do not decide a policy.
    """
    horizon, n_states, n_actions = reward.shape
    dim = sums.shape[1]
    beta, bar, _ = radii
    b, y = np.empty(dim), np.empty(dim)
    high, under = np.empty(dim), np.empty(dim)
    for h in range(horizon - 1, -1, -1):
        for values_ahead, model in ((values[h + 1], high), (below[h + 1], under)):
            for i in range(dim):
                b[i] = np.sum(sums[h, i] * values_ahead)
            if phi.size == 0:
                model[:] = b / gram[h].reshape(-1)
            else:
                factor = lower[h].reshape(dim, dim)
                _forward(factor, b, y)
                _backward(factor, y, model)
        w[h] = high
        for x in range(n_states):
            best, chosen, least = -np.inf, 0, 0.0
            for a in range(n_actions):
                if phi.size == 0:
                    i = index[x, a]
                    mean, floor, norm2 = high[i], under[i], 1.0 / gram[h].reshape(-1)[i]
                else:
                    row = phi[x, a]
                    _forward(lower[h].reshape(dim, dim), row, y)
                    mean, floor, norm2 = np.dot(row, high), np.dot(row, under), np.dot(y, y)
                r = reward[h, x, a]
                score[h, x, a] = min(score[h, x, a], upper(r + mean, norm2, beta))
                low[h, x, a] = max(low[h, x, a], upper(r + floor, norm2, -bar))
                if score[h, x, a] > best:
                    best, chosen = score[h, x, a], a
                least = max(least, low[h, x, a])
            values[h, x] = min(max(best, 0.0), top[h])
            below[h, x] = least
            policy[h, x] = chosen
