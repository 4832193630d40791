"""Experience with one-hot features and many states: N_h is kept where P can reach only.

The dense N_h has d·S entries per agent and step, nearly all of them zero for ever: a pair (x, a)
leads to few states. Here the counts of (x, a, x') are kept for the pairs' successors alone, and

    b_i = Σ_{(x,a): index = i} Σ_{x'} N(x, a, x') (r + V(x')).

The sums are the same, in another order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedlsvi.core.statistics import Packing
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.experience import sparse_kernels
from fedlsvi.experience.finite import FiniteExperience
from fedlsvi.experience.values import TabularValues
from fedlsvi.experience.workers import Workers

DENSE_BYTES = 4 * 2**20
"""Up to this size of one agent's dense N it is kept dense; a matter of H, d and S alone, so that no
result depends on how agents are split into cohorts."""


def prefers_sparse(horizon: int, dim: int, n_states: int, n_actions: int) -> bool:
    """Whether a problem with one-hot features is kept by its cells.

    Where pairs share coordinates, d is small and so is the dense N.
    """
    return dim == n_states * n_actions and 8 * horizon * dim * n_states > DENSE_BYTES


class SparseExperience(FiniteExperience):
    """`FiniteExperience` whose N_h is a list of cells; for one-hot features only."""

    def __init__(
        self,
        envs: Sequence[FiniteMDP],
        agents: np.ndarray,
        values: TabularValues,
        seed: int,
        packing: Packing,
        workers: Workers,
    ) -> None:
        n_states, n_actions = values.index.shape
        reached = np.zeros((n_states * n_actions, n_states), bool)
        for env in {id(env): env for env in envs}.values():
            for P in env.P:
                reached |= P.reshape(reached.shape) > 0.0
        self._rows = np.zeros(len(reached) + 1, np.int64)
        np.cumsum(reached.sum(axis=1), out=self._rows[1:])
        self._successors = np.nonzero(reached)[1].astype(np.int64)
        super().__init__(envs, agents, values, seed, packing, workers)

    def _forget(self) -> None:
        super()._forget()
        self._spilled = np.empty((0, 0, 0), np.int64)

    def _empty_response(self, horizon: int, n_states: int) -> np.ndarray:
        return np.zeros((horizon, len(self.agents), len(self._successors)), np.int64)

    def close(self, length: int) -> None:
        """End the round after `length` episodes, and fold it into the counts."""
        self._cut(length)
        self._gram = np.zeros((self._policy.shape[0], len(self.agents), self._packed))
        for lo, hi, env in self._groups:
            reward, moving, _, index = self._folding(env)
            self.workers.map(
                sparse_kernels.fold,
                lo,
                hi,
                self._logged,
                self._log,
                self._spilled,
                self._policy,
                reward,
                moving,
                index,
                self._rows,
                self._successors,
                self.u,
                self.response,
                self._gram,
            )
        self._logged = 0

    def summarise(self, h: int) -> tuple[np.ndarray, np.ndarray]:
        """Λ_h^loc of the round just closed, (m, d), and b_h over the whole history, (m, d)."""
        b = np.empty((len(self.agents), self.dim))
        self.workers.map(
            sparse_kernels.respond,
            0,
            len(self.agents),
            self.values.index,
            self._rows,
            self._successors,
            self.values.values[h],
            self.u[h - 1],
            self.response[h - 1],
            b,
            work=self.response[h - 1].size,
        )
        return self._gram[h - 1], b

    def _spill(self, m: int, horizon: int) -> None:
        if self._table.size == 0:
            # the trigger needs visits of states only: a table with one column
            self._table = np.zeros((m, horizon, len(self.values.index), 1), np.int64)
            self._spilled = np.zeros((m, horizon, len(self._successors)), np.int64)
        self.workers.map(
            sparse_kernels.spill,
            0,
            m,
            self._logged,
            self._log,
            self._policy,
            self.values.index.shape[1],
            self._rows,
            self._successors,
            self._spilled,
            self._table,
        )
