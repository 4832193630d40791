"""Agents with coefficients of their own, as one problem that knows nothing of them.

The states of agent m are (m, x), where x is a state of its environment; its features at (m, x) are
(φ_s, φ_o ⊗ e_m), so that one w for all, (w, v_1, …, v_M), is the shared coefficients and each
agent's own. Whatever learns this problem with one w is the reference for `own_features=`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlsvi.envs.finite import FiniteMDP

Array = NDArray[Any]


def offset_sites(
    n_agents: int, n_states: int, n_actions: int, horizon: int, size: float = 0.3, seed: int = 0
) -> list[FiniteMDP]:
    """Sites with one law and rewards that are linear in shared features and, by site, in actions.

    φ(x, a) = (ψ(x, a), e_a)/√2 with ψ on the simplex; the last `n_actions` features are own.
    """
    rng = np.random.default_rng(seed)
    d = 3
    psi = rng.dirichlet(np.ones(d), (n_states, n_actions))
    mu = rng.dirichlet(np.full(n_states, 0.5), (horizon, d))
    P = np.einsum("xai,hiy->hxay", psi, mu)
    base = 0.3 + 0.4 * np.einsum("xai,hi->hxa", psi, rng.random((horizon, d)))
    actions = np.broadcast_to(np.eye(n_actions), (n_states, n_actions, n_actions))
    phi = np.concatenate([psi, actions], axis=2) / np.sqrt(2.0)
    offsets = size * (2.0 * rng.random((n_agents, n_actions)) - 1.0)
    return [
        FiniteMDP(P, np.clip(base + offset, 0.0, 1.0), initial=m % n_states, phi=phi)
        for m, offset in enumerate(offsets)
    ]


def expanded(phi: Array, own: int, m: int, n_agents: int) -> Array:
    """(φ_s, φ_o ⊗ e_m), of features (…, d)."""
    d = phi.shape[-1] - own
    found = np.zeros((*phi.shape[:-1], d + n_agents * own))
    found[..., :d] = phi[..., :d]
    found[..., d + m * own : d + (m + 1) * own] = phi[..., d:]
    return found


def together(envs: Sequence[FiniteMDP], own: int) -> FiniteMDP:
    """All of them in one: agent m begins in, and never leaves, its own copy of the states."""
    M, S, A = len(envs), envs[0].n_states, envs[0].n_actions
    steps = max(len(env.P) for env in envs)
    P, r = np.zeros((steps, M * S, A, M * S)), np.zeros((envs[0].horizon, M * S, A))
    first, phi = np.zeros((M, M * S)), []
    for m, env in enumerate(envs):
        at = slice(m * S, (m + 1) * S)
        P[:, at, :, at], r[:, at], first[m, at] = env.P, env.r, env.initial_law(m)
        phi.append(expanded(env.default_features().table, own, m, M))  # type: ignore[attr-defined]
    return FiniteMDP(P, r, initial=first, phi=np.concatenate(phi))
