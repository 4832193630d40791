"""Timing as ratios, and the table that benchmarks print."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedlsvi.run import Run


@dataclass(frozen=True)
class Row:
    """One measured ratio and what is asked of it."""

    what: str
    figure: float
    unit: str = ""
    wanted: str = ""
    holds: bool | None = None


def seconds(
    job: Callable[[], Any], repeat: int = 1, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, Any]:
    """Best time of `repeat` calls, and the last result. What runs in one thread may be timed by
    `time.process_time`, which other work on the machine does not lengthen."""
    best, result = float("inf"), None
    for _ in range(repeat):
        began = clock()
        result = job()
        best = min(best, clock() - began)
    return best, result


def numpy_uniforms(n: int) -> float:
    """Seconds that NumPy's Generator needs for n uniforms on one thread, into a cached buffer.

    Drawing into a new array of n doubles is slower (page faults); this is the stricter yardstick.
    """
    rng, buffer = np.random.default_rng(0), np.empty(100_000)

    def draw() -> None:
        for _ in range(n // len(buffer)):
            rng.random(out=buffer)

    return seconds(draw)[0]


def phases(run: Run) -> dict[str, float]:
    """Seconds by phase over all rounds."""
    return {k: sum(r.seconds[k] for r in run.records) for k in run.records[0].seconds}


def peak_megabytes() -> float:
    """Largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def table(rows: list[Row]) -> str:
    """The rows as text; columns for what is wanted only where something is."""
    judged = any(r.wanted or r.holds is not None for r in rows)
    lines = [f"{'measurement':<66} {'figure':>12}" + f" {'wanted':>14}  holds" * judged]
    for r in rows:
        verdict = "" if r.holds is None else ("yes" if r.holds else "NO")
        asked = f"{r.wanted:>13}  {verdict}" * judged
        lines.append(f"{r.what:<66} {r.figure:>9.3g} {r.unit:<3}{asked}".rstrip())
    return "\n".join(lines)
