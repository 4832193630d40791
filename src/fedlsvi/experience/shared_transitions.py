"""What one agent has seen, where φ(x, a) = e_a ⊗ ψ(x): ψ of every state, kept once.

The state after a transition is mostly the one before the next, so ψ takes one row where
`Transitions` keeps φ(x, a) and φ(x', ·): 1 + A times fewer rows, each A times shorter. A pass over
the history waits for memory, so that is what its time is made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedlsvi.core.statistics import DenseFactor, read_only
from fedlsvi.core.value import EVERY, respond_shared
from fedlsvi.experience.transitions import BLOCK, Later
from fedlsvi.experience.values import BlockValues
from fedlsvi.experience.workers import grown


class SharedTransitions:
    """All transitions of one agent, in the order in which they happened (see `Transitions`).

    Args:
        state_dim: s.
        values: The model in force.
        psi: ψ, states (n, s) → (n, D).
        memory: Bytes for ψ of the history.

    Attributes:
        n: How many transitions there are.
        rows: How many states.
        block: How many transitions the sums take at a time.
        states: (rows, s).
        here, after: (n,) where x and x' of a transition lie among the states; x again after an end.
        actions, rewards: (n,).
        ended: (n,) whether the episode ended there.
        norms2: (rows, A) ‖φ(x, a)‖²_{Λ⁻¹}.
    """

    OF_TRANSITIONS = ("here", "after", "actions", "rewards", "ended")

    def __init__(
        self,
        state_dim: int,
        values: BlockValues,
        psi: Callable[[np.ndarray], np.ndarray],
        memory: int,
    ) -> None:
        self.n = self.rows = self._kept = 0
        self._cuts: dict[tuple[int, int], tuple[Any, ...]] = {}  # what `respond` reads of a block
        self.values, self._psi_of = values, psi
        self._actions = values.features.n_actions
        self._width = values.features.dim // self._actions
        self._most = memory // (8 * self._width)
        self.block = values.size * max(1, BLOCK // (values.size * self._width))
        self.states, self.norms2 = np.empty((64, state_dim)), np.empty((64, self._actions))
        self.here, self.after, self.actions = np.empty((3, 64), np.int64)
        self.rewards, self.ended = np.empty(64), np.empty(64, bool)
        self._psi = np.empty((0, self._width))

    def append(
        self,
        states: np.ndarray,
        actions: np.ndarray,
        rewards: np.ndarray,
        following: np.ndarray,
        ended: np.ndarray,
    ) -> None:
        """Take in what happened next."""
        # a state of its own for x' where the next transition does not begin there
        alone = ~ended
        alone[:-1] &= (following[:-1] != states[1:]).any(axis=1)
        extra = np.cumsum(alone)
        here = self.rows + np.arange(len(states)) + extra - alone
        need, rows = self.n + len(actions), self.rows + len(states) + int(alone.sum())
        if need > len(self.actions):
            for name in self.OF_TRANSITIONS:
                setattr(self, name, grown(getattr(self, name), max(need, 2 * self.n), self.n))
        if rows > len(self.states):
            for name in ("states", "norms2"):
                setattr(self, name, grown(getattr(self, name), max(rows, 2 * self.rows), self.rows))
        new = slice(self.n, need)
        self.here[new], self.after[new] = here, here + ~ended
        self.actions[new], self.rewards[new], self.ended[new] = actions, rewards, ended
        self.states[here], self.states[here[alone] + 1] = states, following[alone]
        self.n, self.rows = need, rows
        self._cuts.clear()

    def gram(self, first: int, scratch: Any) -> np.ndarray:
        """Σφφᵀ of the transitions from `first` on, (d, d)."""
        size, dim = self.values.size, self.values.features.dim
        total = np.zeros((dim, dim))
        self._keep()
        for at in range(first, self.n, size):
            end = min(at + size, self.n)
            low, high = self._span(at, end)
            phi = np.zeros((end - at, self._actions, self._width))
            psi = self._rows(low, high)[self.here[at:end] - low]
            phi[np.arange(end - at), self.actions[at:end]] = psi
            flat = phi.reshape(-1, dim)
            total += flat.T @ flat
        return total

    def measure(self, at: int, end: int, factor: DenseFactor, scratch: Any) -> None:
        """Find ‖φ‖²_{Λ⁻¹} of the states that transitions at … end−1 begin in, and of those after
        them up to where the next transition begins."""
        low = int(self.here[at])
        high = int(self.here[end]) if end < self.n else self.rows
        size, found = self.values.size, self._rows(low, high)
        batch, whiten = np.zeros((size, self._width)), self._whitening(factor)
        for begin in range(0, high - low, size):
            n = min(size, high - low - begin)
            batch[:n] = found[begin : begin + n]
            own = slice(low + begin, low + begin + n)
            for a, part in enumerate(whiten):
                y = (batch @ part)[:n]
                self.norms2[own, a] = np.einsum("xi,xi->x", y, y)

    def _whitening(self, factor: DenseFactor) -> list[np.ndarray]:
        """For each action the (D, k) with ψᵀ(D, k) = L⁻¹φ up to zeros: φ is zero outside of one
        block, and honest sums give Λ, and so L, no entry between two blocks."""
        width, found = self._width, []
        for at in range(0, len(factor.lower), width):
            part = factor.inverse[at:, at : at + width]
            found.append(part[part.any(axis=1)].T)
        return found

    def respond(
        self, at: int, end: int, later: Later | None, scratch: Any
    ) -> tuple[np.ndarray, float]:
        """See `Transitions.respond`."""
        if (at, end) not in self._cuts:
            self._cuts[at, end] = self._cut(at, end)
        *seen, ended = self._cuts[at, end]
        if seen[0] is None:  # it does not fit into memory
            seen[:2] = self._rows(*self._span(at, end)), self.here[at]
        response = np.zeros((self._actions, self._width))
        if later is None:
            later, ended = (
                Later(response.copy(), np.zeros(3), 0.0, None, 0.0),
                np.ones(end - at, bool),
            )
        mask = EVERY if later.mask is None else later.mask(self.states[self.after[at:end]])
        w, limits = read_only(later.w.reshape(response.shape)), (later.bonus, later.ceiling)
        squares = respond_shared(*seen, ended, self.norms2, w, limits, later.ended, mask, response)
        return response.ravel(), squares

    def _cut(self, at: int, end: int) -> tuple[Any, ...]:
        """ψ from which state on, and here, after, actions, rewards and ended of a block: every step
        of a synchronisation asks for them. ψ is None where it has to be computed every time."""
        kept = self._span(at, end)[1] <= self._kept
        arrays = (self.here, self.after, self.actions, self.rewards, self.ended)
        return (self._psi if kept else None, 0, *(own[at:end] for own in arrays))

    def _span(self, at: int, end: int) -> tuple[int, int]:
        """The states of transitions at … end−1, as a range of rows."""
        return int(self.here[at]), int(max(self.here[end - 1], self.after[end - 1])) + 1

    def _keep(self) -> None:
        """Compute ψ of new states, of as many as there is room for."""
        last = min(self.rows, self._most)
        if last > len(self._psi):
            room = min(self._most, max(last, 2 * len(self._psi)))
            self._psi = grown(self._psi, room, self._kept)
        if last > self._kept:
            self._psi[self._kept : last] = self._computed(self._kept, last)
            self._kept = last
            self._cuts.clear()

    def _rows(self, low: int, high: int) -> np.ndarray:
        """ψ of states low … high−1, (n, D)."""
        return self._psi[low:high] if high <= self._kept else self._computed(low, high)

    def _computed(self, low: int, high: int) -> np.ndarray:
        """The same, in batches of one shape: a product of another may round differently."""
        size, found = self.values.size, np.empty((high - low, self._width))
        for at in range(low, high, size):
            own = self.states[at : min(at + size, high)]
            batch = np.concatenate([own, np.repeat(own[-1:], size - len(own), axis=0)])
            found[at - low : at - low + len(own)] = self._psi_of(batch)[: len(own)]
        return found
