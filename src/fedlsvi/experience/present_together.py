"""Experience of agents that come and go, of which only the sum is wanted.

Where a memory keeps nothing between rounds (`summed_counts`), an agent that is away is its two
numbers in the attendance and no more. So a round has an experience of the agents that are in it,
made when it begins. It has the bits of agents that are kept one by one (`with_absence`), because
each goes on with its own next episode, and because the sum of their words is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from fedlsvi.core.participation_schedule import Attendance
from fedlsvi.core.trigger import Rule
from fedlsvi.experience.experience import Experience
from fedlsvi.experience.log_source import NO_LIMIT
from fedlsvi.experience.rooms import Added, Arrays
from fedlsvi.experience.trigger_search import Firing
from fedlsvi.experience.workers import Workers


class Worlds(Protocol):
    """What is asked of a plan (`protocol.plan`)."""

    @property
    def envs(self) -> Sequence[Any]: ...


class PresentTogether:
    """Agents of a cohort that come and go, with a memory that adds them.

    Args:
        agents: (m,) numbers of the cohort's agents, consecutive.
        problem: Whose environments they play in.
        seen: What agents of these numbers see, which were not in so many episodes each.
        attendance: Who is there; this object's own.
        values: The model in force.
        workers: Threads.

    Attributes:
        t: Episodes of the federation before the round under way.
        length: Episodes of that round so far.
        here: What the agents see that play it; None where nobody does.
    """

    names_users = False
    since = None
    """Asked of private runs alone, in which no memory adds the agents."""

    def __init__(
        self,
        agents: np.ndarray,
        problem: Worlds,
        seen: Callable[[np.ndarray, np.ndarray], Experience],
        attendance: Attendance,
        values: Any,
        workers: Workers,
    ) -> None:
        self.agents, self.attendance, self.values, self.workers = (
            agents,
            attendance,
            values,
            workers,
        )
        self.dim, self.t, self.length = values.dim, 0, 0
        self._problem, self._seen = problem, seen
        self.here: Experience | None = None

    @property
    def worlds(self) -> Sequence[Any]:
        """Where the agents play."""
        return [self._problem.envs[m] for m in self.agents]

    @property
    def present(self) -> np.ndarray:
        """Positions of the agents that play the round under way."""
        first, there = self.agents[0], self.attendance.there
        lo, hi = np.searchsorted(there, [first, first + len(self.agents)])
        here: np.ndarray = there[lo:hi] - first
        return here

    @property
    def block(self) -> int:
        """Episodes that are explored at once."""
        return NO_LIMIT if self.here is None else self.here.block

    def begin(self, t: int) -> None:
        """A new round after episode t of the federation, for those that are there."""
        self.t, self.length = t, 0
        self.attendance.begin(t)
        self.here = None  # before the next one is made
        there = self.agents[0] + self.present
        if len(there):
            self.here = self._seen(there, t - self.attendance.played[there])
            self.here.begin(t)

    def explore(self, n: int) -> None:
        """Play n more episodes."""
        if self.here is not None:
            self.here.explore(n)
        self.length += n

    def first_firing(self, rule: Rule, n: int) -> Firing:
        """Where in the first n of the last episodes the trigger fires."""
        if self.here is None:
            nobody = np.empty(0, np.int64)
            return 0, nobody, nobody
        length, fired, steps = self.here.first_firing(rule, n)
        return length, self.present[fired], steps

    def close(self, length: int) -> None:
        """Keep the round's first `length` episodes."""
        self.length = length
        if self.here is not None:
            self.here.close(length)
        self.attendance.close(length)

    def take_added(self) -> Added | None:
        """What the round adds to the sums of all steps; None where nobody was there."""
        return None if self.here is None else self.here.take_added()

    def returns(self, first: int, last: int) -> None:
        """Nothing: the values of a table are known."""

    def fewest(self, first: int, last: int) -> None:
        """Nothing: every episode reaches every step."""

    def state(self) -> Arrays:
        """Who has played what."""
        return self.attendance.state()

    def restore(self, state: Arrays) -> None:
        """Continue from `state`."""
        self.attendance.restore(state)

    def history(self, first: int, last: int) -> Arrays:
        """Nothing: the server has the sums."""
        return {}

    def extend(self, first: int, part: Arrays) -> None:
        """Nothing to put back."""
