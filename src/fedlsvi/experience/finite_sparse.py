"""Experience with one-hot features and many states: N_h is kept only where P can reach.

The dense N_h has d·S entries per agent and step, nearly all of which stay zero: a pair (x, a) leads
to few states. Here the counts of (x, a, x') are kept for the pairs' successors alone, and

    b_i = Σ_{(x,a): index = i} Σ_{x'} N(x, a, x') (r + V(x')).

The sums are the same, in another order. Cells (x, a, x') lie row by row: those of (x, a) are
first[x·A + a] … first[x·A + a + 1] − 1, in ascending order of x' = to[cell].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from fedlsvi.core.statistics import Packing
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.experience.finite import Cells, FiniteExperience
from fedlsvi.experience.values import TabularValues
from fedlsvi.experience.workers import Workers


@njit(inline="always")
def _locate(to, begin, end, y):  # type: ignore[no-untyped-def]
    """The cell of the successor y among begin … end−1, by bisection."""
    while end - begin > 1:
        middle = (begin + end) // 2
        if to[middle] <= y:
            begin = middle
        else:
            end = middle
    return begin


@njit(inline="always")
def _tally(states, following, n, policy, n_actions, first, to, cells):  # type: ignore[no-untyped-def]
    """cells[(x, π(x), x')] += 1 for each of n transitions."""
    for e in range(n):
        x = np.int64(states[e])
        row = x * n_actions + policy[x]
        cells[_locate(to, first[row], first[row + 1], np.int64(following[e]))] += 1


@njit(cache=True, nogil=True)
def _spill_cells(lo, hi, n, log, policy, n_actions, first, to, cells, visits):  # type: ignore[no-untyped-def]
    """Add the first n logged episodes to cells[agent, h, cell] and visits[agent, h, x, 0]."""
    for i in range(lo, hi):
        for h in range(cells.shape[1]):
            states = log[i, h]
            _tally(states, log[i, h + 1], n, policy[h], n_actions, first, to, cells[i, h])
            for e in range(n):
                visits[i, h, np.int64(states[e]), 0] += 1


@njit(cache=True, nogil=True)
def _fold(  # type: ignore[no-untyped-def]
    lo, hi, n, log, table, policy, reward, moving, index, first, to, u, counts, gram
):
    """Fold a closed round into u (H, m, d), counts (H, m, cells) and gram (H, m, d).

    The round is what was spilled into table[agent, h, cell], and the first n logged episodes.
    """
    horizon = policy.shape[0]
    n_states, n_actions = index.shape
    cells = np.zeros(to.size, np.int64)
    for i in range(lo, hi):
        for h in range(horizon):
            pay = reward[h if reward.shape[0] > 1 else 0]
            for c in range(cells.size if table.size > 0 else 0):
                cells[c] = table[i, h, c]
            _tally(log[i, h], log[i, h + 1], n, policy[h], n_actions, first, to, cells)
            for x in range(n_states):
                a = policy[h, x]
                at = index[x, a]
                for c in range(first[x * n_actions + a], first[x * n_actions + a + 1]):
                    new = cells[c]
                    if new > 0:
                        gram[h, i, at] += new
                        u[h, i, at] += new * pay[x, a, to[c] if moving else 0]
                        counts[h, i, c] += new
                        cells[c] = 0


@njit(cache=True, nogil=True)
def _respond(lo, hi, index, first, to, values, u, counts, b):  # type: ignore[no-untyped-def]
    """b_i = u_i + Σ_{cells of i} count·V(x') of one step, for agents lo … hi−1."""
    n_states, n_actions = index.shape
    for i in range(lo, hi):
        for j in range(b.shape[1]):
            b[i, j] = u[i, j]
        for x in range(n_states):
            for a in range(n_actions):
                at = index[x, a]
                for c in range(first[x * n_actions + a], first[x * n_actions + a + 1]):
                    if counts[i, c] > 0:
                        b[i, at] += counts[i, c] * values[to[c]]


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
        self._gram = self._empty_gram()
        for lo, hi, env in self._groups:
            reward, moving, _, index = self._folding(env)
            seen = (self._logged, self._log, self._spilled, self._policy, reward, moving, index)
            sums = (self._rows, self._successors, self.u, self.response, self._gram)
            self.workers.map(_fold, lo, hi, *seen, *sums)
        self._logged = 0

    def summarise(self, h: int) -> tuple[np.ndarray, np.ndarray]:
        """Λ_h^loc of the round just closed, (m, d), and b_h over the whole history, (m, d)."""
        return self._gram[h - 1], self._respond(h, h - 1)

    def responses(self, h: int) -> np.ndarray:
        """b_h over the whole history, (m, d)."""
        return self._respond(h, h - 1)

    def _respond(self, h: int, row: int) -> np.ndarray:
        """b_h (m, d) from the counts in this row, with V_{h+1}."""
        m, counts = len(self.agents), self.response[row]
        b = np.empty((m, self.dim))
        cells = (self.values.index, self._rows, self._successors, self.values.values[h])
        self.workers.map(_respond, 0, m, *cells, self.u[row], counts, b, work=counts.size)
        return b

    def _empty_gram(self) -> np.ndarray:
        """Λ_h^loc of a round of which nothing is folded yet."""
        return np.zeros((self._policy.shape[0], len(self.agents), self._packed))

    def _take_following(self, at: int) -> Cells:
        counts, (n_states, _) = self.response[at], self.values.index.shape
        agent, cell = np.nonzero(counts)
        found = counts[agent, cell].astype(np.float64)
        counts[:] = 0
        pair = np.searchsorted(self._rows, cell, side="right") - 1
        place = self.values.index.ravel()[pair] * n_states + self._successors[cell]
        order = np.lexsort((place, agent))  # the index may be any permutation
        return agent[order], place[order], found[order]

    def _spill(self, m: int, horizon: int) -> None:
        if self._table.size == 0:
            # the trigger needs visits of states only: a table with one column
            self._table = np.zeros((m, horizon, len(self.values.index), 1), np.int64)
            self._spilled = np.zeros((m, horizon, len(self._successors)), np.int64)
        seen = (self._logged, self._log, self._policy, self.values.index.shape[1])
        cells = (self._rows, self._successors, self._spilled, self._table)
        self.workers.map(_spill_cells, 0, m, *seen, *cells)
