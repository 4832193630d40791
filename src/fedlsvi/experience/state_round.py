"""The round under way where states are numbers: a log of states, and of what no table gives back.

Under a frozen table of actions the states say everything. Where every agent and episode has a
policy of its own, pairs x·A + a are logged beside them; where rewards come from a black box,
rewards are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fedlsvi.core.trigger import Rule
from fedlsvi.experience.finite_kernels import FEW
from fedlsvi.experience.moments import Moments
from fedlsvi.experience.trigger_search import CountTrigger, Firing
from fedlsvi.experience.values import DiverseValues, TabularValues
from fedlsvi.experience.workers import Workers, grown


class Pay(NamedTuple):
    """The rewards of agents lo … hi−1: (1 or H, S, A, 1), or (…, S) where they depend on x'."""

    lo: int
    hi: int
    reward: np.ndarray
    moving: bool


class Batch(NamedTuple):
    """Transitions of agent i in one group of steps, in the order (step, episode)."""

    group: int
    i: int
    pairs: np.ndarray  # x·A + a
    following: np.ndarray  # x'
    rewards: np.ndarray


class StateRound:
    """States (m, H+1, episodes), and pairs and rewards (m, H, episodes) where they are logged.

    Args:
        n_agents: m.
        horizon: H.
        groups: Groups of steps with one determinant each.
        values: Whose policy is followed.
        workers: Threads.
        size: Episodes that there is room for at first.
        capacity: The most that are kept; None keeps all.
        rewards: Whether rewards are logged; pairs are where policies differ (`DiverseValues`).
        spilled_bytes: What one agent's counts take where the log has to be emptied.

    Attributes:
        logged: Episodes in the log.
        policy: (H, S) the frozen table, where there is one.
        pay: The rewards, where they follow from a table.
        visits: (m, H, S, ·) of episodes that are no longer logged, for the trigger.
        moments: (H, m, ·) of these, and of all when the round has ended, where a memory has any.
    """

    def __init__(
        self,
        n_agents: int,
        horizon: int,
        groups: int,
        values: TabularValues,
        workers: Workers,
        size: int = 64,
        capacity: int | None = None,
        rewards: bool = True,
        spilled_bytes: int = 0,
    ) -> None:
        self.horizon, self.groups, self.values = horizon, groups, values
        self.diverse = isinstance(values, DiverseValues)
        self.n_actions = (values.phi if values.phi.size else values.index).shape[1]
        self.capacity, self.spilled_bytes = capacity, spilled_bytes
        self.states = np.empty((n_agents, horizon + 1, size), np.uint32)
        self.rewards = np.empty((n_agents, horizon, size if rewards else 0))
        self.pairs = np.zeros((n_agents, horizon, size if self.diverse else 0), np.uint32)
        self.pay: list[Pay] = []
        self._trigger = CountTrigger(n_agents, groups, workers)
        self.logged = self._last = 0
        self.empty()

    def begin(self) -> None:
        """A new round, with the policy that the values hold now."""
        self.empty()
        self._last = 0
        self._trigger.begin()
        self.policy = self.values.policy.copy()
        self._pair_marks = self.values.marks if self.diverse else ()

    def empty(self) -> None:
        """Nothing has been logged or counted."""
        self.logged = 0
        self.visits = np.empty((0, 0, 0, 0), np.int64)
        self.moments: Moments | None = None

    def make_room(self, n: int) -> bool:
        """Grow up to the capacity. False where the log has to be counted and emptied first."""
        need, size = self.logged + n, self.states.shape[2]
        if need <= size:
            return True
        most = max(need, 2 * size)
        if self.capacity is not None:
            if need > self.capacity and self.logged > 0:
                return False
            most = max(need, min(2 * size, self.capacity))
        for name in ("states", "rewards", "pairs"):
            log = getattr(self, name)
            if log.shape[2]:
                setattr(self, name, grown(log, most, self.logged, axis=2))
        return True

    def took(self, n: int) -> None:
        """n episodes were appended."""
        self.logged += n
        self._last = n

    def search(self, before: int, n: int, rule: Rule) -> Firing:
        """The first n of the last episodes; of these the marks of states or of pairs decide."""
        offset = self.logged - self._last
        log, marks = self.states, self._pair_marks
        if self.diverse:
            log = self.pairs
        else:
            marks = self.values.marks
        return self._trigger.search(log, self.visits, marks, before, offset, n, rule)

    def cut(self, beyond: int, length: int) -> bool:
        """Drop the last episodes. Of what was counted, nothing can be taken back; and a short round
        is summed from the log alone, so all of it must be there."""
        whole = self.logged == beyond + length
        if beyond > self.logged or not (whole or length > FEW):
            self.empty()
            return False
        self.logged -= beyond
        return True

    def batches(self, groups: int) -> Iterator[Batch]:
        """The transitions of the round, group by group and agent by agent."""
        size, n = self.horizon // groups, self.logged
        for g in range(groups):
            steps = np.arange(g * size, (g + 1) * size)
            for i in range(len(self.states)):
                if self.diverse:
                    pairs = self.pairs[i, steps, :n].astype(np.int64)
                else:
                    x = self.states[i, steps, :n].astype(np.int64)
                    pairs = x * self.n_actions + self.policy[steps[:, None], x]
                following = self.states[i, steps + 1, :n].astype(np.int64)
                rewards = self.rewards[i, steps, :n]
                yield Batch(g, i, pairs.ravel(), following.ravel(), rewards.ravel())
