"""Sums over vectors where no step differs from another: every step's data counts.

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

import numpy as np

from fedlsvi.core.statistics import DenseFactor
from fedlsvi.experience.moments import EXTRA
from fedlsvi.experience.shared_transitions import SharedTransitions
from fedlsvi.experience.transitions import Later, Scratch, Transitions
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
        self._measured: tuple[DenseFactor | None, int] = (None, 0)
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
        """b_h over the whole history with the model's V_{h+1}, as `Memory.responses`."""
        size, left = self._block, self.horizon - h
        work = [(i, at) for i, own in enumerate(self.agents) for at in range(0, own.n, size)]
        dim, extra = self.values.features.dim, 0 if model.noise is None else EXTRA
        parts = np.empty((len(work), dim + extra))
        later = None if left == 0 else self._later(h + 1, model)
        factor = model.factors[h] if left else None

        def relabel(lo: int, hi: int) -> None:
            buffers = scratch.pop()
            for part in range(lo, hi):
                i, at = work[part]
                own = self.agents[i]
                end = min(at + size, own.n)
                ahead = None if later is None else later[i]
                parts[part, :dim], squares = own.respond(at, end, ahead, buffers)
                parts[part, dim:] = (squares, end - at)[:extra]
            scratch.append(buffers)

        if factor is not None:
            self._measure(factor, work, scratch)
        self.workers.map(relabel, 0, len(work))
        b = np.zeros((len(self.agents), parts.shape[1]))
        for (i, _), part in zip(work, parts, strict=True):
            b[i] += part
        return b

    def _measure(self, factor: DenseFactor, work: list[tuple[int, int]], scratch: Scratch) -> None:
        """Find ‖φ(x', ·)‖²_{Λ⁻¹} of the whole history; all steps of a synchronisation share it."""
        many, (known, before) = sum(own.n for own in self.agents), self._measured
        if factor is known and many == before:
            return

        def measure(lo: int, hi: int) -> None:
            buffers = scratch.pop()
            for i, at in work[lo:hi]:
                own = self.agents[i]
                own.measure(at, min(at + self._block, own.n), factor, buffers)
            scratch.append(buffers)

        self.workers.map(measure, 0, len(work))
        self._measured = (factor, many)

    def _later(self, h: int, model: BlockValues) -> list[Later]:
        """V_h for every agent."""
        about = (model.weights[h - 1], model.bonuses[h - 1], model.ceilings[h - 1])
        left = self.horizon - h + 1
        mask = None if model.allowed is None else partial(model.mask, h)
        return [Later(*about, mask, left * own) for own in self.after]
