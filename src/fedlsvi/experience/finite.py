"""Experience in a finite state space: counts, never a replay of history.

Every response b_h = Σφ(r + V_{h+1}(x')) over the whole history equals u_h + N_h V_{h+1} with
u_h = Σφr and N_h[:, x'] = Σ_{x'_j = x'} φ_j. Memory and the cost of a synchronisation are therefore
independent of the number of episodes. Within a round the policy is frozen, so (x, x') counts are
all that needs to be kept of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedlsvi.core.statistics import Packing, pack, packed_size, unpack
from fedlsvi.core.trigger import Rule
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.experience import finite_kernels
from fedlsvi.experience.finite_kernels import packed, policy_rows, simulate
from fedlsvi.experience.trigger_search import CountTrigger, Firing
from fedlsvi.experience.values import TabularValues
from fedlsvi.experience.workers import Workers, contiguous_runs, grown

LOG_BYTES = 64 * 2**20
"""Memory for the states of the round under way; a longer round spills into counts."""

OUTER_BYTES = 2**20
"""Up to this size a table of φφᵀ of all pairs (x, a) is quicker to read than its products are to
form again; a larger one would not stay in a core's own cache."""


Cells = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Entries of N_h that are not zero: agent, place in (d, S), value; agents in order."""


class FiniteExperience:
    """What the agents of a cohort saw: the round under way and the sums over all rounds before."""

    def __init__(
        self,
        envs: Sequence[FiniteMDP],
        agents: np.ndarray,
        values: TabularValues,
        seed: int,
        packing: Packing,
        workers: Workers,
    ) -> None:
        self.agents, self.values, self.seed = agents, values, seed
        self.packing, self.workers = packing, workers
        m, horizon = len(agents), envs[0].horizon
        n_states, dim = envs[0].n_states, values.dim
        self.dim = dim
        self._groups = contiguous_runs(envs)
        self._samplers = {
            id(env): (packed(env.initial_tables), packed(env.tables)) for _, _, env in self._groups
        }
        self.u = self._empty_earned(horizon)
        self.response = self._empty_response(horizon, n_states)
        self._nothing = np.empty((m, dim, 0))
        self._outer = outer_products(values.phi)
        wire: Packing = "diagonal" if packing == "diagonal" else "packed"
        self._packed = packed_size(dim, wire)
        self._trigger = CountTrigger(m, horizon, workers)
        self._capacity = max(64, LOG_BYTES // (4 * m * (horizon + 1)))
        self.block = self._capacity
        self._log = np.empty((m, horizon + 1, 8), np.uint32)
        self._first = np.empty((horizon, n_states), np.int64)
        self._width = np.empty((horizon, n_states))

    def _empty_earned(self, horizon: int) -> np.ndarray:
        """u_h of every agent, before anything was seen."""
        return np.zeros((horizon, len(self.agents), self.dim))

    def _empty_response(self, horizon: int, n_states: int) -> np.ndarray:
        """N_h of every agent, before anything was seen; V_{H+1} = 0, so N_H is not needed."""
        return np.zeros((horizon - 1, len(self.agents), self.dim, n_states))

    def begin(self, t: int) -> None:
        """A new round after episode t, with the policy that `values` holds now."""
        self.t, self.length = t, 0
        self._forget()
        self._last = 0
        self._trigger.begin()
        self._policy = self.values.policy.copy()

    def _forget(self) -> None:
        """Nothing has been logged or counted in this round."""
        self._logged = 0
        self._table = np.empty((0, 0, 0, 0), np.int64)

    def explore(self, n: int) -> None:
        """Every agent plays its next n episodes."""
        self._make_room(n)
        for lo, hi, env in self._groups:
            law, (start, prob, pair) = self._samplers[id(env)]
            policy_rows(
                start, len(env.P) == 1, env.n_actions, self._policy, self._first, self._width
            )
            episodes = (self.seed, self.agents, self.t + self.length + 1, n, self._logged)
            tables = (law, (prob, pair), self._first, self._width, self._log)
            work = self._log.shape[0] * self._log.shape[1] * n
            self.workers.map(simulate, lo, hi, *episodes, *tables, work=work)
        self._logged += n
        self.length += n
        self._last = n

    def first_firing(self, rule: Rule, n: int) -> Firing:
        """Search the first n of the episodes explored last."""
        before, offset = self.length - self._last, self._logged - self._last
        where = (self._log, self._table, self.values.marks, before, offset, n)
        return self._trigger.search(*where, rule)

    def close(self, length: int) -> None:
        """End the round after `length` episodes, and fold it into the sums if it is long.

        Which of the two ways a round is folded depends on its length alone.
        """
        self._cut(length)
        # a new array each round: the last one went out in messages, and a message never changes
        self._gram = np.empty((self._policy.shape[0], len(self.agents), self._packed))
        if length <= finite_kernels.FEW:
            return
        for lo, hi, env in self._groups:
            seen = (self._logged, self._log, self._table, self._policy, *self._folding(env))
            self.workers.map(finite_kernels.fold, lo, hi, *seen, self.u, self.response, self._gram)
        self._logged = 0

    def _cut(self, length: int) -> None:
        """Drop what was played beyond the round's first `length` episodes. Of what was counted,
        nothing can be taken back: then the round is played again, with the same draws."""
        beyond, whole = self.length - length, self._logged == self.length
        # a short round is summarised from the log alone, so all of it must be there
        if beyond <= self._logged and (whole or length > finite_kernels.FEW):
            self._logged -= beyond
            self.length = length
            return
        self._forget()
        self.length = 0
        while self.length < length:
            self.explore(min(self.block, length - self.length))

    def summarise(self, h: int) -> tuple[np.ndarray, np.ndarray]:
        """Λ_h^loc of the round just closed, (m, P), and b_h over the whole history, (m, d)."""
        gram, b = self._gram[h - 1], np.empty((len(self.agents), self.dim))
        response = self.response[h - 1] if h <= len(self.response) else self._nothing
        for lo, hi, env in self._groups:
            seen = (h - 1, self._logged, self._log, self._policy, *self._folding(env), self._outer)
            sums = (self.values.values[h], self.u[h - 1], response, gram, b)
            work = (response.size + gram.size) // 16  # these stream: 16 cost as much as a draw
            self.workers.map(finite_kernels.summarise, lo, hi, *seen, *sums, work=work)
        if self.packing == "dense":
            gram = unpack(gram, self.dim, "packed").reshape(len(gram), -1)
        return gram, b

    def responses(self, h: int) -> np.ndarray:
        """b_h over the whole history, (m, d), of rounds that are all folded."""
        m, b = len(self.agents), np.empty((len(self.agents), self.dim))
        response = self.response[h - 1] if h <= len(self.response) else self._nothing
        sums = (self.values.values[h], self.u[h - 1], response, b)
        work = response.size // 16
        self.workers.map(finite_kernels.respond_all, 0, m, *sums, work=work)
        return b

    def take_increments(self, h: int) -> tuple[np.ndarray, np.ndarray, Cells]:
        """What the round just closed adds to Λ_h (m, P), u_h (m, d) and N_h; it is not kept, so
        that the next round's is its own (`protocol.one_trip`)."""
        gram, _ = self.summarise(h)
        at = min(h, len(self.u)) - 1  # steps may share their sums
        u = self.u[at].copy()
        self.u[at] = 0.0
        return gram, u, self._take_following(at)

    def _take_following(self, at: int) -> Cells:
        """Entries of N[at] that are not zero: agent, place in (d, S), value."""
        if at >= len(self.response):
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        rows = self.response[at].reshape(len(self.agents), -1)
        agent, place = np.nonzero(rows)
        found = rows[agent, place]
        rows[:] = 0.0
        return agent, place, found

    def _folding(self, env: FiniteMDP) -> tuple[np.ndarray, bool, np.ndarray, np.ndarray]:
        """Rewards, whether they depend on the next state, and the features as kernels take them."""
        moving = env.reward_on_transition
        reward = env.r[..., None] if moving is None else moving
        return reward, moving is not None, self.values.phi, self.values.index

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold between rounds."""
        return {"u": self.u, "response": self.response}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `state()`."""
        self.u[:], self.response[:] = state["u"], state["response"]

    def history(self, first: int, last: int) -> dict[str, np.ndarray]:
        """Nothing: the sums are all that is remembered."""
        return {}

    def extend(self, first: int, part: dict[str, np.ndarray]) -> None:
        """Nothing to put back."""

    def _make_room(self, n: int) -> None:
        """Grow the log up to its capacity; beyond that, count what it holds and empty it."""
        m, rows, size = self._log.shape
        need = self._logged + n
        if need <= size:
            return
        if need > self._capacity and self._logged > 0:
            self._spill(m, rows - 1)
            self._logged = 0
            need = n
        if need > size:
            most = max(need, min(2 * size, self._capacity))
            self._log = grown(self._log, most, self._logged, axis=2)

    def _spill(self, m: int, horizon: int) -> None:
        """Count the logged episodes into a table of (x, x')."""
        if self._table.size == 0:
            n_states = self._policy.shape[1]
            self._table = np.zeros((m, horizon, n_states, n_states), np.int64)
        self.workers.map(finite_kernels.spill, 0, m, self._logged, self._log, self._table)


def outer_products(phi: np.ndarray) -> np.ndarray:
    """φφᵀ of every pair (x, a), packed, (S·A, P); empty where that is large or φ is one-hot."""
    n_states, n_actions, dim = phi.shape
    if not 0 < 8 * n_states * n_actions * packed_size(dim, "packed") <= OUTER_BYTES:
        return np.empty((0, 0))
    rows = phi.reshape(-1, dim)
    return np.ascontiguousarray(pack(rows[:, :, None] * rows[:, None, :], "packed"))
