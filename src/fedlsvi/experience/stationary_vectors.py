"""Experience on continuous states where no step differs from another: every step's data counts.

    Λ = λI + Σ_h Σ φφᵀ,   b_h = Σ_{h'} Σ φ(r + V_{h+1}(x'))

Every synchronisation evaluates V_{h+1} at every next state of the history for every h. Features do
not change and Λ is the same for all steps, so φ(x', ·) is kept as far as memory allows, ‖φ‖²_{Λ⁻¹}
is found once, and what is left for each h is one product with w_{h+1}. An agent's transitions lie
in the order in which they happened and are cut into blocks from the first on; features always come
from batches of one shape. So no result depends on threads, cohorts, memory or restarts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedlsvi.core.ridge import DenseFactor
from fedlsvi.core.statistics import pack
from fedlsvi.core.value import maximum
from fedlsvi.experience.continuous import ContinuousExperience
from fedlsvi.experience.stepped import GymExperience
from fedlsvi.experience.trigger_search import RowTrigger
from fedlsvi.experience.values import BlockValues
from fedlsvi.experience.workers import Workers, grown

KEPT_BYTES = 2**30
"""Memory for features of a cohort's transitions; those of later ones are computed when needed."""

BLOCK = 2**19
"""Numbers φ(x', ·) that one block of the sums has, about."""

Scratch = list[tuple[np.ndarray, ...]]


class Transitions:
    """All transitions of one agent, in the order in which they happened.

    Attributes:
        n: How many there are.
        states, following: (n, s) before and after.
        actions, rewards: (n,).
        ended: (n,) whether the episode ended there; `following` then means nothing.
        norms2: (n, A) ‖φ(x', a)‖²_{Λ⁻¹}.
    """

    RAW = ("states", "following", "actions", "rewards", "ended", "norms2")

    def __init__(self, state_dim: int, values: BlockValues, kept: int) -> None:
        self.n, self.values, self._most = 0, values, kept
        n_actions, dim = values.features.n_actions, values.features.dim
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


class PooledHistory:
    """The transitions of a cohort's agents, and the sums over them.

    Args:
        state_dim: s.
        agents: m, their number.
        horizon: H.
        values: The model in force.
        after: What every step after the end of an episode pays, for each agent.
        workers: Threads.
    """

    def __init__(
        self,
        state_dim: int,
        agents: int,
        horizon: int,
        values: BlockValues,
        after: Sequence[float],
        workers: Workers,
    ) -> None:
        phi = values.features
        kept = KEPT_BYTES // (8 * agents * (phi.n_actions + 1) * phi.dim)
        self.agents = [Transitions(state_dim, values, kept) for _ in range(agents)]
        self.horizon, self.values, self.after, self.workers = horizon, values, after, workers
        self._measured: DenseFactor | None = None
        self._block = values.size * max(1, BLOCK // (values.size * phi.n_actions * phi.dim))
        self._first = [0] * agents  # the first transition of the round

    def begin(self) -> None:
        """What is appended from now on belongs to a new round."""
        self._first = [own.n for own in self.agents]

    def gram(self, scratch: Scratch) -> np.ndarray:
        """Λ^loc of the round, (m, d, d)."""
        m, dim, size = len(self.agents), self.values.features.dim, self.values.size
        grams = np.zeros((m, dim, dim))

        def add(lo: int, hi: int) -> None:
            buffers = scratch.pop()  # one set of buffers per thread; a list pops atomically
            for i in range(lo, hi):
                own = self.agents[i]
                own.keep_features(buffers)
                for at in range(self._first[i], own.n, size):
                    phi = own.features(at, min(at + size, own.n), buffers)[0]
                    grams[i] += phi.T @ phi
            scratch.append(buffers)

        self.workers.map(add, 0, m)
        return grams

    def responses(self, h: int, model: BlockValues, scratch: Scratch) -> np.ndarray:
        """b_h over the whole history with the model's V_{h+1}, (m, d)."""
        size, left = self._block, self.horizon - h
        work = [(i, at) for i, own in enumerate(self.agents) for at in range(0, own.n, size)]
        parts = np.empty((len(work), self.values.features.dim))
        factor = model.factors[h] if left else None
        fresh = factor is not self._measured  # all steps of a synchronisation share it

        def relabel(lo: int, hi: int) -> None:
            buffers, found = scratch.pop(), np.zeros(size)
            for part in range(lo, hi):
                i, at = work[part]
                own = self.agents[i]
                end = min(at + size, own.n)
                if factor is not None and fresh:
                    own.measure(at, end, factor, buffers)
                chosen, phi = own.features(at, end, buffers)
                if factor is not None:
                    mask = model.mask(h + 1, own.following[at:end])
                    limits = (model.betas[h], model.ceilings[h], found[: end - at], mask)
                    maximum(phi, own.norms2[at:end], model.weights[h], *limits)
                    found[: end - at][own.ended[at:end]] = left * self.after[i]
                np.matmul(own.rewards[at:end] + found[: end - at], chosen, out=parts[part])
            scratch.append(buffers)

        self.workers.map(relabel, 0, len(work))
        if factor is not None:
            self._measured = factor
        b = np.zeros((len(self.agents), parts.shape[1]))
        for (i, _), part in zip(work, parts, strict=True):
            b[i] += part
        return b


class StationaryContinuousExperience(ContinuousExperience):
    """`ContinuousExperience` whose steps share their data."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        m = len(self.agents)
        self._trigger = RowTrigger(m, self._horizon, self.dim, groups=1)
        size = (self.states.shape[3], m, self._horizon)
        self.pooled = PooledHistory(*size, self.values, [0.0] * m, self.workers)

    def close(self, length: int) -> None:
        """End the round after `length` episodes."""
        super().close(length)
        self.pooled.begin()
        self._pool(self.t, self.t + length)

    def extend(self, first: int, part: dict[str, np.ndarray]) -> None:
        """Put back what `history` gave."""
        super().extend(first, part)
        self._pool(first, first + part["actions"].shape[2])

    def _pool(self, first: int, last: int) -> None:
        """Episodes first+1 … last, one after the other."""
        new, s = slice(first, last), self.states.shape[3]
        for i, own in enumerate(self.pooled.agents):
            x, y = (part.transpose(1, 0, 2).reshape(-1, s)
                    for part in (self.states[i, :-1, new], self.states[i, 1:, new]))  # fmt: skip
            a, r = self.actions[i, :, new].T.ravel(), self.rewards[i, :, new].T.ravel()
            own.append(x, a, r, y, np.zeros(len(a), bool))

    def summarise(self, h: int) -> tuple[np.ndarray, np.ndarray]:
        """Λ^loc of the round just closed at h = H, else (m, 0); b_h over the history, (m, d)."""
        gram = np.empty((len(self.agents), 0))
        if h == self._horizon:
            gram = pack(self.pooled.gram(self._scratch), self.packing)
        return gram, self.responses(h)

    def responses(self, h: int) -> np.ndarray:
        """b_h over the whole history, (m, d)."""
        return self.pooled.responses(h, self.values, self._scratch)


class StationaryGymExperience(GymExperience):
    """`GymExperience` whose steps share their data. An end is an end at every step: after it there
    are (H − h)·r₀ to come, and no transition behind it enters the sums."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        m, s = len(self.agents), self.stores[0].states.shape[1]
        self._trigger = RowTrigger(m, self._horizon, self.dim, groups=1)
        size = (s, m, self._horizon)
        self.pooled = PooledHistory(*size, self.values, self._after, self.workers)
        # of every episode: the state after step H, and whether it ended
        self._finals, self._over = np.empty((m, 0, s)), np.empty((m, 0), np.uint8)

    def close(self, length: int) -> None:
        """End the round after `length` episodes; later ones are dropped."""
        before = [store.episodes for store in self.stores]
        super().close(length)
        last, ended = [], []
        for kept in self._played:  # cohorts' runs, each in blocks of episodes
            last.append(np.concatenate([played.last for played in kept], axis=1)[:, :length])
            ended.append(np.concatenate([played.ended for played in kept], axis=1)[:, :length])
        self.pooled.begin()
        self._remember(before[0], np.concatenate(last), np.concatenate(ended))

    def extend(self, first: int, part: dict[str, np.ndarray]) -> None:
        """Put back what `history` gave."""
        super().extend(first, part)
        self._remember(first, part["last"], part["ended"].astype(bool))

    def _remember(self, first: int, last: np.ndarray, ended: np.ndarray) -> None:
        """Pool the episodes after `first`, which end like this."""
        self._finals = np.concatenate([self._finals, last], axis=1)
        self._over = np.concatenate([self._over, ended.astype(np.uint8)], axis=1)
        for i, (store, own) in enumerate(zip(self.stores, self.pooled.agents, strict=True)):
            span = store.span(first, store.episodes)
            x, final = store.states[span], np.cumsum(store.lengths[first : store.episodes]) - 1
            y, over = np.roll(x, -1, axis=0), np.zeros(len(x), bool)
            y[final], over[final] = last[i], ended[i]
            own.append(x, store.actions[span], store.rewards[span], y, over)

    def history(self, first: int, last: int) -> dict[str, np.ndarray]:
        """The episodes after `first` up to `last`, for a checkpoint that only appends."""
        ends: dict[str, np.ndarray]
        ends = {"last": self._finals[:, first:last], "ended": self._over[:, first:last]}
        return super().history(first, last) | ends

    def fewest(self, first: int, last: int) -> int:
        """Every episode is in the one Λ^loc."""
        return last - first

    def summarise(self, h: int) -> tuple[np.ndarray, np.ndarray]:
        """Λ^loc of the round just closed at h = H, else (m, 0); b_h over the history, (m, d)."""
        gram = np.empty((len(self.agents), 0))
        if h == self._horizon:
            gram = pack(self.pooled.gram(self._scratch), self.packing)
        return gram, self.responses(h)

    def responses(self, h: int) -> np.ndarray:
        """b_h over the whole history, (m, d)."""
        return self.pooled.responses(h, self.values, self._scratch)
