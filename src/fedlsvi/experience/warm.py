"""Experience that begins with a log: what was recorded before counts as if it had been played.

Round 0, before the first episode, ends with nothing played: its Λ^loc and b are those of the logs.
In every later round Λ^loc is what was played in it, and b_h runs over the logs and all that was
played, because V_{h+1} is another one after each synchronisation:

    Λ_h = λI + Σ_logs φφᵀ + Σ_played φφᵀ,   b_h = Σ_logs φ(r + V_{h+1}(x')) + Σ_played (the same).

An agent may have a log and no world: it plays nothing, never signals, and answers every
synchronisation from its log. So does a whole cohort of such agents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedlsvi.core.statistics import Packing, packed_size
from fedlsvi.core.trigger import Rule
from fedlsvi.experience.logged import SummedExperience
from fedlsvi.experience.trigger_search import Firing
from fedlsvi.experience.workers import Workers

NO_LIMIT = 2**31 - 1
"""Episodes at once, where none is played."""


class WarmExperience:
    """Logs of some agents of a cohort beside what others of them, or the same ones, play.

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
        floor: A step that fewer logged episodes of an agent reached is left out of its sums.
        workers: Threads.
    """

    def __init__(
        self,
        agents: np.ndarray,
        horizon: int,
        dim: int,
        packing: Packing,
        stationary: bool,
        playing: Any,
        plays: np.ndarray,
        logs: SummedExperience | None,
        logged: np.ndarray,
        episodes: int,
        floor: int,
        workers: Workers,
    ) -> None:
        self.agents, self.dim, self.workers = agents, dim, workers
        self.playing, self.plays, self.logs, self.logged = playing, plays, logs, logged
        self._episodes, self._floor, self._reading, self._read = episodes, floor, False, False
        size = packed_size(dim, packing)
        self._sizes = [0 if stationary and h < horizon else size for h in range(1, horizon + 1)]

    @property
    def values(self) -> Any:
        """The model in force."""
        known: Any = self.logs if self.playing is None else self.playing
        return known.values

    @values.setter
    def values(self, values: Any) -> None:
        for part in (self.playing, self.logs):
            if part is not None:
                part.values = values

    @property
    def block(self) -> int:
        """Episodes that are explored at once."""
        return NO_LIMIT if self.playing is None else int(self.playing.block)

    def begin(self, t: int) -> None:
        """Start a round after episode t, with the policy that `values` holds now."""
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
        b = np.zeros((len(self.agents), self.dim))
        if self._reading:
            if self.logs is not None:
                self._open(self.logs)
                own, b[self.logged] = self.logs.summarise(h)
                enough = self._enough(self.logs, h)
                gram[self.logged], b[self.logged] = own * enough, b[self.logged] * enough
            return gram, b
        if self.playing is not None:
            gram[self.plays], b[self.plays] = self.playing.summarise(h)
        return gram, self._with_logs(b, h)

    def responses(self, h: int) -> np.ndarray:
        """b_h over logs and history, (m, d)."""
        b = np.zeros((len(self.agents), self.dim))
        if self.playing is not None:
            b[self.plays] = self.playing.responses(h)
        return self._with_logs(b, h)

    def _with_logs(self, b: np.ndarray, h: int) -> np.ndarray:
        if self.logs is not None:
            self._open(self.logs)
            b[self.logged] += self.logs.responses(h) * self._enough(self.logs, h)
        return b

    def _open(self, logs: SummedExperience) -> None:
        """Read the logs; after a restart they are where they were."""
        if not self._read:
            logs.begin(0)
            logs.close(self._episodes)
            self._read = True

    def _enough(self, logs: SummedExperience, h: int) -> np.ndarray:
        """(l, 1) whether the sums of step h are of as many episodes as the floor asks for."""
        return logs.reached(h)[:, None] >= self._floor

    @property
    def returns(self) -> Callable[[int, int], np.ndarray] | None:
        """(first, last) ↦ returns of the episodes played, where values are not known."""
        if self.playing is None:
            return lambda first, last: np.empty((0, last - first))
        found: Callable[[int, int], np.ndarray] | None = getattr(self.playing, "returns", None)
        return found

    @property
    def fewest(self) -> Callable[[int, int], int] | None:
        """(first, last) ↦ episodes in the emptiest Λ_h^loc, where ended ones leave it."""
        if self.playing is None:
            return lambda first, last: NO_LIMIT
        found: Callable[[int, int], int] | None = getattr(self.playing, "fewest", None)
        return found

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
