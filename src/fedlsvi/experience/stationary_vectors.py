"""Experience on continuous states where no step differs from another: every step's data counts.

    Λ = λI + Σ_h Σ φφᵀ,   b_h = Σ_{h'} Σ φ(r + V_{h+1}(x'))

Every synchronisation evaluates V_{h+1} at every next state of the history for every h. Features do
not change and Λ is the same for all steps, so they are kept as far as memory allows (`transitions`,
and `shared_transitions` where actions share ψ), ‖φ‖²_{Λ⁻¹} is found once, and what is left for each
h is one product with w_{h+1}. An agent's transitions lie in the order in which they happened and
are cut into blocks from the first on; features always come from batches of one shape. So no result
depends on threads, cohorts, memory or restarts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from fedlsvi.core.statistics import DenseFactor, pack
from fedlsvi.experience.continuous import ContinuousExperience
from fedlsvi.experience.shared_transitions import SharedTransitions
from fedlsvi.experience.stepped import GymExperience
from fedlsvi.experience.transitions import Later, Scratch, Transitions
from fedlsvi.experience.trigger_search import RowTrigger
from fedlsvi.experience.values import BlockValues
from fedlsvi.experience.workers import Workers

KEPT_BYTES = 2**30
"""Memory for features of a cohort's transitions; those of later ones are computed when needed."""


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
        psi, memory = values.features.shared(), KEPT_BYTES // agents
        self.agents: list[Transitions | SharedTransitions] = [
            Transitions(state_dim, values, memory)
            if psi is None
            else SharedTransitions(state_dim, values, psi, memory)
            for _ in range(agents)
        ]
        self.horizon, self.values, self.after, self.workers = horizon, values, after, workers
        self._measured: DenseFactor | None = None
        self._block = self.agents[0].block
        self._first = [0] * agents  # the first transition of the round

    def begin(self) -> None:
        """What is appended from now on belongs to a new round."""
        self._first = [own.n for own in self.agents]

    def gram(self, scratch: Scratch) -> np.ndarray:
        """Λ^loc of the round, (m, d, d)."""
        m, dim = len(self.agents), self.values.features.dim
        grams = np.zeros((m, dim, dim))

        def add(lo: int, hi: int) -> None:
            buffers = scratch.pop()  # one set of buffers per thread; a list pops atomically
            for i in range(lo, hi):
                grams[i] = self.agents[i].gram(self._first[i], buffers)
            scratch.append(buffers)

        self.workers.map(add, 0, m)
        return grams

    def responses(self, h: int, model: BlockValues, scratch: Scratch) -> np.ndarray:
        """b_h over the whole history with the model's V_{h+1}, (m, d)."""
        size, left = self._block, self.horizon - h
        work = [(i, at) for i, own in enumerate(self.agents) for at in range(0, own.n, size)]
        parts = np.empty((len(work), self.values.features.dim))
        later = None if left == 0 else self._later(h + 1, model)
        factor = model.factors[h] if left else None

        def relabel(lo: int, hi: int) -> None:
            buffers = scratch.pop()
            for part in range(lo, hi):
                i, at = work[part]
                own = self.agents[i]
                end = min(at + size, own.n)
                parts[part] = own.respond(at, end, None if later is None else later[i], buffers)
            scratch.append(buffers)

        if factor is not None and factor is not self._measured:
            self._measure(factor, work, scratch)  # all steps of a synchronisation share it
        self.workers.map(relabel, 0, len(work))
        b = np.zeros((len(self.agents), parts.shape[1]))
        for (i, _), part in zip(work, parts, strict=True):
            b[i] += part
        return b

    def _measure(self, factor: DenseFactor, work: list[tuple[int, int]], scratch: Scratch) -> None:
        """Find ‖φ(x', ·)‖²_{Λ⁻¹} of the whole history."""

        def measure(lo: int, hi: int) -> None:
            buffers = scratch.pop()
            for i, at in work[lo:hi]:
                own = self.agents[i]
                own.measure(at, min(at + self._block, own.n), factor, buffers)
            scratch.append(buffers)

        self.workers.map(measure, 0, len(work))
        self._measured = factor

    def _later(self, h: int, model: BlockValues) -> list[Later]:
        """V_h for every agent."""
        about = (model.weights[h - 1], model.betas[h - 1], model.ceilings[h - 1])
        left = self.horizon - h + 1
        mask = None if model.allowed is None else partial(model.mask, h)
        return [Later(*about, mask, left * own) for own in self.after]


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
