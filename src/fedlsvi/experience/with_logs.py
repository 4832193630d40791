"""Experience that begins with a log: what was recorded before counts as if it had been played.

Round 0, before the first episode, ends with nothing played: its Λ^loc and b are those of the logs.
In every later round Λ^loc is what was played in it, and b_h runs over the logs and all that was
played, because V_{h+1} is another one after each synchronisation:

    Λ_h = λI + Σ_logs φφᵀ + Σ_played φφᵀ,   b_h = Σ_logs φ(r + V_{h+1}(x')) + Σ_played (the same).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedlsvi.core.model_fit import FIT
from fedlsvi.core.statistics import Packing, packed_size
from fedlsvi.core.trigger import Rule
from fedlsvi.experience.experience import Experience
from fedlsvi.experience.log_source import NO_LIMIT
from fedlsvi.experience.moments import EXTRA
from fedlsvi.experience.rooms import Increment
from fedlsvi.experience.trigger_search import Firing
from fedlsvi.experience.workers import Workers


class WithLogs:
    """Logs of some agents of a cohort beside what others of them, or the same ones, play.

    An agent may have a log and no world: it plays nothing, never signals, and answers every
    synchronisation from its log. So does a whole cohort of such agents.

    Args:
        agents: (m,) numbers of the cohort's agents.
        horizon: H.
        dim: d.
        packing: How Gram matrices travel.
        stationary: Whether steps share one Gram matrix.
        playing: What is played, by the agents at the positions `plays`; None if nobody does.
        plays: (p,) positions in the cohort.
        logs: What was recorded, of the agents at the positions `logged`; None if there is nothing.
        logged: (l,) positions in the cohort.
        episodes: Of no log more than the first so many episodes are read.
        workers: Threads.
    """

    def __init__(
        self,
        agents: np.ndarray,
        horizon: int,
        dim: int,
        packing: Packing,
        stationary: bool,
        playing: Experience | None,
        plays: np.ndarray,
        logs: Experience | None,
        logged: np.ndarray,
        episodes: int,
        workers: Workers,
    ) -> None:
        self.agents, self.dim, self.workers = agents, dim, workers
        self.playing, self.plays, self.logs, self.logged = playing, plays, logs, logged
        self._episodes, self._reading, self._read = episodes, False, False
        self.t = self.length = 0
        self._size = packed_size(dim, packing)
        shared = range(1, horizon) if stationary else ()
        self._sizes = [0 if h in shared else self._size for h in range(1, horizon + 1)]

    @property
    def worlds(self) -> Sequence[Any]:
        """Logs, where there are any, else where the agents play."""
        known = self.logs or self.playing
        return [] if known is None else known.worlds

    @property
    def block(self) -> int:
        """Episodes that are explored at once."""
        return NO_LIMIT if self.playing is None else self.playing.block

    @property
    def present(self) -> np.ndarray:
        """Positions of the agents that take part in the round under way: who has a log alone
        waits for the others."""
        return np.arange(len(self.agents))

    @property
    def since(self) -> None:
        """Nothing: all agents are always there."""

    @property
    def names_users(self) -> bool:
        """Whether the worlds say who plays."""
        return self.logs is None and self.playing is not None and self.playing.names_users

    def begin(self, t: int) -> None:
        """Start a round after episode t, with the policy that the values hold now."""
        self.t, self.length, self._reading = t, 0, False
        if self.playing is not None:
            self.playing.begin(t)

    def explore(self, n: int) -> None:
        """Everybody who has a world plays the next n episodes."""
        if self.playing is not None:
            self.playing.explore(n)
        self.length += n

    def first_firing(self, rule: Rule, n: int) -> Firing:
        """Search the first n of the episodes explored last; a log waits for the others."""
        if self.playing is None:
            nobody = np.empty(0, np.int64)
            return 0, nobody, nobody
        length, fired, steps = self.playing.first_firing(rule, n)
        return length, self.plays[fired], steps

    def close(self, length: int) -> None:
        """End the round after `length` episodes; one without any is round 0."""
        self.length, self._reading = length, length == 0
        if self.playing is not None and length > 0:
            self.playing.close(length)

    def summarise(self, h: int) -> tuple[np.ndarray, np.ndarray]:
        """Λ_h^loc of the round just closed, (m, P), and b_h over logs and history, (m, d)."""
        gram = np.zeros((len(self.agents), self._sizes[h - 1]))
        b = self._nothing(self._values)
        if self._reading:
            if self.logs is not None:
                self._open(self.logs)
                gram[self.logged], b[self.logged] = self.logs.summarise(h)
            return gram, b
        if self.playing is not None:
            gram[self.plays], b[self.plays] = self.playing.summarise(h)
        if self.logs is not None:
            self._add_logs(b, h, self.logs, self.logs.values)
        return gram, b

    def responses(self, h: int, values: Any) -> np.ndarray:
        """b_h over logs and history with the V_{h+1} of these values, (m, d)."""
        b = self._nothing(values)
        if self.playing is not None:
            b[self.plays] = self.playing.responses(h, values)
        if self.logs is not None:
            self._add_logs(b, h, self.logs, values)
        return b

    def fit(self, h: int, w: np.ndarray, values: Any) -> np.ndarray:
        """How well w_h fits what was played at step h, (m, 5)."""
        found = np.zeros((len(self.agents), FIT))
        if self.playing is not None:
            found[self.plays] = self.playing.fit(h, w, values)
        return found

    @property
    def _values(self) -> Any:
        known = self.logs or self.playing
        return None if known is None else known.values

    def _nothing(self, values: Any) -> np.ndarray:
        extra = 0 if values is None or values.noise is None else EXTRA
        return np.zeros((len(self.agents), self.dim + extra))

    def _add_logs(self, b: np.ndarray, h: int, logs: Experience, values: Any) -> None:
        self._open(logs)
        b[self.logged] += logs.responses(h, values)

    def _open(self, logs: Experience) -> None:
        """Read the logs; after a restart they are where they were."""
        if not self._read:
            logs.begin(0)
            logs.close(self._episodes)
            self._read = True

    def returns(self, first: int, last: int) -> np.ndarray | None:
        """Returns of the episodes played; None where they are not counted."""
        if self.playing is None:
            return np.empty((0, last - first))
        return self.playing.returns(first, last)

    def fewest(self, first: int, last: int) -> int | None:
        """Episodes in the emptiest Λ_h^loc, where ended ones leave it."""
        return NO_LIMIT if self.playing is None else self.playing.fewest(first, last)

    def take_increment(self, h: int) -> Increment:
        """What the round just closed adds, of those who played it, or of the logs in round 0."""
        if self._reading and self.logs is not None:
            self._open(self.logs)
        part, at = (self.logs, self.logged) if self._reading else (self.playing, self.plays)
        gram, u = np.zeros((len(self.agents), self._size)), self._nothing(self._values)
        if part is None:
            nothing = np.empty(0, np.int64)
            return Increment(gram, u, nothing, nothing, np.empty(0), 1)
        added = part.take_increment(h)
        gram[at], u[at] = added.gram, added.u
        return added._replace(gram=gram, u=u, agents=at[added.agents])

    def state(self) -> dict[str, np.ndarray]:
        """What is remembered of play; the logs are where they were."""
        return {} if self.playing is None else self.playing.state()

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `state`."""
        if self.playing is not None:
            self.playing.restore(state)

    def history(self, first: int, last: int) -> dict[str, np.ndarray]:
        """Raw episodes first + 1 … last that were played, where they are kept."""
        return {} if self.playing is None else self.playing.history(first, last)

    def extend(self, first: int, part: dict[str, np.ndarray]) -> None:
        """Put back what `history` gave."""
        if self.playing is not None:
            self.playing.extend(first, part)
