"""Drops what FLARE keeps of answers that have arrived whole, so that a long run stays small.

FLARE 2.9 keeps each answer for 65 seconds (`streaming_retry_timeout` and `streaming_retry_wait`),
with its content and a thread that sleeps until then, so that it can acknowledge a piece which comes
a second time. A server that exchanges a hundred frames a second would hold thousands of threads.
Shorter times would also shorten how long a site tries to deliver an answer over a broken line.

Here an answer is dropped once the exchange after its own has ended: the site has been asked, and
has answered, since. A piece that comes later still begins an answer to which nobody listens.
"""

from __future__ import annotations

import logging
from typing import Any

USED = {"completed", "reliable", "cleanup_timer"}
"""What is read of a stream."""

log = logging.getLogger(__name__)


class ReceivedStreams:
    """The streams that this process has received whole.

    Args:
        kind: FLARE's class of a received stream; None looks it up. One that is not as FLARE 2.9
            has it is left alone, and the log says so.
    """

    def __init__(self, kind: Any = None) -> None:
        self._kind = kind or _rx_task()
        self._whole: list[Any] = []  # when the last exchange ended
        if not _is_known(self._kind):
            self._kind = None
            log.warning(
                "this version of NVIDIA FLARE keeps received streams in another way than 2.9: "
                "watch the threads and the memory of the server's job"
            )

    def exchange_ended(self) -> None:
        """Drop those that were whole when the exchange before ended."""
        if self._kind is None:
            return
        for stream in self._whole:
            stream._remove_task()
        with self._kind.map_lock:
            streams = list(self._kind.rx_task_map.values())
        self._whole = [
            stream for stream in streams
            if stream.reliable and stream.completed and stream.cleanup_timer is not None
        ]  # fmt: skip


def _rx_task() -> Any:
    try:
        from nvflare.fuel.f3.streaming.byte_receiver import RxTask
    except ImportError:
        return None
    return RxTask


def _is_known(kind: Any) -> bool:
    """Whether streams have what is used here."""
    try:
        return (
            isinstance(kind.rx_task_map, dict)
            and hasattr(kind.map_lock, "acquire")
            and callable(kind._remove_task)
            and set(kind.__init__.__code__.co_names) >= USED
        )
    except AttributeError:
        return False
