"""A pool of fresh processes that play runs in parallel and share nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from fedlsvi.errors import FedLSVIError


@contextmanager
def pool_errors() -> Iterator[None]:
    """Explain a process that the system killed, most often because memory ran out."""
    try:
        yield
    except BrokenProcessPool:
        raise FedLSVIError(
            "the system killed a process that was playing a run, perhaps because memory ran out: "
            "repeat the command with fewer --jobs; finished runs are kept",
            code="worker-killed",
        ) from None


@contextmanager
def pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Spawned processes, because compiled loops do not survive a fork. On an error they are
    terminated at once, and their runs are made again."""
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    processes = ProcessPoolExecutor(jobs, mp_context=context, initializer=_quiet)
    try:
        yield processes
        processes.shutdown()
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        processes.shutdown(wait=False, cancel_futures=True)
        raise


def _quiet() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a worker silently


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
