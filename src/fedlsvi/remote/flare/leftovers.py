"""What fills a kit's disk and nothing needs: FLARE's folders of earlier jobs, journals that were
put aside when a server began at episode 0, and what a restore replaced.

What is evidence stays: the log of what left, the records of rounds, the account of privacy, and the
record of releases, without which masks and noise could serve twice.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from fedlsvi.remote.backup import REPLACED, run_folders
from fedlsvi.remote.flare import job_folders
from fedlsvi.remote.site import HOME

_ASIDE = re.compile(r"journal\.\d+")


@dataclass(frozen=True)
class Leftover:
    """A folder that can go.

    Attributes:
        path: The folder.
        bytes: What its files hold.
        what: What it is.
    """

    path: Path
    bytes: int
    what: str


def leftovers(kit: Path, keep: int) -> list[Leftover]:
    """The folders of a kit that nothing needs.

    Args:
        kit: The kit of a party.
        keep: How many of FLARE's folders of jobs stay, the latest.
    """
    found = [(path, "an earlier job") for path in job_folders.earlier(kit, keep)]
    for run in run_folders(kit):
        aside = (path for path in sorted(run.iterdir()) if _ASIDE.fullmatch(path.name))
        found += [(path, "a journal that was put aside") for path in aside if _real(path)]
    replaced = kit / HOME / REPLACED
    if _real(replaced):
        found += [(path, "replaced by a restore") for path in sorted(replaced.iterdir())
                  if _real(path)]  # fmt: skip
    return [Leftover(path, _size(path), what) for path, what in found]


def remove(found: list[Leftover]) -> list[Leftover]:
    """Remove these folders; returns those that are gone."""
    for leftover in found:
        shutil.rmtree(leftover.path, ignore_errors=True)
    return [leftover for leftover in found if not leftover.path.exists()]


def _real(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
