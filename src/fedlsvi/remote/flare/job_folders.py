"""The folders of earlier jobs in a kit: each job has one, with its log, and FLARE removes none."""

from __future__ import annotations

import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""How FLARE names a job, and its folder."""

KEPT = 10
"""Jobs of which a party keeps what FLARE wrote: the last ones, for the reasons in their logs."""

IDLE_SECONDS = 86_400.0
"""A folder in which something was written since may be of a job that runs."""


def prune(kit: Path, current: str) -> list[Path]:
    """Remove the folders of all jobs but the last ones; returns those that were removed.

    Args:
        kit: What FLARE calls the workspace of a party.
        current: The job that begins.
    """
    written = {path: _last_written(path) for path in earlier(kit, KEPT - 1, current)}
    old = [path for path, at in written.items() if at < time.time() - IDLE_SECONDS]
    for path in old:
        shutil.rmtree(path, ignore_errors=True)
    return old


def earlier(kit: Path, keep: int, current: str = "") -> list[Path]:
    """The folders of all jobs but the current one and the last ones before it, the latest first."""
    folders = [
        path for path in kit.iterdir()
        if JOB.fullmatch(path.name) and path.name != current
        and path.is_dir() and not path.is_symlink()
    ]  # fmt: skip
    return sorted(folders, key=_last_written, reverse=True)[keep:]


def _last_written(folder: Path) -> float:
    found = folder.lstat().st_mtime
    for path in folder.rglob("*"):
        with suppress(OSError):  # it may just have been removed
            found = max(found, path.lstat().st_mtime)
    return found
