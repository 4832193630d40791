"""A few threads for compiled kernels that release the interpreter lock.

A kernel is called as kernel(lo, hi, *arguments) and touches only agents lo … hi−1, so the split
over threads cannot change a result. The calling thread works too, and whoever is free takes the
next range: waking a thread takes as long as a small kernel, and nobody waits for it meanwhile.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, pairwise
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

SMALL = 50_000
"""Below this many products or draws one thread is quicker than waking another."""

RANGES = 8
"""Ranges for each thread."""


class Workers:
    """Runs kernels over ranges of agents on `threads` threads, the caller's included."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or min(8, len(os.sched_getaffinity(0)))
        self._pool = ThreadPoolExecutor(self.threads - 1) if self.threads > 1 else None

    def map(
        self, kernel: Callable[..., Any], lo: int, hi: int, *arguments: Any, work: int = SMALL
    ) -> None:
        """Call kernel(a, b, *arguments) on contiguous ranges a … b−1 that cover lo … hi−1; `work`
        says roughly how much there is to do."""
        if self._pool is None or hi - lo < 2 or work < SMALL:
            kernel(lo, hi, *arguments)
            return
        parts = min(RANGES * self.threads, hi - lo)
        cuts = [lo + (hi - lo) * i // parts for i in range(parts + 1)]
        ranges = deque(pairwise(cuts))

        def take() -> None:
            while True:
                try:
                    a, b = ranges.popleft()
                except IndexError:
                    return
                kernel(a, b, *arguments)

        others = [self._pool.submit(take) for _ in range(min(self.threads, parts) - 1)]
        try:
            take()
        finally:
            ranges.clear()
            for other in others:
                if not other.cancel():  # it came in time
                    other.result()

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()


def grown(array: np.ndarray, size: int, used: int, axis: int = 0) -> np.ndarray:
    """A copy with `size` entries along an axis, of which the first `used` are kept."""
    shape, kept = list(array.shape), (slice(None),) * axis + (slice(used),)
    shape[axis] = size
    copy = np.empty(shape, array.dtype)
    copy[kept] = array[kept]
    return copy


def contiguous_runs(members: Sequence[T]) -> list[tuple[int, int, T]]:
    """Neighbours that are one and the same object, as (lo, hi, object): kernels take ranges."""
    runs, at = [], 0
    for _, group in groupby(members, key=id):
        alike = list(group)
        runs.append((at, at + len(alike), alike[0]))
        at += len(alike)
    return runs
