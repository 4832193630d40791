"""The only way from one party of a comparator to another.

Whatever crosses is copied, frozen and entered into the ledger, so the number of scalars is the
number of entries that arrived, and nobody can hold a reference into somebody else's memory.
"""

from __future__ import annotations

import numpy as np

from fedlsvi.transports.base import Transport

Message = tuple[np.ndarray, ...]


class Channel:
    """Links between one server and its agents; the category says which way."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport  # holds the ledger, which a resumed run replaces
        self._alone = [np.array([m]) for m in range(len(transport.ledger.agents))]

    def send(self, agent: int, category: str, *arrays: np.ndarray) -> Message:
        """Over the link of one agent, up or down."""
        scalars = sum(array.size for array in arrays)
        self._transport.ledger.some(category, self._alone[agent], scalars)
        return freeze(arrays)

    def broadcast(self, category: str, *arrays: np.ndarray) -> Message:
        """From the server to every agent: counted once for each."""
        self._transport.ledger.each(category, sum(array.size for array in arrays))
        return freeze(arrays)

    def gather(self, category: str, *arrays: np.ndarray) -> Message:
        """From every agent to the server; each array has a leading axis of all agents."""
        m = len(self._alone)
        self._transport.ledger.each(category, sum(array.size for array in arrays) // m)
        return freeze(arrays)

    def signal(self, agents: np.ndarray, t: int) -> None:
        """These agents say that they have learned enough: a flag and a counter, 2 scalars each."""
        self._transport.ledger.some("signal", agents, 2)

    def stop(self, t: int) -> None:
        """The server tells every agent that the round ends at episode t: 1 scalar each."""
        self._transport.ledger.each("signal", 1)


def freeze(arrays: Message) -> Message:
    """Read-only copies."""
    copies = tuple(np.array(array) for array in arrays)
    for copy in copies:
        copy.setflags(write=False)
    return copies
