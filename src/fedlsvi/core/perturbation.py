"""Scores that differ from episode to episode: a keyed perturbation of the bonus (`diversity=`).

With Λ = LLᵀ and y = L⁻¹φ, agent m acts in episode t by

    argmax_a  φᵀw + β‖y‖ + σβ·yᵀζ,   ζ_i uniform on [−1, 1), a function of (seed, m, t, i) alone.

yᵀζ is of the size of the bonus ‖y‖ and vanishes with it. Where the bonus knows the noise, β is
what ‖y‖ is multiplied by (`core.value.slope`). ζ is the same at every step of an episode,
so that an agent keeps to one direction; V is that of the unperturbed scores. One-hot features have
y = e_i/√Λ_ii: the bonus of a pair is multiplied by 1 + σζ_i.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedlsvi.core.random import philox, uniforms, unit
from fedlsvi.core.value import beats, slope, upper

DIVERSITY = 48
"""Stream of the perturbations."""


def directions(seed: int, agents: np.ndarray, first: int, n: int, dim: int) -> np.ndarray:
    """ζ of each agent in n episodes from `first` on, (m, n, d)."""
    return 2.0 * uniforms(seed, agents, first, n, dim, DIVERSITY) - 1.0


@njit(inline="always")
def _one_direction(seed, agent, episode, i):  # type: ignore[no-untyped-def]
    """ζ_i alone: of many coordinates an episode visits few."""
    low = np.uint64(0xFFFFFFFF)
    a, b, c, d = philox(
        np.uint64(i // 2), np.uint64(episode), np.uint64(agent), np.uint64(DIVERSITY),
        np.uint64(seed) & low, np.uint64(seed) >> np.uint64(32),
    )  # fmt: skip
    u = unit(a, b) if i % 2 == 0 else unit(c, d)
    return 2.0 * u - 1.0


@njit(cache=True, nogil=True)
def score_all(y, z, means, norms):  # type: ignore[no-untyped-def]
    """means[x, a] = yᵀz and norms[x, a] = ‖y‖², of whitened features y (n, A, d)."""
    n, n_actions, dim = y.shape
    for x in range(n):
        for a in range(n_actions):
            mean = 0.0
            norm2 = 0.0
            for i in range(dim):
                mean += y[x, a, i] * z[i]
                norm2 += y[x, a, i] * y[x, a, i]
            means[x, a] = mean
            norms[x, a] = norm2


@njit(inline="always")
def perturbed_action(x, model, index, bonus, zeta, key):  # type: ignore[no-untyped-def]
    """The action in state x, lowest index first up to `TIE`.

    model: (means (S, A), norms (S, A), rows (S·A, d)) of one step; a mean is −∞ where the action is
    not allowed, and no rows where features are one-hot. bonus: the step's row of
    `core.value.step_bonuses`, and σ. zeta: (d,), read where there are rows. key: (seed, agent,
    episode).
    """
    means, norms, rows = model
    n_actions = means.shape[1]
    best, chosen = -np.inf, 0
    for a in range(n_actions):
        if rows.shape[1] == 0:
            along = np.sqrt(norms[x, a]) * _one_direction(key[0], key[1], key[2], index[x, a])
        else:
            along = 0.0
            for i in range(zeta.size):
                along += rows[x * n_actions + a, i] * zeta[i]
        each = slope(norms[x, a], bonus)
        score = upper(means[x, a], norms[x, a], each) + bonus[3] * each * along
        if beats(score, best):
            best, chosen = score, a
    return chosen


@njit(cache=True, nogil=True)
def act_perturbed(x, model, index, bonus, seed, agents, episodes, zeta, chosen):  # type: ignore[no-untyped-def]
    """chosen[r] = action in x[r] of agents[r] in episodes[r]; zeta is (n, d) or (n, 0)."""
    for r in range(x.size):
        key = (seed, agents[r], episodes[r])
        chosen[r] = perturbed_action(x[r], model, index, bonus, zeta[r], key)


@njit(cache=True, nogil=True)
def choose_perturbed(y, z, bonus, perturbation, greedy, allowed):  # type: ignore[no-untyped-def]
    """greedy[x] of n states with whitened features y (n, A, d), each with its own σζ (n, d), among
    the actions of `allowed` (n, A), or `core.value.EVERY`."""
    n, n_actions, dim = y.shape
    masked = allowed.size > 0
    for x in range(n):
        best, chosen = -np.inf, 0
        for a in range(n_actions):
            if masked and not allowed[x, a]:
                continue
            mean, norm2, along = 0.0, 0.0, 0.0
            for i in range(dim):
                mean += y[x, a, i] * z[i]
                norm2 += y[x, a, i] * y[x, a, i]
                along += y[x, a, i] * perturbation[x, i]
            each = slope(norm2, bonus)
            score = upper(mean, norm2, each) + each * along
            if beats(score, best):
                best, chosen = score, a
        greedy[x] = chosen
