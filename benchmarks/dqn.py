"""DQN (Mnih et al. 2015) as a yardstick, in NumPy: fixed before the first run, tuned for nothing.

Two hidden layers of 64 ReLUs, Adam with 10⁻³, batches of 64 out of the last 50,000 transitions, an
update every fourth step after the first 1,000, the Huber loss, γ = .99, a target network renewed
every 250 updates, and ε from 1 to .05 over the first half of the episodes. Numbered states are
one-hot vectors; others are divided by the largest absolute value seen in each direction so far.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from fedlsvi.envs.gym.episodes import Copies
from fedlsvi.envs.gym.world import GymWorld, naming, reset_seeds

HIDDEN, RATE, BATCH, MEMORY = 64, 1e-3, 64, 50_000
EVERY, FIRST, TARGET = 4, 1000, 250
GAMMA, LAST = 0.99, 0.05


class Network:
    """Q(x, ·) of a batch, and one step of Adam on it."""

    def __init__(self, inputs: int, outputs: int, rng: np.random.Generator) -> None:
        sizes = (inputs, HIDDEN, HIDDEN, outputs)
        self.weights: list[np.ndarray] = []
        for a, b in pairwise(sizes):
            bound = 1.0 / np.sqrt(a)
            self.weights += [rng.uniform(-bound, bound, (a, b)), rng.uniform(-bound, bound, b)]
        self._first = [np.zeros_like(w) for w in self.weights]
        self._second = [np.zeros_like(w) for w in self.weights]
        self._updates = 0

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """(n, A)."""
        return self._layers(x, self.weights)[-1]

    @staticmethod
    def _layers(x: np.ndarray, weights: list[np.ndarray]) -> list[np.ndarray]:
        found = [x]
        for k in range(0, len(weights), 2):
            x = x @ weights[k] + weights[k + 1]
            found.append(x if k + 2 == len(weights) else np.maximum(x, 0.0))
            x = found[-1]
        return found

    def copied(self) -> list[np.ndarray]:
        """The weights as they are now."""
        return [w.copy() for w in self.weights]

    def at(self, x: np.ndarray, weights: list[np.ndarray]) -> np.ndarray:
        """Q (n, A) with other weights."""
        return self._layers(x, weights)[-1]

    def update(self, x: np.ndarray, a: np.ndarray, target: np.ndarray) -> None:
        """One step of Adam towards Q(x, a) = target, with the Huber loss."""
        layers, n = self._layers(x, self.weights), len(a)
        delta = np.zeros_like(layers[-1])
        rows = np.arange(n)
        delta[rows, a] = np.clip(layers[-1][rows, a] - target, -1.0, 1.0) / n
        gradients: list[np.ndarray] = []
        for k in range(len(self.weights) - 2, -1, -2):
            below = layers[k // 2]
            gradients = [below.T @ delta, delta.sum(axis=0), *gradients]
            if k:
                delta = (delta @ self.weights[k].T) * (below > 0.0)
        self._updates += 1
        rate = RATE * np.sqrt(1.0 - 0.999**self._updates) / (1.0 - 0.9**self._updates)
        for w, g, m, v in zip(self.weights, gradients, self._first, self._second, strict=True):
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            w -= rate * m / (np.sqrt(v) + 1e-8)


class DQN:
    """A greedy policy; `evaluate_policy` plays it."""

    def __init__(self, world: GymWorld, rng: np.random.Generator) -> None:
        self.horizon, self.finite = world.horizon, world.finite
        self.inputs = world.n_states if world.finite else world.state_dim
        self.network = Network(self.inputs, world.n_actions, rng)
        self.scale = np.full(self.inputs, 1e-8)

    def seen(self, states: np.ndarray) -> np.ndarray:
        """What the network gets, (n, inputs)."""
        if not self.finite:
            return states / self.scale
        rows = np.zeros((len(states), self.inputs))
        rows[np.arange(len(states)), states] = 1.0
        return rows

    def actions(self, step: int, states: np.ndarray) -> np.ndarray:
        """The greedy actions."""
        found: np.ndarray = self.network(self.seen(states)).argmax(axis=1)
        return found


def learn(world: GymWorld, episodes: int, seed: int) -> DQN:
    """Play so many episodes, one after the other."""
    rng = np.random.default_rng(seed)
    made = DQN(world, rng)
    shape: tuple[int, ...] = () if world.finite else (world.state_dim,)
    kind = np.int64 if world.finite else np.float64
    before, after = np.zeros((2, MEMORY, *shape), kind)
    actions, rewards, ended = np.zeros(MEMORY, int), np.zeros(MEMORY), np.zeros(MEMORY, bool)
    target, steps, updates = made.network.copied(), 0, 0
    copies, row = Copies(world, 1), np.zeros(1, np.int64)
    for t in range(1, episodes + 1):
        epsilon = max(LAST, 1.0 - (1.0 - LAST) * t / (0.5 * episodes))
        where = naming([0], t, 1, row)
        x: Any = copies.begin(reset_seeds(seed, [0], t, 1)[0], where)
        for h in range(1, world.horizon + 1):
            if not world.finite:
                made.scale = np.maximum(made.scale, np.abs(x[0]))
            a = int(made.actions(h, x)[0])
            if rng.random() < epsilon:
                a = int(rng.integers(world.n_actions))
            y, paid, over, _ = copies.advance(row, np.array([a]), h, where)
            at = steps % MEMORY
            before[at], actions[at], rewards[at], ended[at] = x[0], a, paid[0], over[0]
            if not over[0]:
                after[at] = y[0]
            steps += 1
            if steps >= FIRST and steps % EVERY == 0:
                some = rng.integers(min(steps, MEMORY), size=BATCH)
                ahead = made.network.at(made.seen(after[some]), target).max(axis=1)
                goals = rewards[some] + GAMMA * ahead * ~ended[some]
                made.network.update(made.seen(before[some]), actions[some], goals)
                updates += 1
                if updates % TARGET == 0:
                    target = made.network.copied()
            if over[0]:
                break
            x = y
    copies.close()
    return made
