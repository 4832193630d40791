"""What the agents of a cohort see: a source plays it round by round, a memory sums it.

Every kind of world, and every way of remembering it, is a pair of the two (`kinds`). Logs beside
play are two such pairs whose sums are added (`with_logs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlsvi.core.model_fit import FIT
from fedlsvi.core.statistics import Packing, unpack
from fedlsvi.core.trigger import Rule
from fedlsvi.experience.rooms import Added, Arrays, Increment, Source
from fedlsvi.experience.trigger_search import Firing
from fedlsvi.experience.workers import Workers

if TYPE_CHECKING:
    from fedlsvi.experience.limits import Limits


class Experience:
    """A source and its memory.

    Args:
        agents: (m,) numbers of the agents.
        worlds: What each of them plays in, or its log.
        values: The model in force.
        source: Plays or reads.
        memory: Sums.
        packing: How Gram matrices travel.
        workers: Threads, which it ends with itself.
        block: The most episodes at once; None leaves it to the source.
        limits: What a private run checks; None checks nothing.
        floor: Of logs, a step that fewer episodes of an agent reached is left out of its sums.

    Attributes:
        t: Episodes before the round under way.
        length: Episodes of that round so far.
    """

    def __init__(
        self,
        agents: np.ndarray,
        worlds: Sequence[Any],
        values: Any,
        source: Source,
        memory: Any,
        packing: Packing,
        workers: Workers,
        block: int | None = None,
        limits: Limits | None = None,
        floor: int = 1,
    ) -> None:
        self.agents, self.worlds, self.values = agents, worlds, values
        self.source, self.memory = source, memory
        self.packing, self.workers, self.limits = packing, workers, limits
        self.dim, self.t, self.length, self._last = memory.dim, 0, 0, 0
        self._block, self._floor = block, floor

    @property
    def block(self) -> int:
        """Episodes that are explored at once."""
        most = self.source.block
        return most if self._block is None else min(self._block, most)

    @property
    def present(self) -> np.ndarray:
        """Positions of the agents that play the round under way."""
        return np.arange(len(self.agents))

    @property
    def since(self) -> None:
        """Nothing: all agents are always there."""

    @property
    def names_users(self) -> bool:
        """Whether the worlds say who plays."""
        return self.limits is not None and self.limits.names_users

    def begin(self, t: int) -> None:
        """Start a round after episode t, with the policy that `values` holds now. After a restart
        the episodes of a log before it are read again."""
        self.t, self.length, self._last = t, 0, 0
        self.source.begin(t)
        if self.source.recorded and t > self.source.round.read:
            self._take(0, t)

    def explore(self, n: int) -> None:
        """Every agent plays its next n episodes."""
        if not self.source.round.make_room(n):
            self.memory.spill(self.source.round)
            self.source.round.make_room(n)
        self.source.play(self.t + self.length + 1, n)
        self.length += n
        self._last = n

    def first_firing(self, rule: Rule, n: int) -> Firing:
        """Search the first n of the episodes explored last."""
        firing: Firing = self.source.round.search(self.length - self._last, n, rule)
        return firing

    def close(self, length: int) -> None:
        """End the round after `length` episodes, and take it into the memory."""
        if not self.source.round.cut(self.length - length, length):
            self.length = 0
            while self.length < length:  # the same draws give the same episodes
                self.explore(min(self.block, length - self.length))
        self.length = length
        if self.limits is not None:
            self.limits.check(self.source.round, self.t, length)
        self._take(self.t, length)

    def _take(self, first: int, length: int) -> None:
        self.source.close(first, length)
        self.memory.add(self.source.round, first, length)

    def summarise(self, h: int) -> tuple[np.ndarray, np.ndarray]:
        """Λ_h^loc of the round just closed, (m, P), and b_h over the whole history, (m, d)."""
        gram, b = self.memory.upload(h, self.values)
        if self._floor > 1:
            gram, b = gram * self._enough(h), b * self._enough(h)
        return self._wire(gram), b

    def responses(self, h: int, values: Any) -> np.ndarray:
        """b_h over the whole history with the V_{h+1} of these values, (m, d)."""
        b: np.ndarray = self.memory.responses(h, values)
        return b * self._enough(h) if self._floor > 1 else b

    def fit(self, h: int, w: np.ndarray, values: Any) -> np.ndarray:
        """How well w_h fits the targets of step h with V_{h+1}, (m, 5); what was read is not
        checked."""
        if self.source.recorded:
            return np.zeros((len(self.agents), FIT))
        found: np.ndarray = self.memory.fit(h, w, values)
        return found

    def take_increment(self, h: int) -> Increment:
        """What the round just closed adds to the sums of step h; it is not kept."""
        self.memory.upload(h, self.values)
        enough = self._enough(h) if self._floor > 1 else None
        part: Increment = self.memory.take_increment(h)
        if enough is not None:
            values = part.values * enough[part.agents, 0]
            part = part._replace(gram=part.gram * enough, u=part.u * enough, values=values)
        return part._replace(gram=self._wire(part.gram))

    def take_added(self) -> Added:
        """What the round just closed adds to the sums of all steps, of all agents together, where
        the memory adds them (`AddingMemory`)."""
        added: Added = self.memory.take_added()
        return added

    def _wire(self, gram: np.ndarray) -> np.ndarray:
        """Λ^loc as it travels."""
        if self.packing == "dense" and gram.size:
            return unpack(gram, self.dim, "packed").reshape(len(gram), -1)
        return gram

    def returns(self, first: int, last: int) -> np.ndarray | None:
        """Returns of episodes first + 1 … last of the round just closed; None if not counted."""
        return self.source.returns(first, last)

    def fewest(self, first: int, last: int) -> int | None:
        """Episodes in the emptiest Λ_h^loc of that round; None where all are in all."""
        known: int | None = self.source.fewest(first, last)
        return self.memory.fewest(first, last) if known is None else known

    def _enough(self, h: int) -> np.ndarray:
        """(m, 1) whether the sums of step h are of as many logged episodes as the floor asks."""
        logs = self.source.round
        reached: np.ndarray
        if logs.pooled:
            reached = np.array([min(logs.read, env.log.episodes) for env in logs.envs])
        else:
            reached = self.memory.reached(h)
        return reached[:, None] >= self._floor

    def state(self) -> Arrays:
        """What a checkpoint must hold between rounds, apart from `history`; what was recorded is
        read again."""
        sums: Arrays = {} if self.source.recorded else self.memory.state()
        kept = sums | self.source.state()
        return kept if self.limits is None else kept | self.limits.state()

    def restore(self, state: Arrays) -> None:
        """Continue from `state`."""
        if not self.source.recorded:
            self.memory.restore(state)
        self.source.restore(state)
        if self.limits is not None:
            self.limits.restore(state)

    def history(self, first: int, last: int) -> Arrays:
        """Raw episodes first + 1 … last, where they are kept."""
        parts: Arrays = self.memory.history(first, last)
        return parts

    def extend(self, first: int, part: Arrays) -> None:
        """Put back what `history` gave."""
        self.memory.extend(first, part)
