"""One process at a time: an advisory lock on a file, which a killed process lets go by itself."""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic, sleep

from fedlsvi.errors import FedLSVIError, StoreError
from fedlsvi.storage import files

PAUSE = 0.2
"""Seconds between two looks at a file that somebody holds."""


def lock(
    path: Path, refusal: str, patience: float = 0.0, error: type[FedLSVIError] = StoreError
) -> int | None:
    """Hold a file, which is made where there is none, until the handle is closed. Whoever holds it
    may take `patience` seconds to let go."""
    try:
        import fcntl
    except ImportError:  # no advisory locks on this system
        return None
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, files.file_mode(path))
    except OSError as trouble:
        raise files.cannot("write", path, trouble) from trouble
    end = monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except OSError:
            if monotonic() >= end:
                os.close(handle)
                raise error(refusal) from None
            sleep(PAUSE)
