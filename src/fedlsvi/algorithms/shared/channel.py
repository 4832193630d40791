"""The only way from one party of a comparator to another.

Whatever crosses is copied, frozen and entered into the ledger. So the ledger counts exactly the
entries that arrived, and nobody can hold a reference to another party's arrays.
"""

from __future__ import annotations

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.errors import InvalidInput
from fedlsvi.protocol.ledger import Ledger

Message = tuple[np.ndarray, ...]


class Channel:
    """Links between one server and its agents.

    Every method that sends takes a category of the ledger, which says what travels and which way
    ("up_raw", "down_model", …), and returns what arrives: read-only copies.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._alone = [np.array([m]) for m in range(len(ledger.agents))]

    def send(self, agent: int, category: str, *arrays: np.ndarray) -> Message:
        """Send arrays over the link of one agent, up or down."""
        if not 0 <= agent < len(self._alone):
            raise InvalidInput(
                f"channel.send: there is no agent {agent}: agents are numbered 0 … "
                f"{len(self._alone) - 1}",
                code="no-such-agent",
            )
        sent, scalars = freeze(arrays)
        self._ledger.some(category, self._alone[agent], scalars)
        return sent

    def broadcast(self, category: str, *arrays: np.ndarray) -> Message:
        """Send arrays from the server to every agent: counted once for each."""
        sent, scalars = freeze(arrays)
        self._ledger.each(category, scalars)
        return sent

    def gather(self, category: str, *arrays: np.ndarray) -> Message:
        """Send from every agent to the server: arrays (M, …), one row per agent."""
        sent, scalars = freeze(arrays)
        m = len(self._alone)
        for array in sent:
            if array.ndim == 0 or len(array) != m:
                raise InvalidInput(
                    f"channel.gather: an array has shape {array.shape}, but its first axis must "
                    f"run over the {plural(m, 'agent')}; use channel.send for a message from one "
                    "agent",
                    code="bad-message-shape",
                )
        self._ledger.each(category, scalars // m)
        return sent

    def signal(self, agents: np.ndarray, t: int) -> None:
        """These agents signal after episode t: a flag and a counter, 2 scalars each."""
        who, m = np.asarray(agents, np.int64), len(self._alone)
        if ((who < 0) | (who >= m)).any():
            raise InvalidInput(
                f"channel.signal: agents are numbered 0 … {m - 1}, got {who.tolist()}",
                code="no-such-agent",
            )
        self._ledger.some("signal", who, 2)

    def stop(self, t: int) -> None:
        """The server tells every agent that the round ends at episode t: 1 scalar each."""
        self._ledger.each("signal", 1)


def freeze(arrays: Message) -> tuple[Message, int]:
    """Read-only copies, and how many scalars they have. Only arrays of numbers can be counted: an
    object would be one scalar of any size."""
    copies, scalars = tuple([np.array(array) for array in arrays]), 0
    for copy in copies:
        if copy.dtype.kind not in "biuf":
            raise InvalidInput(
                f"channel: send arrays of real numbers, got {copy.dtype}",
                code="bad-dtype",
            )
        copy.setflags(write=False)
        scalars += copy.size
    return copies, scalars
