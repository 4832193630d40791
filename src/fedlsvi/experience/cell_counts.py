"""Sums over numbered states with one-hot features, kept only where P can reach.

The dense N_h has d·S entries per agent and step, nearly all of which stay zero: a pair (x, a) leads
to few states. Here the counts of (x, a, x') are kept for the pairs' successors alone, and

    b_i = Σ_{(x,a): index = i} Σ_{x'} N(x, a, x') (r + V(x')).

The sums are those of `dense_counts`, in another order. Cells (x, a, x') lie row by row: those of
(x, a) are first[x·A + a] … first[x·A + a + 1] − 1, in ascending order of x' = to[cell].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from fedlsvi.core.model_fit import FIT
from fedlsvi.core.statistics import shared
from fedlsvi.experience.moments import Moments, cell_moments
from fedlsvi.experience.rooms import Arrays, Increment
from fedlsvi.experience.state_round import Pay, StateRound
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


class CellCounts:
    """u (G, m, d) and counts (G, m, cells) of G groups of steps; for one-hot features only.

    Args:
        values: The index of every pair (x, a).
        transitions: P of every world and step, (S, A, S) each.
        pay: The rewards.
        n_agents: m.
        horizon: H.
        groups: G, H or 1.
        workers: Threads.
    """

    def __init__(
        self,
        values: TabularValues,
        transitions: Sequence[np.ndarray],
        pay: list[Pay],
        n_agents: int,
        horizon: int,
        groups: int,
        workers: Workers,
    ) -> None:
        self.dim, self.horizon, self.pooled = values.dim, horizon, groups < horizon
        self.index, self.workers = values.index, workers
        n_states, n_actions = values.index.shape
        reached = np.zeros((n_states * n_actions, n_states), bool)
        for P in transitions:
            reached |= P.reshape(reached.shape) > 0.0
        self._rows = np.zeros(len(reached) + 1, np.int64)
        np.cumsum(reached.sum(axis=1), out=self._rows[1:])
        self._successors = np.nonzero(reached)[1].astype(np.int64)
        self.u = np.zeros((groups, n_agents, self.dim))
        self.counts = np.zeros((groups, n_agents, len(self._successors)), np.int64)
        self._spilled = np.empty((0, 0, 0), np.int64)
        self._noisy, self._pay = values.noise is not None, pay
        # of one agent, cells and visits
        self.spilled_bytes = 8 * horizon * (len(self._successors) + n_states)

    def spill(self, round_: StateRound) -> None:
        """Count the logged episodes cell by cell; the trigger needs visits of states only."""
        m = len(round_.states)
        if round_.visits.size == 0:
            round_.visits = np.zeros((m, self.horizon, len(self.index), 1), np.int64)
            self._spilled = np.zeros((m, self.horizon, len(self._successors)), np.int64)
        seen = (round_.logged, round_.states, round_.policy, self.index.shape[1])
        cells = (self._rows, self._successors, self._spilled, round_.visits)
        self.workers.map(_spill_cells, 0, m, *seen, *cells)
        round_.logged = 0

    def add(self, round_: StateRound, first: int, length: int) -> None:
        """Fold a round into the counts."""
        H, groups, m = self.horizon, *self.u.shape[:2]
        self._gram = np.zeros((groups, m, self.dim))
        sums = (self.u, self.counts, self._gram)
        if self.pooled:  # steps write into the same rows, one after the other
            sums = (shared(self.u, H), shared(self.counts, H), shared(self._gram, H))
        spilled = self._spilled if round_.visits.size else self._spilled[:0]
        for lo, hi, reward, moving in round_.pay:
            seen = (round_.logged, round_.states, spilled, round_.policy, reward, moving)
            cells = (self.index, self._rows, self._successors)
            self.workers.map(_fold, lo, hi, *seen, *cells, *sums)
        round_.logged = 0

    def upload(self, h: int, values: TabularValues) -> tuple[np.ndarray, np.ndarray]:
        """See `Memory.upload`."""
        gram = self._gram[self._group(h)]
        if self.pooled and h < self.horizon:
            gram = gram[:, :0]
        return gram, self.responses(h, values)

    def responses(self, h: int, values: TabularValues) -> np.ndarray:
        """See `Memory.responses`."""
        g = self._group(h)
        b, counts = np.empty(self.u.shape[1:]), self.counts[g]
        cells = (self.index, self._rows, self._successors, values.values[h])
        self.workers.map(_respond, 0, len(b), *cells, self.u[g], counts, b, work=counts.size)
        return b if values.noise is None else self._moments(h).behind(b, values.values[h])

    def _moments(self, h: int) -> Moments:
        """Σr² and the like of step h, from the counts."""
        counts = self.counts[self._group(h)]
        made = Moments.empty(len(counts), len(self.index))
        for lo, hi, reward, moving in self._pay:
            pay = reward[h - 1 if len(reward) > 1 else 0]
            cells = (counts, self._rows, self._successors, pay, moving)
            self.workers.map(cell_moments, lo, hi, *cells, *made, work=counts.size)
        return made

    def _group(self, h: int) -> int:
        return 0 if self.pooled else h - 1

    def take_increment(self, h: int) -> Increment:
        """See `CountingMemory`."""
        g, n_states = self._group(h), len(self.index)
        gram, u, counts = self._gram[g], self.u[g].copy(), self.counts[g]
        self.u[g] = 0.0
        moments = self._moments(h) if self._noisy else None
        agents, cells = np.nonzero(counts)
        values = counts[agents, cells].astype(np.float64)
        counts[:] = 0
        if not self.pooled and h == self.horizon:  # V_{H+1} = 0: N_H is not needed
            agents, cells, values = agents[:0], cells[:0], values[:0]
        pair = np.searchsorted(self._rows, cells, side="right") - 1
        places = self.index.ravel()[pair] * n_states + self._successors[cells]
        order = np.lexsort((places, agents))  # the index may be any permutation
        made = Increment(gram, u, agents[order], places[order], values[order], n_states)
        return made if moments is None else moments.behind_increment(made)

    def fit(self, h: int, w: np.ndarray, values: TabularValues) -> np.ndarray:
        """Nothing: a table says itself whether steps are alike."""
        return np.zeros((self.u.shape[1], FIT))

    def fewest(self, first: int, last: int) -> None:
        """Nothing: every episode reaches every step."""

    def state(self) -> Arrays:
        """What a checkpoint must hold between rounds."""
        return {"u": self.u, "response": self.counts}

    def restore(self, state: Arrays) -> None:
        """Continue from `state()`."""
        self.u[:], self.counts[:] = state["u"], state["response"]

    def history(self, first: int, last: int) -> Arrays:
        """Nothing: the counts are all that is remembered."""
        return {}

    def extend(self, first: int, part: Arrays) -> None:
        """Nothing to put back."""
