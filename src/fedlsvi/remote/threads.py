"""Cohorts in threads of this process, behind the very frames that travel between machines.

It has no engine to start, so the conformance suite and the tests of recovery use it; for speed use
`InProcess`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from time import monotonic
from typing import Protocol

from fedlsvi.config import Parameters
from fedlsvi.remote.frame_transport import Wired
from fedlsvi.remote.guard import Guard
from fedlsvi.remote.retry_policy import Patience


class Handler(Protocol):
    """What answers frames for a cohort (`Station`)."""

    @property
    def agents(self) -> tuple[int, int]:
        """The number of the first agent, and how many there are."""
        ...

    def handle(self, frame: bytes) -> bytes:
        """The reply to a request."""
        ...

    def close(self) -> None:
        """Release threads and files."""
        ...


class Local(Wired):
    """Each cohort answers in a thread of its own."""

    def __init__(
        self,
        parameters: Parameters,
        makers: Sequence[Callable[[], Handler]],
        run: int,
        patience: Patience | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.handlers = [make() for make in makers]
        super().__init__(parameters, [h.agents for h in self.handlers], run, patience, guard)
        self._pool = ThreadPoolExecutor(len(self.handlers))
        self._late: dict[Future[bytes], int] = {}

    def exchange(self, frames: Mapping[int, bytes], deadline: float) -> Iterator[tuple[int, bytes]]:
        end = monotonic() + deadline
        for c, frame in frames.items():
            self._late[self._pool.submit(self.handlers[c].handle, frame)] = c
        while self._late and (left := end - monotonic()) > 0.0:
            done, _ = wait(self._late, left, FIRST_COMPLETED)
            for future in done:
                yield self._late.pop(future), future.result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        for handler in self.handlers:
            handler.close()
