"""What one agent has seen on continuous states, for sums over all of its transitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedlsvi.core.statistics import DenseFactor
from fedlsvi.core.value import EVERY, maximum
from fedlsvi.experience.values import BlockValues
from fedlsvi.experience.workers import grown

BLOCK = 2**19
"""Numbers φ(x', ·) that one block of the sums has, about."""

Scratch = list[tuple[np.ndarray, ...]]


class Later(NamedTuple):
    """V_{h+1} as transitions need it: weights, the bonus (3,), the clip, the masks of a batch of
    states (None: every action is allowed), and the value after an end."""

    w: np.ndarray
    bonus: np.ndarray
    ceiling: float
    mask: Callable[[np.ndarray], np.ndarray] | None
    ended: float


class Transitions:
    """All transitions of one agent, in the order in which they happened, with φ(x, a) and φ(x', ·)
    as far as they fit into so many bytes of memory.

    Attributes:
        n: How many there are.
        block: How many the sums take at a time.
        states, following: (n, s) before and after.
        actions, rewards: (n,).
        ended: (n,) whether the episode ended there; `following` then means nothing.
        norms2: (n, A) ‖φ(x', a)‖²_{Λ⁻¹}.
    """

    RAW = ("states", "following", "actions", "rewards", "ended", "norms2")

    def __init__(self, state_dim: int, values: BlockValues, memory: int) -> None:
        n_actions, dim = values.features.n_actions, values.features.dim
        self.n, self.values, self._most = 0, values, memory // (8 * (n_actions + 1) * dim)
        self.block = values.size * max(1, BLOCK // (values.size * n_actions * dim))
        self.states, self.following = np.empty((2, 64, state_dim))
        self.actions, self.rewards = np.empty(64, np.int64), np.empty(64)
        self.ended, self.norms2 = np.empty(64, bool), np.empty((64, n_actions))
        self._chosen, self._phi = np.empty((0, dim)), np.empty((0, n_actions, dim))
        self._kept = 0

    def append(
        self,
        states: np.ndarray,
        actions: np.ndarray,
        rewards: np.ndarray,
        following: np.ndarray,
        ended: np.ndarray,
    ) -> None:
        """Take in what happened next."""
        need = self.n + len(actions)
        if need > len(self.actions):
            for name in self.RAW:
                setattr(self, name, grown(getattr(self, name), max(need, 2 * self.n), self.n))
        new = slice(self.n, need)
        self.states[new], self.actions[new], self.rewards[new] = states, actions, rewards
        self.ended[new] = ended
        # what follows an end may be no state at all: features are asked at one that is
        self.following[new] = np.where(ended[:, None], states, following)
        self.n = need

    def keep_features(self, scratch: tuple[np.ndarray, ...]) -> None:
        """Compute features of new transitions, as many as there is room for."""
        last = min(self.n, self._most)
        if last > len(self._chosen):
            room = min(self._most, max(last, 2 * len(self._chosen)))
            self._chosen = grown(self._chosen, room, self._kept)
            self._phi = grown(self._phi, room, self._kept)
        for at in range(self._kept, last, self.values.size):
            end = min(at + self.values.size, last)
            self._chosen[at:end], self._phi[at:end] = self._computed(at, end, scratch)
        self._kept = max(self._kept, last)

    def features(
        self, at: int, end: int, scratch: tuple[np.ndarray, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """φ(x, a) (n, d) and φ(x', ·) (n, A, d) of transitions at … end−1."""
        if end <= self._kept:
            return self._chosen[at:end], self._phi[at:end]
        size, shape = self.values.size, scratch[0].shape[1:]
        chosen, phi = np.empty((end - at, shape[1])), np.empty((end - at, *shape))
        for begin in range(at, end, size):
            last = min(begin + size, end)
            part = slice(begin - at, last - at)
            chosen[part], phi[part] = self._computed(begin, last, scratch)
        return chosen, phi

    def _computed(
        self, at: int, end: int, scratch: tuple[np.ndarray, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        phi, actions = scratch[0], self.actions[at:end]
        chosen = self._fill(self.states[at:end], phi)[np.arange(end - at), actions]
        return chosen, self._fill(self.following[at:end], phi)

    def _fill(self, states: np.ndarray, phi: np.ndarray) -> np.ndarray:
        """φ (n, A, d) of up to `size` states, in a batch of that very size."""
        n = len(states)
        batch = np.concatenate([states, np.repeat(states[-1:], len(phi) - n, axis=0)])
        self.values.features.fill(batch, phi)
        return phi[:n]

    def measure(self, at: int, end: int, factor: DenseFactor, scratch: Any) -> None:
        """Find ‖φ‖²_{Λ⁻¹} of transitions at … end−1."""
        phi, whitened, _ = scratch
        found, (size, _, dim) = self.features(at, end, scratch)[1], phi.shape
        for begin in range(0, end - at, size):
            n = min(size, end - at - begin)
            phi[:n] = found[begin : begin + n]
            factor.whiten(phi.reshape(-1, dim), out=whitened.reshape(-1, dim))
            y = whitened[:n]
            self.norms2[at + begin : at + begin + n] = np.einsum("xai,xai->xa", y, y)

    def gram(self, first: int, scratch: tuple[np.ndarray, ...]) -> np.ndarray:
        """Σφφᵀ of the transitions from `first` on, (d, d)."""
        size, dim = self.values.size, self.values.features.dim
        total = np.zeros((dim, dim))
        self.keep_features(scratch)
        for at in range(first, self.n, size):
            phi = self.features(at, min(at + size, self.n), scratch)[0]
            total += phi.T @ phi
        return total

    def respond(
        self, at: int, end: int, later: Later | None, scratch: Any
    ) -> tuple[np.ndarray, float]:
        """Σφ(r + V(x')) of transitions at … end−1, (d,), and Σ(r + V(x'))²; V is 0 where nothing
        comes later."""
        chosen, phi = self.features(at, end, scratch)
        targets: np.ndarray = self.rewards[at:end]
        if later is not None:
            found, mask = np.empty(end - at), EVERY
            if later.mask is not None:
                mask = later.mask(self.following[at:end])
            limits = (later.bonus, later.ceiling)
            maximum(phi, self.norms2[at:end], later.w, *limits, found, mask)
            found[self.ended[at:end]] = later.ended
            targets = targets + found
        return targets @ chosen, float(targets @ targets)
