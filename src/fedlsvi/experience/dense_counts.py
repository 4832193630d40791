"""Sums over numbered states, dense in the next state; history is never replayed.

Every response b_h = Σφ(r + V_{h+1}(x')) over the whole history equals u_h + N_h V_{h+1} with
u_h = Σφr and N_h[:, x'] = Σ_{x'_j = x'} φ_j. Memory and the cost of a synchronisation are therefore
independent of the number of episodes. Within a round the policy is frozen, so (x, x') counts are
all that needs to be kept of it. Steps that share their data share u, N and Λ^loc.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedlsvi.core.model_fit import FIT
from fedlsvi.core.statistics import Packing, pack, packed_size, shared
from fedlsvi.experience import finite_kernels
from fedlsvi.experience.moments import Moments, count_moments
from fedlsvi.experience.rooms import Arrays, Increment
from fedlsvi.experience.state_round import StateRound
from fedlsvi.experience.values import TabularValues
from fedlsvi.experience.workers import Workers

OUTER_BYTES = 2**20
"""Up to this size a table of φφᵀ of all pairs (x, a) is quicker to read than its products are to
form again; a larger one would not stay in a core's own cache."""


class Folded(NamedTuple):
    """What rounds of more than `FEW` episodes added; whoever takes it clears it."""

    gram: np.ndarray
    """(G, m, P) of the last round."""
    u: np.ndarray
    """(G, m, d)"""
    following: np.ndarray
    """(tables, m, d, S)"""
    moments: Moments | None
    """(G, m, …) where the bonus knows the noise."""


class DenseCounts:
    """u (G, m, d) and N (G, m, d, S) of G groups of steps.

    Args:
        values: φ of all pairs (x, a).
        n_agents: m.
        horizon: H.
        groups: G, H or 1.
        workers: Threads.
    """

    def __init__(
        self, values: TabularValues, n_agents: int, horizon: int, groups: int, workers: Workers
    ) -> None:
        self.dim, self.horizon, self.pooled = values.dim, horizon, groups < horizon
        self.phi, self.index, self.workers = values.phi, values.index, workers
        n_states = values.values.shape[1]
        self.u = np.zeros((groups, n_agents, self.dim))
        # V_{H+1} = 0, so N_H is not needed unless other steps share it
        tables = groups if self.pooled else horizon - 1
        self.following = np.zeros((tables, n_agents, self.dim, n_states))
        self._nothing = np.empty((n_agents, self.dim, 0))
        self._outer = outer_products(values.phi)
        wire: Packing = "diagonal" if self.phi.size == 0 else "packed"
        self._packed = packed_size(self.dim, wire)
        self._moments: Moments | None = None  # of each group
        if values.noise is not None:
            self._moments = Moments.empty(groups, n_agents, n_states)
        self._round: StateRound | None = None
        self._pending = 0  # episodes of a short round, which `upload` folds in passing
        self.spilled_bytes = 8 * horizon * n_states**2  # of one agent's table of visits

    def spill(self, round_: StateRound) -> None:
        """Count the logged episodes into a table of (x, x')."""
        self._count(round_)
        m, n_states = len(round_.states), self.following.shape[3]
        if round_.visits.size == 0:
            round_.visits = np.zeros((m, self.horizon, n_states, n_states), np.int64)
        seen = (round_.logged, round_.states, round_.visits)
        self.workers.map(finite_kernels.spill, 0, m, *seen)
        round_.logged = 0

    def add(self, round_: StateRound, first: int, length: int) -> None:
        """Fold a round into the sums; which way depends on its length alone."""
        m, H, few = len(round_.states), self.horizon, length <= finite_kernels.FEW
        self._round, self._pending = round_, 0
        self._count(round_)
        self._close_moments(round_)
        # a new array each round: the last one went out in messages, and a message never changes
        self._gram = np.empty((1 if few and self.pooled else H, m, self._packed))
        if few and not self.pooled:
            self._pending = round_.logged
            return
        for lo, hi, reward, moving in round_.pay:
            about = (round_.policy, reward, moving, self.phi, self.index)
            if few:
                sums = (self.u[0], self.following[0], self._gram[0])
                seen = (round_.logged, round_.states, *about, self._outer)
                self.workers.map(finite_kernels.fold_few, lo, hi, *seen, *sums)
                continue
            kept = (self.u, self.following)
            if self.pooled:
                kept = (shared(self.u, H), shared(self.following, H))
            log = (round_.logged, round_.states, round_.visits, *about)
            self.workers.map(finite_kernels.fold, lo, hi, *log, *kept, self._gram)
        if self.pooled:
            self._gram = self._gram.sum(axis=0, keepdims=True)
        round_.logged = 0

    def _count(self, round_: StateRound) -> None:
        """Count Σr² and the like of the logged episodes, before the log is emptied."""
        if self._moments is None:
            return
        if round_.moments is None:  # nothing of this round was counted
            shape = (self.horizon, len(round_.states), self.following.shape[3])
            round_.moments = Moments.empty(*shape)
        for lo, hi, reward, moving in round_.pay:
            seen = (round_.logged, round_.states, round_.policy, reward, moving)
            self.workers.map(count_moments, lo, hi, *seen, *round_.moments)

    def _close_moments(self, round_: StateRound) -> None:
        """Take in those of the round."""
        if self._moments is None or round_.moments is None:
            return
        for total, new in zip(self._moments, round_.moments, strict=True):
            total[:, : new.shape[1]] += new.sum(axis=0, keepdims=True) if self.pooled else new

    def _behind(self, h: int, b: np.ndarray, values: TabularValues) -> np.ndarray:
        """b_h, with Σy² and n behind it where these are asked for."""
        if values.noise is None or self._moments is None:
            return b
        return self._moments_of(h).behind(b, values.values[h])

    def _moments_of(self, h: int) -> Moments:
        assert self._moments is not None
        at = 0 if self.pooled else h - 1
        return Moments(*(part[at] for part in self._moments))

    def folded(self) -> Folded:
        """What was added since it was last cleared."""
        return Folded(self._gram, self.u, self.following, self._moments)

    def upload(self, h: int, values: TabularValues) -> tuple[np.ndarray, np.ndarray]:
        """See `Memory.upload`."""
        if self.pooled:
            gram = self._gram[0] if h == self.horizon else np.empty((self.u.shape[1], 0))
            return gram, self.responses(h, values)
        gram, b = self._gram[h - 1], np.empty(self.u.shape[1:])
        following = self._following(h)
        assert self._round is not None
        for lo, hi, reward, moving in self._round.pay:
            about = (self._round.policy, reward, moving, self.phi, self.index, self._outer)
            sums = (values.values[h], self.u[h - 1], following, gram, b)
            work = (following.size + gram.size) // 16  # these stream: 16 cost as much as a draw
            seen = (h - 1, self._pending, self._round.states, *about)
            self.workers.map(finite_kernels.summarise, lo, hi, *seen, *sums, work=work)
        return gram, self._behind(h, b, values)

    def responses(self, h: int, values: TabularValues) -> np.ndarray:
        """See `Memory.responses`; all rounds are folded."""
        u = self.u[0 if self.pooled else h - 1]
        b, following = np.empty(u.shape), self._following(h)
        sums = (values.values[h], u, following, b)
        self.workers.map(finite_kernels.respond_all, 0, len(u), *sums, work=following.size // 16)
        return self._behind(h, b, values)

    def _following(self, h: int) -> np.ndarray:
        """N of step h."""
        at = 0 if self.pooled else h - 1
        if at >= len(self.following):
            return self._nothing
        following: np.ndarray = self.following[at]
        return following

    def take_increment(self, h: int) -> Increment:
        """See `CountingMemory`. `upload` comes first: it folds short rounds."""
        at = 0 if self.pooled else h - 1
        gram, u = self._gram[at], self.u[at].copy()
        self.u[at] = 0.0
        rows = self._following(h).reshape(len(u), -1)
        agents, places = np.nonzero(rows)
        values = rows[agents, places]
        rows[:] = 0.0
        made = Increment(gram, u, agents, places, values, self._following(h).shape[-1])
        if self._moments is None:
            return made
        kept = self._moments_of(h)
        made = kept.behind_increment(made)
        for part in kept:
            part[:] = 0.0
        return made

    def fit(self, h: int, w: np.ndarray, values: TabularValues) -> np.ndarray:
        """Nothing: a table says itself whether steps are alike."""
        return np.zeros((self.u.shape[1], FIT))

    def fewest(self, first: int, last: int) -> None:
        """Nothing: every episode reaches every step."""

    def state(self) -> Arrays:
        """What a checkpoint must hold between rounds."""
        kept = {"u": self.u, "response": self.following}
        if self._moments is not None:
            kept |= self._moments._asdict()
        return kept

    def restore(self, state: Arrays) -> None:
        """Continue from `state()`."""
        self.u[:], self.following[:] = state["u"], state["response"]
        if self._moments is not None:
            for name, part in self._moments._asdict().items():
                part[:] = state[name]

    def history(self, first: int, last: int) -> Arrays:
        """Nothing: the sums are all that is remembered."""
        return {}

    def extend(self, first: int, part: Arrays) -> None:
        """Nothing to put back."""


def outer_products(phi: np.ndarray) -> np.ndarray:
    """φφᵀ of every pair (x, a), packed, (S·A, P); empty where that is large or φ is one-hot."""
    n_states, n_actions, dim = phi.shape
    if not 0 < 8 * n_states * n_actions * packed_size(dim, "packed") <= OUTER_BYTES:
        return np.empty((0, 0))
    rows = phi.reshape(-1, dim)
    return np.ascontiguousarray(pack(rows[:, :, None] * rows[:, None, :], "packed"))
