"""The state between two rounds, from which a run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fedlsvi.protocol.session import Player, Session

LARGEST = 1 << 29
"""The most bytes kept so that a run can continue; a run that needs more cannot continue."""

BEFORE, PREFIX = "before", "before."
"""Where a checkpoint that holds another state has a snapshot's plain values, and what the names of
its arrays begin with there."""


@dataclass(frozen=True)
class Snapshot:
    """What a player held after episode `t`.

    Attributes:
        arrays: Of `Player.state`, copied.
        plain: Of `Player.state`.
        history: Raw episodes up to there, where the agents keep them.
    """

    arrays: dict[str, np.ndarray]
    plain: dict[str, Any]
    history: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def t(self) -> int:
        """Episodes that every agent has played."""
        return int(self.plain["t"])

    @classmethod
    def of(cls, player: Player) -> Snapshot | None:
        """The state of a player between two rounds; None where it is too large to be kept."""
        arrays, plain = player.state()
        if _size(arrays) > LARGEST:
            return None
        plain = {**plain, "cohorts": len(player.cohorts)}
        return cls({name: array.copy() for name, array in arrays.items()}, plain)

    def stored(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values, as they stand in a checkpoint beside another state's."""
        arrays = {PREFIX + name: array for name, array in self.arrays.items()}
        return arrays, {BEFORE: self.plain}

    def with_history(self, player: Player) -> Snapshot | None:
        """The same with the raw episodes, which only grow and are copied once, at the end."""
        past = player.history(0, self.t)
        if _size(self.arrays) + _size(past) > LARGEST:
            return None
        return replace(self, history=past)


def memory_of(session: Session) -> Snapshot | None:
    """What a longer run starts from: the state now or, where T cut the last round short, the one
    before it. None where agents are elsewhere, or where the algorithm cannot go on."""
    player = session.player
    finished = player.t >= player.parameters.episodes
    kept = session.before if finished else None
    if kept is None and not player.elsewhere and (player.goes_on or not finished):
        kept = Snapshot.of(player)
    return None if kept is None else kept.with_history(player)


def _size(arrays: Mapping[str, np.ndarray]) -> int:
    return sum(array.nbytes for array in arrays.values())
