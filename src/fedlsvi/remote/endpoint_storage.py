"""Where a station writes itself down, and who sees what leaves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class Snapshot:
    """A station between two rounds, after episode t."""

    t: int
    arrays: dict[str, np.ndarray]
    """What the experience remembers, and the model in force (`model.w`, `model.gram`)."""
    plain: dict[str, Any]
    """Whose it is (run, first agent, agents), gamma, beta, episodes, and epoch, number and round of
    the last request."""
    history: list[tuple[int, dict[str, np.ndarray]]] = field(default_factory=list)
    """Raw episodes in order, as (first, arrays); they never leave the agents' side."""


class Memory(Protocol):
    """Where a station writes itself down (`fedlsvi.remote.journal`)."""

    def append(self, frame: bytes) -> None:
        """Write a request down; durable when this returns."""
        ...

    def keep(self, snapshot: Snapshot) -> None:
        """Make a snapshot durable; the requests before it are needed no more. Its history is what
        came since the snapshot before."""
        ...

    def newest(self) -> tuple[Snapshot | None, list[bytes]]:
        """The last snapshot that is whole, with all its history, and the requests since."""
        ...

    def back_to(self, t: int) -> Snapshot | None:
        """Forget everything after episode t; the snapshot there, None at the very beginning."""
        ...


class Outbox(Protocol):
    """Is shown every frame that leaves (`fedlsvi.remote.audit`)."""

    def sent(self, frame: bytes) -> None:
        """This frame is about to leave."""
        ...
