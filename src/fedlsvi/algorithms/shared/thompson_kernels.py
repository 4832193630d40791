"""Thompson sampling: the backward pass on N perturbed models, all H steps in one compiled call.

    Q_h = Π_[0, c_h](max_{n ≤ N} φᵀw_h^n),   w_h^n drawn around ŵ_h = Λ_h⁻¹(u_h + N_h V_{h+1}).

Both laws are exact Gaussians, so no history is perturbed and no chain is stepped:
PHE    w^n = ŵ + σL⁻ᵀz,  z ~ N(0, I),  Λ = LLᵀ.
LMC    after J steps w ← w − 2η(Λw − b) + √(2η/β_K)·N(0, I) from w₀, with Λ = UDUᵀ and c = 1 − 2ηD:
       w = ŵ + U c^J Uᵀ(w₀ − ŵ) + U √((2η/β_K)(1 − c^{2J})/(1 − c²)) z.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedlsvi.algorithms.shared.backward_kernels import factor
from fedlsvi.core.random import fill_uniforms
from fedlsvi.core.value import beats
from fedlsvi.experience.finite_kernels import respond


@njit(cache=True, nogil=True)
def normals(seed, stream, agent, episode, out):  # type: ignore[no-untyped-def]
    """Fill `out` with standard normals of (seed, stream, agent, episode), by Box and Muller."""
    flat = out.reshape(-1)
    pairs = (flat.size + 1) // 2
    u = np.empty((2 * pairs, 1))
    fill_uniforms(seed, stream, agent, episode, np.int64(1), u)
    for i in range(pairs):
        radius = np.sqrt(-2.0 * np.log1p(-u[2 * i, 0]))
        angle = 2.0 * np.pi * u[2 * i + 1, 0]
        flat[2 * i] = radius * np.cos(angle)
        if 2 * i + 1 < flat.size:
            flat[2 * i + 1] = radius * np.sin(angle)


@njit(cache=True, nogil=True)
def best_sample(score, ceiling, values, greedy):  # type: ignore[no-untyped-def]
    """V and π from scores (S, A, N): the best action of the best sample, lowest index first."""
    n_states, n_actions, samples = score.shape
    for x in range(n_states):
        best, top, chosen = -np.inf, -np.inf, 0
        for a in range(n_actions):
            highest = -np.inf
            for n in range(samples):
                highest = max(highest, score[x, a, n])
            top = max(top, highest)
            if beats(highest, best):
                best, chosen = highest, a
        values[x] = min(max(top, 0.0), ceiling)
        greedy[x] = chosen


@njit(cache=True, nogil=True)
def _best_entries(index, models, ceiling, values, greedy):  # type: ignore[no-untyped-def]
    """The same for one-hot features: the score of (x, a) is an entry of the model (N, d)."""
    n_states, n_actions = index.shape
    score = np.empty((n_states, n_actions, len(models)))
    for x in range(n_states):
        for a in range(n_actions):
            for n in range(len(models)):
                score[x, a, n] = models[n, index[x, a]]
    best_sample(score, ceiling, values, greedy)


@njit(cache=True, nogil=True)
def phe_dense(phi, u, response, gram, sigma, noise, top, w, values, policy):  # type: ignore[no-untyped-def]
    """noise is (H, N, d); w receives the means ŵ."""
    n_states, n_actions, dim = phi.shape
    samples = noise.shape[1]
    flat = phi.reshape(n_states * n_actions, dim)
    lower, whitener = np.zeros((dim, dim)), np.empty((dim, dim))
    whitened, b = np.empty((n_states * n_actions, dim)), np.empty(dim)
    horizon = w.shape[0]
    for h in range(horizon - 1, -1, -1):
        g = h if u.shape[0] == horizon else 0
        respond(values[h + 1], u[g], response[g], b)
        if g == h or h == horizon - 1:
            factor(gram[g], lower, whitener)
            np.dot(flat, whitener, whitened)
        z = np.dot(b, whitener)
        np.dot(whitener, z, w[h])
        targets = np.empty((dim, samples))
        for n in range(samples):
            for i in range(dim):
                targets[i, n] = z[i] + sigma * noise[h, n, i]
        score = np.dot(whitened, targets).reshape(n_states, n_actions, samples)
        best_sample(score, top[h], values[h], policy[h])


@njit(cache=True, nogil=True)
def phe_diagonal(index, u, response, gram, sigma, noise, top, w, values, policy):  # type: ignore[no-untyped-def]
    """The same for one-hot features."""
    b = np.empty(u.shape[1])
    models = np.empty(noise.shape[1:])
    for h in range(w.shape[0] - 1, -1, -1):
        g = h if u.shape[0] == w.shape[0] else 0
        respond(values[h + 1], u[g], response[g], b)
        for i in range(b.size):
            w[h, i] = b[i] / gram[g, i]
            for n in range(len(models)):
                models[n, i] = w[h, i] + sigma * noise[h, n, i] / np.sqrt(gram[g, i])
        _best_entries(index, models, top[h], values[h], policy[h])


@njit(cache=True, nogil=True)
def langevin(target, curvature, steps, sigma, noise, chain):  # type: ignore[no-untyped-def]
    """J Langevin steps at once in coordinates where Λ is diagonal: chain (N, d) moves in place.

    η = 1/(4·max D), 1/β_K = 2σ²; the law after many steps is N(ŵ, σ²/(D(1 − ηD))).
    """
    most = 0.0
    for i in range(curvature.size):
        most = max(most, curvature[i])
    eta = 0.25 / most
    for i in range(target.size):
        shrink = np.log1p(-2.0 * eta * curvature[i])  # log c
        kept = np.exp(steps * shrink)
        spread = -np.expm1(2.0 * steps * shrink)  # 1 − c^{2J}
        width = sigma * np.sqrt(spread / (curvature[i] * (1.0 - eta * curvature[i])))
        for n in range(len(chain)):
            chain[n, i] = target[i] + kept * (chain[n, i] - target[i]) + width * noise[n, i]


@njit(cache=True, nogil=True)
def lmc_dense(phi, u, response, gram, sigma, steps, noise, top, w, chain, values, policy):  # type: ignore[no-untyped-def]
    """chain (H, N, d) holds the samples from one episode to the next."""
    n_states, n_actions, dim = phi.shape
    samples = chain.shape[1]
    flat = phi.reshape(n_states * n_actions, dim)
    b, target, turned = np.empty(dim), np.empty(dim), np.empty((samples, dim))
    back, models = np.empty((dim, dim)), np.empty((dim, samples))
    score = np.empty((n_states * n_actions, samples))
    for h in range(w.shape[0] - 1, -1, -1):
        g = h if u.shape[0] == w.shape[0] else 0
        respond(values[h + 1], u[g], response[g], b)
        curvature, basis = np.linalg.eigh(gram[g])
        np.dot(b, basis, target)
        for i in range(dim):
            target[i] /= curvature[i]
            for j in range(dim):
                back[i, j] = basis[j, i]
        np.dot(basis, target, w[h])
        np.dot(chain[h], basis, turned)
        langevin(target, curvature, steps, sigma, noise[h], turned)
        np.dot(turned, back, chain[h])
        for i in range(dim):
            for n in range(samples):
                models[i, n] = chain[h, n, i]
        np.dot(flat, models, score)
        best_sample(score.reshape(n_states, n_actions, samples), top[h], values[h], policy[h])


@njit(cache=True, nogil=True)
def lmc_diagonal(index, u, response, gram, sigma, steps, noise, top, w, chain, values, policy):  # type: ignore[no-untyped-def]
    """The same for one-hot features."""
    b = np.empty(u.shape[1])
    for h in range(w.shape[0] - 1, -1, -1):
        g = h if u.shape[0] == w.shape[0] else 0
        respond(values[h + 1], u[g], response[g], b)
        for i in range(b.size):
            w[h, i] = b[i] / gram[g, i]
        langevin(w[h], gram[g], steps, sigma, noise[h], chain[h])
        _best_entries(index, chain[h], top[h], values[h], policy[h])
