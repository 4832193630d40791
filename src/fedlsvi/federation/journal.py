"""The journal of an agent's process: snapshots between rounds, and every request since.

    000000420.json          manifest of the snapshot after episode 420, sealed by its own hash
    000000420.safetensors   sums over all episodes so far, and the model in force
    000000301-000000420.safetensors   raw episodes since the snapshot before (continuous states)
    000000420.log           requests since that snapshot, each with its length and checksum

A request is on disk before it is carried out. A record that a kill left unfinished at the end of
the log was never carried out; it is cut off, and the server asks again. The last two snapshots are
kept, because the server may have died between asking for one and sealing its own checkpoint. The
journal holds what the agents saw: it never leaves their side.
"""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np

from fedlsvi.errors import DamagedFile, TransportError, WrongVersion
from fedlsvi.store import files
from fedlsvi.transports.station import Snapshot

FORMAT = 1
KEPT = 2
_RECORD = struct.Struct("<II")  # length, CRC-32


class Journal:
    """A folder that one process writes. `durable` also survives the loss of power (fsync)."""

    def __init__(self, folder: str | Path, durable: bool = True, patience: float = 0.0) -> None:
        """`patience`: seconds to wait for another process to let go of the folder."""
        self.folder, self.durable = Path(folder), durable
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise files.cannot("make", self.folder, error) from error
        self._log: int | None = None
        self._lock = _lock(self.folder, patience)

    def append(self, frame: bytes) -> None:
        """Write a request down."""
        if self._log is None:
            self._open(self._latest() or 0)
        assert self._log is not None
        record = _RECORD.pack(len(frame), zlib.crc32(frame)) + frame
        try:
            left = memoryview(record)
            while left:
                left = left[os.write(self._log, left) :]
            if self.durable:
                os.fsync(self._log)
        except OSError as error:
            raise files.cannot("write", self.folder, error) from error

    def keep(self, snapshot: Snapshot) -> None:
        """Seal a snapshot; the log starts anew, and older snapshots go."""
        t = snapshot.t
        history = [] if (latest := self._latest()) is None else self._manifest(latest)["history"]
        for first, arrays in snapshot.history:
            if arrays:
                name = f"{first + 1:09d}-{t:09d}.safetensors"
                stamp = files.write_arrays(self.folder / name, arrays)
                history.append({"name": name, "first": first, "stamp": stamp})
        state = files.write_arrays(self._path(t, "safetensors"), snapshot.arrays)
        manifest = {"format": FORMAT, "t": t, "state": state, "history": history,
                    "plain": snapshot.plain}  # fmt: skip
        with suppress(FileNotFoundError):
            self._path(t, "log").unlink()  # of a time that a restarted server has undone
        files.write_json(self._path(t, "json"), manifest)
        self._open(t)
        self._prune()

    def newest(self) -> tuple[Snapshot | None, list[bytes]]:
        """The last snapshot, and the requests since."""
        t = self._latest()
        snapshot = None if t is None else self._load(t)
        frames = self._read_log(t or 0)
        self._open(t or 0)
        return snapshot, frames

    def back_to(self, t: int) -> Snapshot | None:
        """Forget everything after episode t."""
        snapshot = None
        if t > 0:
            if t not in self._snapshots():
                raise TransportError(
                    f"the journal {self.folder} has no snapshot after episode {t}, only after "
                    f"{self._snapshots()}: the server's checkpoint belongs to another journal"
                )
            snapshot = self._load(t)
        for other in reversed(self._snapshots()):
            if other > t:
                self._path(other, "json").unlink()
        self._close_log()
        files.write(self._path(t, "log"), b"")
        self._open(t)
        self._prune()
        return snapshot

    def _path(self, t: int, suffix: str) -> Path:
        return self.folder / f"{t:09d}.{suffix}"

    def _snapshots(self) -> list[int]:
        return sorted(int(path.stem) for path in self.folder.glob("[0-9]*.json"))

    def _latest(self) -> int | None:
        found = self._snapshots()
        return found[-1] if found else None

    def _manifest(self, t: int) -> dict[str, Any]:
        manifest = files.read_json(self._path(t, "json"))
        if manifest["format"] != FORMAT:
            raise WrongVersion(
                f"the journal {self.folder} has format {manifest['format']!r}, this fedlsvi writes "
                f"{FORMAT}: use the version that wrote it"
            )
        return manifest

    def _load(self, t: int) -> Snapshot:
        manifest = self._manifest(t)
        arrays = files.read_arrays(self._path(t, "safetensors"), manifest["state"])
        history: list[tuple[int, dict[str, np.ndarray]]] = [
            (part["first"], files.read_arrays(self.folder / part["name"], part["stamp"]))
            for part in manifest["history"]
        ]
        return Snapshot(t, arrays, manifest["plain"], history)

    def _read_log(self, t: int) -> list[bytes]:
        """Whole records from the start; an unfinished one at the end is cut off."""
        path = self._path(t, "log")
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return []
        frames, at = [], 0
        while at + _RECORD.size <= len(data):
            length, checksum = _RECORD.unpack_from(data, at)
            frame = data[at + _RECORD.size : at + _RECORD.size + length]
            if len(frame) < length:
                break
            if zlib.crc32(frame) != checksum:
                if at + _RECORD.size + length < len(data):
                    raise DamagedFile(f"{path} was altered at byte {at}: restore it from a copy")
                break
            frames.append(frame)
            at += _RECORD.size + length
        if at < len(data):
            os.truncate(path, at)
        return frames

    def _open(self, t: int) -> None:
        self._close_log()
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self._log = os.open(self._path(t, "log"), flags, 0o600)
            files.sync_folder(self.folder)
        except OSError as error:
            raise files.cannot("write", self.folder, error) from error

    def _close_log(self) -> None:
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def _prune(self) -> None:
        """Remove what no kept snapshot needs; manifests go before the files they vouch for."""
        kept = self._snapshots()[-KEPT:]
        needed = {".lock", f"{kept[-1] if kept else 0:09d}.log"}
        for t in kept:
            needed |= {f"{t:09d}.json", f"{t:09d}.safetensors"}
            needed |= {part["name"] for part in self._manifest(t)["history"]}
        for path in sorted(self.folder.iterdir(), key=lambda p: p.suffix != ".json"):
            if path.name not in needed:
                with suppress(OSError):
                    path.unlink()

    def close(self) -> None:
        """Let go of the folder."""
        self._close_log()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _lock(folder: Path, patience: float) -> int | None:
    """One process per journal; a killed one lets go by itself."""
    try:
        import fcntl
    except ImportError:  # no advisory locks on this system
        return None
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    end = monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except OSError:
            if monotonic() >= end:
                os.close(handle)
                raise TransportError(f"the journal {folder} is in use by another process") from None
            sleep(0.2)
