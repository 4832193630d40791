"""Chains: small finite MDPs in which the reward lies at the far end. Actions: 0 left, 1 right."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.validation import count

LEFT, RIGHT = 0, 1


def _walk(n_states: int) -> np.ndarray:
    """P (S, 2, S) of deterministic moves that stop at both ends."""
    P = np.zeros((n_states, 2, n_states))
    x = np.arange(n_states)
    P[x, LEFT, np.maximum(x - 1, 0)] = 1.0
    P[x, RIGHT, np.minimum(x + 1, n_states - 1)] = 1.0
    return P


class RiverSwim(FiniteMDP):
    """Swimming against the current (Strehl & Littman 2008; Osband et al. 2013).

    Left always succeeds. Right moves on with .35, holds with .6, slips back with .05; at the left
    end it moves on with .6, at the right end it holds with .6. r = .005 for left at the left end,
    1 for right at the right end. RiverSwim(6) at H = 20: V* = 3.397, uniform policy .044.
    """

    registry_name = "river-swim"

    def __init__(self, n_states: int = 6, horizon: int = 20, initial: Any = 0) -> None:
        S = count("n_states", n_states, 2)
        P = _walk(S)
        P[:, RIGHT] = 0.0
        x = np.arange(1, S - 1)
        P[x, RIGHT, x - 1], P[x, RIGHT, x], P[x, RIGHT, x + 1] = 0.05, 0.6, 0.35
        P[0, RIGHT, :2] = 0.4, 0.6
        P[-1, RIGHT, -2:] = 0.4, 0.6
        r = np.zeros((S, 2))
        r[0, LEFT], r[-1, RIGHT] = 0.005, 1.0
        horizon = count("horizon", horizon)
        super().__init__(P, r, horizon=horizon, initial=initial, name="RiverSwim")
        self.record(n_states=S, horizon=horizon, initial=initial)


class NChain(FiniteMDP):
    """N states in a row, deterministic moves (Osband et al. 2016; Hsu et al. 2024).

    Starts in the second state; r = .001 in the first, 1 in the last, whatever the action.
    H = N + 8 unless given: walking right is worth 10.
    """

    registry_name = "n-chain"

    def __init__(self, n_states: int = 10, horizon: int | None = None, initial: Any = 1) -> None:
        N = count("n_states", n_states, 3)
        H = N + 8 if horizon is None else count("horizon", horizon)
        r = np.zeros((N, 2))
        r[0], r[-1] = 0.001, 1.0
        super().__init__(_walk(N), r, horizon=H, initial=initial, name="NChain")
        self.record(n_states=N, horizon=H, initial=initial)


class DeepSea(FiniteMDP):
    """The deep sea (Osband et al. 2019), with the column as the state; H = N, one-hot d = 2N.

    Left pays .01/N at once. Right pays nothing, but 1 in the last column at the last step, which
    only N rights in a row can reach: V* = 1.
    """

    registry_name = "deep-sea"

    def __init__(self, size: int = 10) -> None:
        N = count("size", size, 2)
        r = np.zeros((N, N, 2))
        r[:, :, LEFT] = 0.01 / N
        r[-1, -1, RIGHT] = 1.0
        super().__init__(_walk(N)[None], r, horizon=N, name="DeepSea")
        self.record(size=N)
