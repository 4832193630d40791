"""Backward induction on finite horizons: V*, V^π and greedy policies.

    Q_h(x,a) = r_h(x,a) + Σ_{x'} P_h(x'|x,a) V_{h+1}(x'),   V_{H+1} = 0.

P is (1 or H, S, A, S) and r is (1 or H, S, A); a leading 1 means the same at every step. Values are
(H+1, S): row h−1 belongs to step h, the last row is zero.
"""

from __future__ import annotations

import numpy as np


def at(array: np.ndarray, h: int) -> np.ndarray:
    """The slice of step h (1-based) of an array whose leading axis is 1 or H."""
    part: np.ndarray = array[h - 1 if len(array) > 1 else 0]
    return part


def optimal(
    P: np.ndarray, r: np.ndarray, horizon: int, allowed: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """V* (H+1, S) and the greedy policy (H, S); ties go to the lowest action. `allowed` is a mask
    (1 or H, S, A)."""
    n_states = P.shape[-1]
    values = np.zeros((horizon + 1, n_states))
    policy = np.empty((horizon, n_states), np.int64)
    for h in range(horizon, 0, -1):
        q = at(r, h) + at(P, h) @ values[h]
        if allowed is not None:
            q = np.where(at(allowed, h), q, -np.inf)
        policy[h - 1] = q.argmax(axis=1)
        values[h - 1] = q.max(axis=1)
    return values, policy


def evaluate(P: np.ndarray, r: np.ndarray, horizon: int, policy: np.ndarray) -> np.ndarray:
    """V^π (H+1, S) of actions int (H, S) or of action probabilities float (H, S, A)."""
    n_states, n_actions = P.shape[1:3]
    values = np.zeros((horizon + 1, n_states))
    if policy.ndim == 3:
        for h in range(horizon, 0, -1):
            q = at(r, h) + at(P, h) @ values[h]
            values[h - 1] = np.einsum("xa,xa->x", policy[h - 1], q)
        return values
    # only the S rows that the policy visits are gathered: S² entries instead of S²·A
    laws = P.reshape(-1, n_states)
    means = r.reshape(-1)
    rows = np.arange(n_states) * n_actions + policy
    step = n_states * n_actions
    p_offset = step if len(P) > 1 else 0
    r_offset = step if len(r) > 1 else 0
    for h in range(horizon - 1, -1, -1):
        chosen = laws.take(rows[h] + h * p_offset, axis=0)
        values[h] = means.take(rows[h] + h * r_offset) + chosen @ values[h + 1]
    return values
