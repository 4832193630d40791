"""The journal of a cohort's process: snapshots between rounds, and every request since.

    000000420.json          manifest of the snapshot after episode 420, sealed by its own hash
    000000420.safetensors   sums over all episodes so far, and the model in force
    000000301-000000420.safetensors   raw episodes since the snapshot before (continuous states)
    000000420.log           requests since that snapshot, each with its length and checksums

A request is on disk before its answer leaves. A record that a kill left unfinished at the end of
the log was never answered; it is cut off, and the server asks again. The last two snapshots are
kept with their logs, because the server may have died between asking for one and sealing its own
checkpoint; and if the newer one is damaged, it is made again from the older one and the requests
since. The journal holds what the agents saw: it never leaves their side.

Nothing is deleted because a server says so. A server that goes back to the earlier snapshot leaves
the later one as `….json.undone` until a snapshot at or after that episode replaces it. One that
begins at episode 0 finds an empty journal: the folder itself is put aside as `journal.1`, `.2`, ….
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.errors import DamagedFile, TransportError
from fedlsvi.storage import files
from fedlsvi.storage.checkpoint import OWN_SEGMENT
from fedlsvi.storage.schema import Shape

KEPT = 2
_SNAPSHOT = re.compile(r"\d{9,19}\.json")
_UNDONE = re.compile(r"\d{9,19}\.json\.undone")
_OWN = re.compile(r"\d{9,19}(-\d{9,19})?\.(json(\.undone)?|safetensors|log)")
"""What a journal may write."""
_SHAPE: Shape = {
    "format": int,
    "t": int,
    "state": files.STAMP,
    "history": [{"name": OWN_SEGMENT, "first": int, "stamp": files.STAMP}],
    "plain": dict,
}
_LENGTH = struct.Struct("<I")
_RECORD = struct.Struct("<III")  # length, CRC-32 of the length, CRC-32 of the request

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Snapshot:
    """An endpoint between two rounds, after episode t.

    Attributes:
        t: The last episode.
        arrays: The state of the experience, and the model in force (`model.w`, `model.gram`).
        plain: Its owner (run, first agent, agents), gamma, beta, episodes, and (epoch, number,
            round) of the last request.
        history: Raw episodes in order, as (first, arrays); they never leave the agents' side.
    """

    t: int
    arrays: dict[str, np.ndarray]
    plain: dict[str, Any]
    history: list[tuple[int, dict[str, np.ndarray]]] = field(default_factory=list)


class Journal:
    """A folder that one process writes.

    Args:
        folder: Created if it does not exist.
        durable: Whether each request also survives a power failure (fsync).
        lock_seconds: How long to wait for another process to release the folder.
        scratch: Whether the folder is deleted when the journal is closed.
        secrets: Where keys, noise and the log of releases belong; None is a folder beside this one.
            A site keeps them elsewhere than what it backs up: a restored record of what has left
            would not know what left since.
    """

    def __init__(
        self,
        folder: str | Path,
        durable: bool = True,
        lock_seconds: float = 0.0,
        scratch: bool = False,
        secrets: Path | None = None,
    ) -> None:
        self.folder, self.durable, self.scratch = Path(folder), durable, scratch
        beside = self.folder.with_name(f"{self.folder.name}.secrets")
        self.secrets = beside if secrets is None else secrets
        self.of_a_site = secrets is not None  # beside the secrets of its other federations
        files.make_private(self.folder)
        self._log: int | None = None
        self._base = self._latest()  # the snapshot that the next one builds on
        self._acquire(lock_seconds)

    def _acquire(self, seconds: float) -> None:
        refusal = f"the journal {self.folder} is in use by another process"
        self._lock = files.lock(self.folder / ".lock", refusal, seconds, TransportError)

    def append(self, frame: bytes) -> None:
        """Write a request down."""
        if self._log is None:
            self._open(self._latest())
        assert self._log is not None
        check = zlib.crc32(_LENGTH.pack(len(frame)))
        record = _RECORD.pack(len(frame), check, zlib.crc32(frame)) + frame
        try:
            files.write_all(self._log, record)
            if self.durable:
                os.fsync(self._log)
        except OSError as error:
            raise files.cannot("write", self.folder, error) from error

    def keep(self, snapshot: Snapshot) -> None:
        """Seal a snapshot; a new log begins, and snapshots older than the last two are deleted."""
        t = snapshot.t
        self._path(t, "json.undone").unlink(missing_ok=True)  # its files are about to be replaced
        history = self._manifest(self._base)["history"] if self._base else []
        for first, arrays in snapshot.history:
            if arrays:
                name = f"{first + 1:09d}-{t:09d}.safetensors"
                stamp = files.write_arrays(self.folder / name, arrays)
                history.append({"name": name, "first": first, "stamp": stamp})
        state = files.write_arrays(self._path(t, "safetensors"), snapshot.arrays)
        manifest = {"format": files.FORMAT, "t": t, "state": state, "history": history,
                    "plain": snapshot.plain}  # fmt: skip
        if t not in self._snapshots():  # its log is of a time that a restarted server has undone
            self._path(t, "log").unlink(missing_ok=True)
        files.write_json(self._path(t, "json"), manifest)
        self._base = t
        self._open(self._latest())
        self._prune()

    def newest(self) -> tuple[Snapshot | None, list[bytes]]:
        """The last intact snapshot, and the requests since."""
        self._base, snapshot = self._last_intact()
        latest = self._latest()
        since = sorted({self._base, *(t for t in self._snapshots() if t > self._base)})
        frames = [frame for t in since for frame in self._read_log(t, t == latest)]
        self._open(latest)
        return snapshot, frames

    def _last_intact(self) -> tuple[int, Snapshot | None]:
        """The last snapshot that can be read, and the episode after which it was made."""
        damaged: dict[int, DamagedFile] = {}
        for t in (*reversed(self._snapshots()), 0):
            try:
                snapshot = self._load(t) if t > 0 else None
            except DamagedFile as error:
                damaged[t] = error
                continue
            if t == 0 and damaged and not self._path(0, "log").exists():
                break
            for bad in damaged:
                text = "snapshot %d of the journal %s is damaged: remaking it from episode %d"
                log.warning(text, bad, self.folder, t)
            return t, snapshot
        reason = next(iter(damaged.values()))
        raise DamagedFile(
            f"no snapshot of the journal {self.folder} is intact: {reason}",
            code="journal-damaged",
        )

    def snapshot_at(self, t: int) -> Snapshot:
        """The snapshot after episode t; nothing changes.

        Raises:
            TransportError: There is none.
        """
        if t not in self._snapshots() and t not in self._undone():
            raise TransportError(
                f"the journal {self.folder} has no snapshot after episode {t}, only after "
                f"{self._snapshots()}: the server's checkpoint is older, or belongs to "
                "another journal. Restore the journal from a backup of the same time"
                + "".join(f", perhaps {path}" for path in self._aside()),
                code="no-snapshot",
            )
        return self._load(t)

    def back_to(self, t: int) -> Snapshot | None:
        """Continue after episode t; what came after it is put aside.

        Raises:
            TransportError: There is no snapshot after episode t.
        """
        snapshot = self.snapshot_at(t) if t > 0 else None
        if t > 0:
            if t not in self._snapshots():
                self._path(t, "json.undone").rename(self._path(t, "json"))
        elif not self.scratch and (self._snapshots() or self._undone()):
            self._put_aside()
        for other in reversed(self._snapshots()):
            if other > t:
                self._path(other, "json").rename(self._path(other, "json.undone"))
        self._close_log()
        files.write(self._path(t, "log"), b"")
        self._base = t
        self._open(t)
        self._prune()
        return snapshot

    def _put_aside(self) -> None:
        """Rename the folder, in one step, and begin an empty one in its place."""
        self._close_log()
        names = (self.folder.with_name(f"{self.folder.name}.{n}") for n in count(1))
        aside = next(path for path in names if not os.path.lexists(path))
        try:
            self.folder.rename(aside)
            self._lock.release()
            files.make_private(self.folder)
            files.sync_folder(self.folder.parent)
        except OSError as error:
            raise files.cannot("write", self.folder, error) from error
        self._acquire(0.0)
        log.warning("a server begins at episode 0: the journal before is now %s", aside)

    def _aside(self) -> list[Path]:
        """Journals that were put aside before."""
        return sorted(self.folder.parent.glob(f"{self.folder.name}.[0-9]*"))

    def _path(self, t: int, suffix: str) -> Path:
        return files.inside(self.folder, f"{t:09d}.{suffix}")

    def _snapshots(self) -> list[int]:
        names = (path.stem for path in self.folder.iterdir() if _SNAPSHOT.fullmatch(path.name))
        return sorted(int(name) for name in names)

    def _undone(self) -> list[int]:
        """Snapshots that a server went back behind."""
        names = (path.name for path in self.folder.iterdir() if _UNDONE.fullmatch(path.name))
        return sorted(int(name.partition(".")[0]) for name in names)

    def _latest(self) -> int:
        """The episode of the last snapshot, intact or not; 0 if there is none."""
        return max(self._snapshots(), default=0)

    def _manifest(self, t: int) -> dict[str, Any]:
        path = self._path(t, "json" if t in self._snapshots() else "json.undone")
        manifest = files.read_json(path, _SHAPE)
        if manifest["t"] != t:
            raise DamagedFile(f"{path} is of episode {manifest['t']}", code="damaged")
        return manifest

    def _load(self, t: int) -> Snapshot:
        manifest = self._manifest(t)
        arrays = files.read_arrays(self._path(t, "safetensors"), manifest["state"])
        history: list[tuple[int, dict[str, np.ndarray]]] = []
        for part in manifest["history"]:
            path = files.inside(self.folder, part["name"])
            history.append((part["first"], files.read_arrays(path, part["stamp"])))
        return Snapshot(t, arrays, manifest["plain"], history)

    def _read_log(self, t: int, newest: bool) -> list[bytes]:
        """Complete records from the start; a torn one at the end of the newest is cut off."""
        path = self._path(t, "log")
        data = files.read(path) if files.exists(path) else b""
        frames, at = [], 0
        while (frame := _record(data, at)) is not None:
            frames.append(frame)
            at += _RECORD.size + len(frame)
        if at < len(data):
            if not (newest and _unfinished(data, at)):
                raise DamagedFile(
                    f"{path} was altered at byte {at}, or another version wrote it: restore it "
                    "from a copy, or remove it and resume the run from the server's checkpoint",
                    code="journal-altered",
                )
            files.cut(path, at)
        return frames

    def _open(self, t: int) -> None:
        self._close_log()
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self._log = files.open_file(self._path(t, "log"), flags)
            files.sync_folder(self.folder)
        except OSError as error:
            raise files.cannot("write", self.folder, error) from error

    def _close_log(self) -> None:
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def _prune(self) -> None:
        """Remove what no kept snapshot needs."""
        kept = [0, *self._snapshots()][-KEPT:]
        undone = [t for t in self._undone() if t > kept[-1]][-KEPT:]
        needed = {self._path(t, "log").name for t in kept}
        for t, manifest in ((t, "json" if t in kept else "json.undone") for t in (*kept, *undone)):
            needed |= {self._path(t, suffix).name for suffix in (manifest, "safetensors")}
            with suppress(DamagedFile):  # an unreadable manifest needs nothing
                needed |= {part["name"] for part in self._manifest(t)["history"]}
        files.prune(self.folder, _OWN, needed)

    def release(self) -> None:
        """Close the files and let other processes use the folder."""
        self._close_log()
        self._lock.release()

    def close(self) -> None:
        """Release the folder; delete it if it is a scratch folder."""
        self.release()
        if self.scratch:
            shutil.rmtree(self.folder, ignore_errors=True)
            with suppress(OSError):  # others on this machine have theirs in the same place
                self.folder.parent.rmdir()


def _record(data: bytes, at: int) -> bytes | None:
    """The request whose record begins here; None if it is not complete."""
    if at + _RECORD.size > len(data):
        return None
    length, check, checksum = _RECORD.unpack_from(data, at)
    at += _RECORD.size
    if zlib.crc32(_LENGTH.pack(length)) != check or at + length > len(data):
        return None
    frame = data[at : at + length]
    return frame if zlib.crc32(frame) == checksum else None


def _unfinished(data: bytes, at: int) -> bool:
    """Whether a last record begins here that a kill or a power failure cut short: its length is
    right and nothing follows, or nothing of it was written."""
    if at + _RECORD.size > len(data) or not any(data[at:]):
        return True
    length, check, _ = _RECORD.unpack_from(data, at)
    right: bool = zlib.crc32(_LENGTH.pack(length)) == check
    return right and len(data) <= at + _RECORD.size + int(length)
