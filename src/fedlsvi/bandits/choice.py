"""How a bandit chooses: probabilities of arms from their scores, and a draw from them.

    greedy      the arm with the largest φᵀw + α‖φ‖_{Λ⁻¹}, lowest index first (LinUCB)
    softmax     ∝ exp(score/τ)
    thompson    how often each arm is the best under so many draws θ̃ ~ N(w, α²Λ⁻¹)

Whatever the choice, a least probability ε is given to every allowed arm: p ← (1 − Kε)p + ε. What
is drawn from is p itself, so p is the exact propensity, also of Thompson sampling: given its draws,
which arm is taken is a draw from p.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numba import njit

from fedlsvi.core.random import fill_uniforms
from fedlsvi.core.value import choose

Choice = Literal["greedy", "softmax", "thompson"]

DRAW, POSTERIOR = 64, 65
"""Streams of the keyed generator: which arm is taken, and draws from the posterior."""


@njit(cache=True, nogil=True)
def draws(seed, sites, numbers):  # type: ignore[no-untyped-def]
    """(n,) a uniform draw for each decision, keyed by its site and its number there."""
    u, one = np.empty(sites.size), np.empty((1, 1))
    for j in range(sites.size):
        fill_uniforms(seed, DRAW, sites[j], numbers[j], np.int64(1), one)
        u[j] = one[0, 0]
    return u


def greedy(scores: np.ndarray) -> np.ndarray:
    """(n, K) all probability on the best arm; −∞ is an arm that is not allowed."""
    p = np.zeros(scores.shape)
    p[np.arange(len(scores)), best(scores)] = 1.0
    return p


def best(scores: np.ndarray) -> np.ndarray:
    """(n,) the best arm, lowest index first."""
    chosen = np.zeros(len(scores), np.int64)
    if scores.size:
        choose(np.ascontiguousarray(scores), chosen)
    return chosen


def softmax(scores: np.ndarray, temperature: float) -> np.ndarray:
    """(n, K) ∝ exp(score/τ)."""
    weights = np.exp((scores - scores.max(axis=1, keepdims=True)) / temperature)
    p: np.ndarray = weights / weights.sum(axis=1, keepdims=True)
    return p


def frequencies(draws: np.ndarray) -> np.ndarray:
    """(n, K) how often each arm is the best of draws (S, n, K)."""
    p = np.zeros(draws.shape[1:])
    rows = np.arange(len(p))
    for scores in draws:
        p[rows, best(scores)] += 1.0
    return p / len(draws)


def at_least(p: np.ndarray, allowed: np.ndarray, least: float) -> np.ndarray:
    """(n, K) with ε for every allowed arm."""
    if least == 0.0:
        return p
    return np.where(allowed, (1.0 - allowed.sum(axis=1, keepdims=True) * least) * p + least, 0.0)


def drawn(p: np.ndarray, u: np.ndarray) -> np.ndarray:
    """(n,) the arm of each row's uniform u (n,)."""
    upto = np.cumsum(p, axis=1)
    chosen: np.ndarray = (upto <= (u * upto[:, -1])[:, None]).sum(axis=1)
    chosen = np.minimum(chosen, p.shape[1] - 1)
    return chosen
