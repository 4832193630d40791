"""Copies of what parties keep of their federations, and putting them back.

    BACKUP/manifest.json        kits, the episodes of their runs, and the hash of every file
    BACKUP/KIT/runs/NAME/…      what stood in fedlsvi/NAME of that kit
    BACKUP/KIT/fedlsvi.toml     a site's settings
    BACKUP/KIT/account.jsonl    what its data have been used for (`remote.account`)

`fedlsvi/.secrets`, with the keys of masks, the noise and the record of releases, is in no backup:
an older one would not know what left since, so that masks or noise could hide a second content. For
the same reason the list of revoked certificates is not. A restore leaves these as they are; the log
of what left and a server's epoch stay too where they are still there. Of two accounts the longer
one stays if it goes on from the other. Where account or secrets are lost, bookings may be missing,
which `remote.lost_bookings` refuses. What a restore replaces is put aside, into
`fedlsvi/.replaced`.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from fedlsvi.errors import DamagedFile, FolderExists, InvalidInput
from fedlsvi.remote.account import ACCOUNT, Account
from fedlsvi.remote.epoch import EPOCH
from fedlsvi.remote.federation import NAME, package
from fedlsvi.remote.lost_bookings import mark
from fedlsvi.remote.site import HOME, SECRETS, SETTINGS
from fedlsvi.storage import checkpoint, files
from fedlsvi.storage.schema import PLAIN_NAME, Shape

MANIFEST, RUNS = "manifest.json", "runs"
REPLACED, STAGE = ".replaced", ".restoring"
"""Beside the folders of the federations: what a restore put aside, and where it copies to first."""

STAYS = re.compile(rf"sent(\.\d+)?\.jsonl|{re.escape(EPOCH)}|log\.jsonl")
"""Files of a run that a restore leaves as they are: each only grows."""

PATIENCE_SECONDS = 10.0
"""How long a process that is ending may keep its files."""

_SNAPSHOT = re.compile(r"(\d{9,19})\.json")
_SHAPE: Shape = {
    "format": int,
    "made": str,
    "package": str,
    "kits": {str: {"runs": {str: [int]}, "files": {str: files.STAMP}}},
}


@dataclass(frozen=True)
class Backup:
    """What a backup holds.

    Attributes:
        folder: Where it is.
        made: When it was made, in UTC.
        kits: Kit → run → the episodes after which it can continue: the server's last checkpoint,
            a site's snapshots.
        bytes: The size of all files.
    """

    folder: Path
    made: str
    kits: dict[str, dict[str, list[int]]]
    bytes: int

    def misfits(self) -> list[str]:
        """Sites of which no snapshot is of the server's checkpoint, as sentences."""
        found = []
        for name in sorted({run for runs in self.kits.values() for run in runs}):
            of = {kit: runs[name] for kit, runs in self.kits.items() if name in runs}
            ends = {kit: episodes[0] for kit, episodes in of.items() if len(episodes) == 1}
            for kit, episodes in of.items():
                for server, t in ends.items():
                    if kit not in ends and t not in episodes:
                        found.append(
                            f"{kit} has no snapshot of {name} after episode {t:,}, where the "
                            f"checkpoint of {server} is: they do not fit together"
                        )
        return found


def save(place: str | Path, out: str | Path) -> Backup:
    """Copy what the kits here keep of their federations.

    Args:
        place: A kit, or a project whose kits are here.
        out: The backup; must not exist.

    Raises:
        StoreError: A job runs: copies made meanwhile would not fit together.
    """
    target, kits = Path(out), kits_of(place)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FolderExists(f"{target} is not an empty folder: choose another one for the backup")
    table: dict[str, Any] = {}
    with ExitStack() as held:
        for kit in kits.values():
            held.enter_context(still(kit))
        try:
            files.make_private(target)
            for name, kit in kits.items():
                table[name] = _copy_kit(kit, files.inside(target, name))
            made = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
            content = {"format": files.FORMAT, "made": made, "package": package(), "kits": table}
            files.write_json(target / MANIFEST, content, private=True)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
    return read(target)


def read(folder: str | Path) -> Backup:
    """The backup in a folder; what it holds is not read."""
    target = Path(folder)
    if not files.exists(target / MANIFEST):
        raise InvalidInput(
            f"{target} is not a backup: give a folder written by `fedlsvi federate backup`",
            code="no-backup",
        )
    table = files.read_json(files.inside(target, MANIFEST), _SHAPE)
    kits = {name: dict(kit["runs"]) for name, kit in table["kits"].items()}
    size = sum(stamp["bytes"] for kit in table["kits"].values() for stamp in kit["files"].values())
    return Backup(target, table["made"], kits, size)


@dataclass(frozen=True)
class Restored:
    """What a restore did.

    Attributes:
        runs: Kit → runs that were put back.
        aside: Folders that were replaced.
        missing: Kits of the backup that are not here.
        without_secrets: Kits that do not know what has left them, as after the loss of a disk.
        without_account: Kits whose account may lack bookings.
    """

    runs: dict[str, list[str]]
    aside: list[Path]
    missing: list[str]
    without_secrets: list[str]
    without_account: list[str]


def restore(backup: str | Path, place: str | Path) -> Restored:
    """Put runs back as they were, after every file of the backup was checked.

    Args:
        backup: The folder that `save` wrote.
        place: A kit, or a project whose kits are here.
    """
    saved = read(backup)
    table = files.read_json(saved.folder / MANIFEST, _SHAPE)["kits"]
    here = _matched(saved, kits_of(place), Path(place))
    for name in here:
        _check(saved.folder, name, table[name]["files"])
    runs: dict[str, list[str]] = {}
    aside: list[Path] = []
    bare, forgetful = list[str](), list[str]()
    with ExitStack() as held:
        for kit in here.values():
            held.enter_context(still(kit))
        for name, kit in here.items():
            source, home = files.inside(saved.folder, name), files.inside(kit, HOME)
            files.make_private(home)
            if "journal" in _parts(table[name]["files"]):  # of a site
                bare += [name] * (not (home / SECRETS).is_dir())
                saved_account = source if ACCOUNT in table[name]["files"] else None
                if not _restore_account(saved_account, home) or name in bare:
                    mark(home)
                    forgetful.append(name)
            for run in saved.kits[name]:
                aside += _put_back(files.inside(source, RUNS, run), home, run)
            runs[name] = list(saved.kits[name])
            own = files.inside(kit, "local", SETTINGS)
            if (kit / "local").is_dir() and SETTINGS in table[name]["files"] and not own.exists():
                files.write(own, files.read(files.inside(source, SETTINGS)))
    return Restored(runs, aside, sorted(set(saved.kits) - set(here)), bare, forgetful)


def _restore_account(source: Path | None, home: Path) -> bool:
    """Keep the longer one of the account that is here and that of a backup; returns whether the one
    that is here had all that the backup has."""
    here = Account(home)  # an unfinished line is cut off
    now = files.read(here.path) if files.exists(here.path) else b""
    then = files.read(files.inside(source, ACCOUNT)) if source is not None else b""
    if source is not None and len(then) > len(now) and then.startswith(now):
        Account(source)  # refuses one that does not hold together
        files.write(here.path, then, private=True)
    return now.startswith(then)


def kits_of(place: str | Path) -> dict[str, Path]:
    """The kits at a place, by name: itself, or those of a project."""
    path = Path(place).absolute()
    if (path / "startup").is_dir():
        return {path.name: path}
    kits = files.inside(path, "kits")
    found = {
        kit.name: files.inside(kits, kit.name)
        for kit in (sorted(kits.iterdir()) if kits.is_dir() else [])
        if (kit / "startup").is_dir() and PLAIN_NAME.fullmatch(kit.name)
    }
    if not found:
        raise InvalidInput(
            f"{place} is neither a kit nor a project with kits: give a folder that has startup/, "
            "or one written by `fedlsvi federate init`",
            code="no-kit",
        )
    return found


def run_folders(kit: Path) -> list[Path]:
    """The folders of a kit's federations."""
    home = files.inside(kit, HOME)
    found = sorted(home.iterdir()) if home.is_dir() else []
    return [path for path in found if NAME.fullmatch(path.name) and path.is_dir()
            and not path.is_symlink()]  # fmt: skip


@contextmanager
def still(kit: Path) -> Iterator[None]:
    """No process writes in the runs of a kit until this ends."""
    with ExitStack() as held:
        for run in run_folders(kit):
            own = [run / "journal" / ".lock", run / ".sent.jsonl.lock"]
            for path in own if (run / "journal").is_dir() else [run / ".lock"]:
                refusal = (
                    f"a job uses {run}: run `fedlsvi federate pause PROJECT`, and wait until it "
                    "has ended"
                )
                held.callback(files.lock(path, refusal, PATIENCE_SECONDS).release)
        yield


def _copy_kit(kit: Path, target: Path) -> dict[str, Any]:
    files.make_private(target)
    stamps: dict[str, files.Stamp] = {}
    runs = {}
    for run in run_folders(kit):
        runs[run.name] = _episodes(run)
        for path in _within(run):
            copy = _within_private(target, RUNS, run.name, *path.relative_to(run).parts)
            stamps[copy.relative_to(target).as_posix()] = files.write(
                copy, files.read(path), private=True
            )
    own = files.inside(kit, "local", SETTINGS)
    if files.exists(own):
        stamps[SETTINGS] = files.write(target / SETTINGS, files.read(own), private=True)
    booked = files.inside(kit, HOME, ACCOUNT)
    if files.exists(booked):
        stamps[ACCOUNT] = files.write(target / ACCOUNT, files.read(booked), private=True)
    return {"runs": runs, "files": stamps}


def _episodes(run: Path) -> list[int]:
    """After which episodes it can continue."""
    if (run / "journal").is_dir():
        names = (_SNAPSHOT.fullmatch(path.name) for path in (run / "journal").iterdir())
        return [0, *sorted(int(name[1]) for name in names if name)]
    with suppress(DamagedFile):
        found = checkpoint.newest(run, lambda sentence: None)
        return [0 if found is None else int(found[0].plain["t"])]
    return [0]


def _within(folder: Path) -> Iterator[Path]:
    """The files below a folder that belong to a run: no links, and no name with a dot in front."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or not PLAIN_NAME.fullmatch(path.name) or path.name[0] == ".":
            continue
        if path.is_dir():
            yield from _within(path)
        elif path.is_file():
            yield path


def _within_private(folder: Path, *names: str) -> Path:
    """A path below a folder; the folders that lead there are made, for their owner alone."""
    path = files.inside(folder, *names)
    for above in reversed(path.parents[: len(names) - 1]):
        files.make_private(above)
    return path


def _matched(saved: Backup, kits: Mapping[str, Path], place: Path) -> dict[str, Path]:
    """The kits of a backup that are here; a kit may lie under another name."""
    here = {name: kits[name] for name in saved.kits if name in kits}
    if not here and len(kits) == 1 == len(saved.kits):
        here = dict(zip(saved.kits, kits.values(), strict=True))
    if not here:
        raise InvalidInput(
            f"the backup has {', '.join(saved.kits)}, and {place} is none of them",
            code="other-kit",
        )
    return here


def _check(folder: Path, name: str, stamps: Mapping[str, files.Stamp]) -> None:
    """Read every file of a kit once: nothing is replaced by what is damaged."""
    for path, stamp in stamps.items():
        files.read(files.inside(folder, name, *path.split("/")), stamp)


def _parts(stamps: Mapping[str, files.Stamp]) -> set[str]:
    return {part for path in stamps for part in path.split("/")[:-1]}


def _put_back(source: Path, home: Path, name: str) -> list[Path]:
    """Replace the folder of one run, in two renames; returns what was put aside."""
    now, stage = files.inside(home, name), files.inside(home, STAGE)
    shutil.rmtree(stage, ignore_errors=True)
    files.make_private(stage)
    for path in _within(source) if source.is_dir() else ():
        copy = _within_private(stage, *path.relative_to(source).parts)
        files.write(copy, files.read(path), private=True)
    aside = []
    if now.is_dir():
        for path in sorted(now.iterdir()):
            if STAYS.fullmatch(path.name) and not path.is_symlink():
                files.write(stage / path.name, files.read(path), private=True)
        files.make_private(kept := files.inside(home, REPLACED))
        aside.append(next(p for n in count(1) if not (p := kept / f"{name}.{n}").exists()))
        now.rename(aside[0])
    stage.rename(now)
    files.sync_folder(home)
    return aside
