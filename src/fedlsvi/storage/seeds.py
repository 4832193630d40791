"""Several runs that differ in their seed: one folder with seed-0, seed-1, … inside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from fedlsvi.checks import integer
from fedlsvi.errors import InvalidInput, StoreError
from fedlsvi.storage import files
from fedlsvi.storage.run_writer import SEEDS, place, refuse_existing
from fedlsvi.storage.settings_file import Job


def begin(folder: Path, job: Job, seeds: list[int]) -> None:
    """Make the folder with a note of which runs belong to it."""
    refuse_existing(folder)
    place(folder, {SEEDS: files.sealed(_content(job, seeds))})


def _content(job: Job, seeds: list[int]) -> dict[str, Any]:
    base = str(job.base.absolute())
    return {"format": files.FORMAT, "seeds": seeds, "base": base, "job": job.table()}


def forget(folder: Path) -> None:
    """Remove a family of which no run has begun."""
    if [path.name for path in folder.iterdir()] == [SEEDS]:
        (folder / SEEDS).unlink()
        folder.rmdir()


def is_one(folder: Path) -> bool:
    """Whether this folder holds a family."""
    return files.exists(folder / SEEDS)


def member(folder: Path, seed: int) -> Path:
    """The run folder of one seed."""
    return files.inside(folder, f"seed-{seed}")


def read(folder: Path) -> tuple[Job, list[int]]:
    """What `begin` noted."""
    shape = {"format": int, "seeds": [int], "base": str, "job": dict}
    content = files.read_json(files.inside(folder, SEEDS), shape)
    return Job.parse(content["job"], Path(content["base"])), content["seeds"]


def lengthen(folder: Path, episodes: int) -> None:
    """Note another number of episodes, for the runs that have not begun."""
    job, seeds = read(folder)
    job = replace(job, episodes=integer("episodes", episodes, 1, error=InvalidInput))
    files.write(files.inside(folder, SEEDS), files.sealed(_content(job, seeds)))


def expand(folders: list[Path]) -> list[Path]:
    """Run folders, with families replaced by their runs as far as these exist."""
    found: list[Path] = []
    for folder in folders:
        if not is_one(folder):
            found.append(folder)
            continue
        runs = [member(folder, seed) for seed in read(folder)[1]]
        there = [run for run in runs if files.exists(run)]
        if not there:
            again = f"`fedlsvi resume {quote(str(folder))}` plays them"
            raise StoreError(f"no run in {folder} has begun: {again}", code="no-run")
        found += there
    return found
