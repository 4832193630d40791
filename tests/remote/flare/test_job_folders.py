"""What FLARE keeps of earlier jobs: the last ones stay, and whatever may still be in use."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from fedlsvi.remote.flare.console import Console
from fedlsvi.remote.flare.job_folders import IDLE_SECONDS, KEPT, prune


def job(kit: Path, number: int, age: float) -> Path:
    """The folder of a job whose log was last written so many seconds ago."""
    folder = kit / str(UUID(int=number))
    folder.mkdir()
    (folder / "log.txt").write_text("a line\n")
    for path in (folder / "log.txt", folder):
        os.utime(path, times=(time.time() - age,) * 2)
    return folder


def test_the_folders_of_the_last_jobs_stay(tmp_path: Path) -> None:
    old = [job(tmp_path, n, IDLE_SECONDS * (40 - n)) for n in range(30)]
    (now := tmp_path / str(UUID(int=99))).mkdir()
    assert sorted(prune(tmp_path, now.name)) == sorted(old[: 31 - KEPT])
    assert sorted(tmp_path.iterdir()) == sorted([now, *old[31 - KEPT :]])


def test_what_was_written_lately_stays(tmp_path: Path) -> None:
    """It may be of a job that runs, of another federation, in which the log alone grows."""
    folders = [job(tmp_path, n, IDLE_SECONDS / 2) for n in range(30)]
    os.utime(folders[0], times=(0.0, 0.0))
    assert prune(tmp_path, "") == []


def test_nothing_else_is_removed(tmp_path: Path) -> None:
    for name in ("startup", "local", "fedlsvi", "transfer"):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, times=(0.0, 0.0))
    elsewhere = job(tmp_path / "fedlsvi", 1, 9 * IDLE_SECONDS)
    (tmp_path / str(UUID(int=50))).symlink_to(elsewhere)
    before = set(tmp_path.rglob("*"))
    for n in range(KEPT - 1):
        before |= {folder := job(tmp_path, n, 5 * IDLE_SECONDS), folder / "log.txt"}
    assert prune(tmp_path, "") == []
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("fails", [False, True])
def test_the_server_stores_the_last_jobs(fails: bool) -> None:
    """Those that run or wait are no old ones; a server that refuses to remove one takes the job."""
    statuses = ["FINISHED:COMPLETED", "FINISHED:ABORTED", "FAILED_TO_RUN"] * 5
    statuses[2:2] = ["RUNNING", "SUBMITTED"]
    removed: list[str] = []

    def delete(number: str) -> None:
        if fails:
            raise RuntimeError("no authority")
        removed.append(number)

    connection: Any = Console.__new__(Console)
    connection._session = SimpleNamespace(
        get_system_info=lambda: SimpleNamespace(job_info=[]),
        list_jobs=lambda: [
            {"job_id": str(n), "job_name": "trial", "status": status}
            for n, status in enumerate(statuses)
        ],
        get_job_meta=lambda number: {},
        delete_job=delete,
        submit_job=lambda folder: "17",
    )
    assert connection.submit("job") == "17"
    ended = [str(n) for n in range(17) if n not in (2, 3)]
    assert removed == ([] if fails else ended[: len(ended) - KEPT + 1])
