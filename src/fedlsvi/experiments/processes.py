"""Processes that play runs beside one another: fresh ones, which share nothing."""

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
def one_sentence() -> Iterator[None]:
    """The system ended a process, most often because memory ran out."""
    try:
        yield
    except BrokenProcessPool:
        raise FedLSVIError(
            "a process that played a run was ended by the system, perhaps for want of memory: "
            "repeat the command with fewer --jobs, what is finished is kept"
        ) from None


@contextmanager
def pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that start fresh, because compiled loops and forks do not go together. They end at
    once where the work is given up: what they were at is then made again."""
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
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a worker without a word


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
