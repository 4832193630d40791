"""Experience of agents that are away in some rounds.

Each agent has an experience of its own, because it counts its own episodes: who is away plays
nothing, and when it is back it goes on with its next episode. It sends nothing either, so its rows
of an upload are empty; the server puts its last response there (`protocol.membership`). Logs are
read in a round of their own, before anybody comes or goes: all agents take part in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from fedlsvi.core.model_fit import FIT
from fedlsvi.core.participation_schedule import NOT_THERE, Attendance
from fedlsvi.core.statistics import Packing, packed_size
from fedlsvi.core.trigger import Rule
from fedlsvi.experience.log_source import NO_LIMIT
from fedlsvi.experience.rooms import Arrays, Increment
from fedlsvi.experience.trigger_search import Firing
from fedlsvi.experience.workers import Workers

PLAYED = "played"
"""Name of the array with the rounds that agents played, beside their raw episodes."""


class OneAgent(Protocol):
    """What one agent knows and sees: an `Experience`, or one `WithLogs`."""

    dim: int
    workers: Workers

    @property
    def worlds(self) -> Sequence[Any]: ...
    @property
    def block(self) -> int: ...
    @property
    def names_users(self) -> bool: ...
    def begin(self, t: int) -> None: ...
    def explore(self, n: int) -> None: ...
    def first_firing(self, rule: Rule, n: int) -> Firing: ...
    def close(self, length: int) -> None: ...
    def summarise(self, h: int) -> tuple[np.ndarray, np.ndarray]: ...
    def responses(self, h: int, values: Any) -> np.ndarray: ...
    def fit(self, h: int, w: np.ndarray, values: Any) -> np.ndarray: ...
    def take_increment(self, h: int) -> Increment: ...
    def returns(self, first: int, last: int) -> np.ndarray | None: ...
    def fewest(self, first: int, last: int) -> int | None: ...
    def state(self) -> Arrays: ...
    def restore(self, state: Arrays) -> None: ...
    def history(self, first: int, last: int) -> Arrays: ...
    def extend(self, first: int, part: Arrays) -> None: ...


class WithAbsence:
    """Agents of a cohort that come and go.

    Args:
        agents: (m,) numbers of the cohort's agents, consecutive.
        each: What each of them knows and sees.
        attendance: Who is there; this object's own.
        horizon: H.
        packing: How Gram matrices travel.
        stationary: Whether steps share one Gram matrix.
        width: Columns of a response in a round: d, and what the bonus needs besides.
        workers: Threads.

    Attributes:
        t: Episodes of the federation before the round under way.
        length: Episodes of that round so far.
    """

    def __init__(
        self,
        agents: np.ndarray,
        each: Sequence[OneAgent],
        attendance: Attendance,
        horizon: int,
        packing: Packing,
        stationary: bool,
        width: int,
        workers: Workers,
    ) -> None:
        self.agents, self.each, self.attendance, self.workers = agents, each, attendance, workers
        self.dim, self.t, self.length, self._width = each[0].dim, 0, 0, width
        size = packed_size(self.dim, packing)
        self._sizes = [0 if stationary and h < horizon else size for h in range(1, horizon + 1)]
        self._answering: list[int] = []  # who has something to send
        # of rounds that have ended: their last episodes, and what each agent had played by then
        self._ends: list[int] = []
        self._played: list[np.ndarray] = []

    @property
    def present(self) -> np.ndarray:
        """Positions of the agents that play the round under way."""
        there: np.ndarray = self.attendance.there - self.agents[0]
        here: np.ndarray = there[(there >= 0) & (there < len(self.agents))]
        return here

    @property
    def since(self) -> np.ndarray:
        """(m,) the last episode of the last round that each agent was in before the one that has
        ended."""
        since = np.full(len(self.agents), NOT_THERE)
        since[self._answering] = self.attendance.before[self.agents[self._answering]]
        return since

    @property
    def _own(self) -> np.ndarray:
        """(m,) episodes that each agent has played in rounds that have ended."""
        played: np.ndarray = self.attendance.played[self.agents]
        return played

    @property
    def worlds(self) -> Sequence[Any]:
        """Where the agents play, or their logs."""
        return [world for one in self.each for world in one.worlds]

    @property
    def block(self) -> int:
        """Episodes that are explored at once; a slow simulator lowers it as it is measured."""
        return min((self.each[i].block for i in self.present.tolist()), default=NO_LIMIT)

    @property
    def names_users(self) -> bool:
        """Whether the worlds of all say who plays."""
        return all(one.names_users for one in self.each)

    def begin(self, t: int) -> None:
        """A new round after episode t of the federation, for those that are there."""
        self.t, self.length = t, 0
        self.attendance.begin(t)
        played = self._own
        for i in self.present.tolist():
            self.each[i].begin(int(played[i]))

    def explore(self, n: int) -> None:
        """Play n more episodes."""
        for i in self.present.tolist():
            self.each[i].explore(n)
        self.length += n

    def first_firing(self, rule: Rule, n: int) -> Firing:
        """Where in the first n of the last episodes the trigger fires."""
        firings = [(i, self.each[i].first_firing(rule, n)) for i in self.present.tolist()]
        first = min((length for _, (length, _, _) in firings if length > 0), default=0)
        fired = [(i, steps) for i, (length, _, steps) in firings if length == first > 0]
        return (
            first,
            np.array([i for i, _ in fired], np.int64),
            np.concatenate([np.empty(0, np.int64), *(steps for _, steps in fired)]),
        )

    def close(self, length: int) -> None:
        """Keep the round's first `length` episodes; a round without any is that of the logs."""
        self.length = length
        self._answering = (self.present if length else np.arange(len(self.agents))).tolist()
        for i in self._answering:
            self.each[i].close(length)
        if length:
            self.attendance.close(length)
            self._ends.append(self.t + length)
            self._played.append(self._own)
        else:
            self.attendance.read_logs()

    def summarise(self, h: int) -> tuple[np.ndarray, np.ndarray]:
        """Λ_h^loc of the round just closed, (m, P), and b_h of those that are there."""
        gram = np.zeros((len(self.each), self._sizes[h - 1]))
        b = np.zeros((len(self.each), self._width))
        for i in self._answering:
            gram[i : i + 1], b[i : i + 1] = self.each[i].summarise(h)
        return gram, b

    def responses(self, h: int, values: Any) -> np.ndarray:
        """b_h with the V_{h+1} of these values, of those that played the last round, (m, d)."""
        b = np.zeros((len(self.each), self.dim))
        for i in self._answering:
            b[i : i + 1] = self.each[i].responses(h, values)
        return b

    def fit(self, h: int, w: np.ndarray, values: Any) -> np.ndarray:
        """How well w_h fits the targets of step h, of those that played the last round, (m, 5)."""
        found = np.zeros((len(self.each), FIT))
        for i in self._answering:
            found[i : i + 1] = self.each[i].fit(h, w, values)
        return found

    def take_increment(self, h: int) -> Increment:
        """What the round adds to the sums of step h; nothing, of who is away."""
        gram, u = (
            np.zeros((len(self.each), self._sizes[-1])),
            np.zeros((len(self.each), self._width)),
        )
        cells: list[Increment] = []
        for i in self._answering:
            added = self.each[i].take_increment(h)
            gram[i : i + 1], u[i : i + 1] = added.gram, added.u
            cells.append(added._replace(agents=added.agents + i))
        columns, nothing = max((added.columns for added in cells), default=1), np.empty(0, np.int64)
        return Increment(
            gram,
            u,
            np.concatenate([nothing, *(added.agents for added in cells)]),
            np.concatenate([nothing, *(_places(added, columns) for added in cells)]),
            np.concatenate([np.empty(0), *(added.values for added in cells)]),
            columns,
        )

    def _until(self, t: int) -> np.ndarray:
        """(m,) how many episodes each agent had played after episode t of the federation."""
        rounds = int(np.searchsorted(self._ends, t, side="right"))
        return self._played[rounds - 1] if rounds else np.zeros(len(self.agents), np.int64)

    def _who_played(self, first: int, last: int) -> list[tuple[OneAgent, int, int]]:
        """Agents that played between two episodes of the federation, and their own two."""
        spans = zip(self.each, self._until(first).tolist(), self._until(last).tolist(), strict=True)
        return [(one, begin, end) for one, begin, end in spans if end > begin]

    def returns(self, first: int, last: int) -> np.ndarray | None:
        """Returns of those that played the round that ended with `last`."""
        earned = [one.returns(begin, end) for one, begin, end in self._who_played(first, last)]
        counted = [part for part in earned if part is not None]
        if len(counted) < len(earned):
            return None
        return np.concatenate([np.empty((0, last - first)), *counted])

    def fewest(self, first: int, last: int) -> int | None:
        """Episodes in the emptiest Λ_h^loc of that round; all of them if nobody was there."""
        counts = [one.fewest(begin, end) for one, begin, end in self._who_played(first, last)]
        known = [count for count in counts if count is not None]
        return min(known, default=last - first) if len(known) == len(counts) else None

    def state(self) -> Arrays:
        """What each agent remembers, and who has played what."""
        kept = self.attendance.state() | {"ended": np.array([self._ends[-1] if self._ends else 0])}
        for i, one in enumerate(self.each):
            kept |= {f"{i}.{name}": array for name, array in one.state().items()}
        return kept

    def restore(self, state: Arrays) -> None:
        """Continue from `state`."""
        self.attendance.restore(state)
        ended = int(state["ended"][0])
        if self.attendance.last.max(initial=0) > ended:
            raise ValueError("an agent that played more episodes than there were")
        if ended and not self._ends:  # without raw episodes, earlier rounds are not needed
            self._ends, self._played = [ended], [self._own]
        self._answering = self.present.tolist()
        for i, one in enumerate(self.each):
            one.restore(_of(i, state))

    def history(self, first: int, last: int) -> Arrays:
        """Raw episodes between two of the federation, where they are kept, and the rounds."""
        begin, end = self._until(first), self._until(last)
        parts: Arrays = {}
        for i, one in enumerate(self.each):
            part = one.history(begin[i], end[i])
            parts |= {f"{i}.{name}": array for name, array in part.items()}
        if not parts:
            return {}
        rows = [
            [ended, *played]
            for ended, played in zip(self._ends, self._played, strict=True)
            if first < ended <= last
        ]
        return parts | {PLAYED: np.array(rows, np.int64).reshape(-1, 1 + len(self.each))}

    def extend(self, first: int, part: Arrays) -> None:
        """Put back what `history` gave."""
        begin = self._until(first)
        for i, one in enumerate(self.each):
            own = _of(i, part)
            if own:
                one.extend(int(begin[i]), own)
        for ended, *played in part.get(PLAYED, np.empty((0, 1))).tolist():
            self._ends.append(int(ended))
            self._played.append(np.array(played, np.int64))


def _places(added: Increment, columns: int) -> np.ndarray:
    """Places in a table with at least as many columns."""
    rows, at = np.divmod(added.places, added.columns)
    places: np.ndarray = rows * columns + at
    return places


def _of(i: int, arrays: Arrays) -> Arrays:
    """The arrays of the agent at position i."""
    prefix = f"{i}."
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
