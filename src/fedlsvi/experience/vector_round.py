"""The round under way where states are vectors: blocks of episodes, and the rows of the trigger."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedlsvi.core.trigger import Rule
from fedlsvi.envs.gym.episodes import Played
from fedlsvi.experience.trigger_search import Firing, RowTrigger


class VectorRound:
    """Blocks of episodes of agents lo … hi−1, in the order in which they were played.

    Attributes:
        blocks: (lo, hi, episodes) each.
    """

    def __init__(self, n_agents: int, horizon: int, dim: int, groups: int) -> None:
        self._trigger = RowTrigger(n_agents, horizon, dim, groups)
        self.blocks: list[tuple[int, int, Played]] = []

    def begin(self) -> None:
        """A new round."""
        self._trigger.begin()
        self.blocks = []

    def make_room(self, n: int) -> bool:
        """Always: a round is kept whole."""
        return True

    def rows(self, n: int) -> np.ndarray:
        """Whitened feature rows (m, n, H, d) of the next n episodes, to be filled."""
        return self._trigger.extend(n)

    def search(self, before: int, n: int, rule: Rule) -> Firing:
        """Search the first n of the last rows."""
        return self._trigger.search(before, n, rule)

    def cut(self, beyond: int, length: int) -> bool:
        """Drop what was played beyond the first `length` episodes."""
        kept, seen = [], dict[int, int]()
        for lo, hi, played in self.blocks:
            left = length - seen.get(lo, 0)
            if left > 0:
                kept.append((lo, hi, Played(*(part[:, :left] for part in played))))
            seen[lo] = seen.get(lo, 0) + played.lengths.shape[1]
        self.blocks = kept
        return True

    def episodes(self, i: int) -> Iterator[Played]:
        """Agent i's episodes, block by block, without the axis of agents."""
        for lo, hi, played in self.blocks:
            if lo <= i < hi:
                yield Played(*(part[i - lo] for part in played))
