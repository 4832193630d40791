"""How long tests wait for what must come: never a matter of how fast the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 900.0
"""Seconds. Only what hangs takes so long, on a quarter of a slow processor too; whoever waits goes
on as soon as the thing is there."""


def wait_until(holds: Callable[[], object], what: str) -> None:
    """Wait for a condition, and fail with this sentence if it never comes true."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.005)
