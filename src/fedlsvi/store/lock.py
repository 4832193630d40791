"""One process at a time: an advisory lock on a file, which a killed process lets go by itself."""

from __future__ import annotations

import os
from pathlib import Path

from fedlsvi.errors import StoreError
from fedlsvi.store import files


def lock(path: Path, refusal: str) -> int | None:
    """Hold a file, which is made where there is none, until the handle is closed."""
    try:
        import fcntl
    except ImportError:  # no advisory locks on this system
        return None
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, files.file_mode(path))
    except OSError as error:
        raise files.cannot("write", path, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise StoreError(refusal) from None
    return handle
