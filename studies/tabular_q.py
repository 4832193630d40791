"""Tabular Q-learning as a baseline: a few lines, fixed before the first run and not tuned.

Q(x, a) += α(r + γ max Q(x') − Q(x, a)) with α = .1, γ = .99, Q₀ = 0 and ε from 1 to .05 over
the first four fifths of the episodes. Observations that are vectors are cut into bins.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.envs.gym.world import GymWorld, reset_seeds

ALPHA, GAMMA, LAST = 0.1, 0.99, 0.05


class TabularQ:
    """A greedy policy over numbered states; `evaluate_policy` plays it."""

    def __init__(self, world: GymWorld, bins: list[np.ndarray] | None) -> None:
        self.horizon, self.bins, self.n_actions = world.horizon, bins, world.n_actions
        cells = world.n_states if bins is None else int(np.prod([len(b) + 1 for b in bins]))
        self.Q = np.zeros((cells, world.n_actions))

    def cell(self, states: np.ndarray) -> np.ndarray:
        """Numbers (n,) of states (n,) or (n, s)."""
        if self.bins is None:
            return np.asarray(states, np.int64)
        parts = [np.digitize(states[:, k], edges) for k, edges in enumerate(self.bins)]
        return np.asarray(np.ravel_multi_index(parts, [len(b) + 1 for b in self.bins]))

    def actions(
        self, step: int, states: np.ndarray, allowed: np.ndarray | None = None
    ) -> np.ndarray:
        """The greedy actions; every action is allowed in the worlds of the table."""
        return np.asarray(self.Q[self.cell(states)].argmax(axis=1))


def learn(world: GymWorld, episodes: int, seed: int, bins: list[np.ndarray] | None) -> TabularQ:
    """Play so many episodes, one after the other."""
    from fedlsvi.envs.gym.episodes import Copies
    from fedlsvi.envs.gym.world import naming

    made, rng = TabularQ(world, bins), np.random.default_rng(seed)
    copies, row = Copies(world, 1), np.zeros(1, np.int64)
    for t in range(1, episodes + 1):
        epsilon = max(LAST, 1.0 - (1.0 - LAST) * t / (0.8 * episodes))
        where = naming([0], t, 1, row)
        x = copies.begin(reset_seeds(seed, [0], t, 1)[0], where)
        here = int(made.cell(x)[0])
        for h in range(1, world.horizon + 1):
            a = int(made.Q[here].argmax())
            if rng.random() < epsilon:
                a = int(rng.integers(world.n_actions))
            x, paid, ended, _ = copies.advance(row, np.array([a]), h, where)
            ahead = 0.0
            if not ended[0]:
                there = int(made.cell(x)[0])
                ahead = GAMMA * float(made.Q[there].max())
            made.Q[here, a] += ALPHA * (float(paid[0]) + ahead - made.Q[here, a])
            if ended[0]:
                break
            here = there
    copies.close()
    return made


def edges(low: list[float], high: list[float], n: int) -> Any:
    """n equal bins between low and high, in every direction."""
    return [np.linspace(a, b, n + 1)[1:-1] for a, b in zip(low, high, strict=True)]
