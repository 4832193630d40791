"""Cohorts in threads of this process, behind the same frames that travel between machines.

It needs no engine, so the conformance suite and the tests of recovery use it. For speed use
`InProcess`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from time import monotonic

from fedlsvi.config import Parameters
from fedlsvi.remote.endpoint import FrameHandler
from fedlsvi.remote.frame_transport import FrameTransport
from fedlsvi.remote.guard import Guard
from fedlsvi.remote.retry_policy import RetryPolicy


class ThreadTransport(FrameTransport):
    """Each cohort answers in a thread of its own.

    Args:
        factories: One for each cohort, in agent order; each makes what answers for it.
        parameters, run, retry, guard: See `FrameTransport`.
    """

    def __init__(
        self,
        parameters: Parameters,
        factories: Sequence[Callable[[], FrameHandler]],
        run: int,
        retry: RetryPolicy | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.handlers = [make() for make in factories]
        super().__init__(parameters, [h.agents for h in self.handlers], run, retry, guard)
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
