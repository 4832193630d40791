"""Writing that survives a kill and a full disk; reading that notices what is damaged.

A file is either sealed (written once: temp → fsync → rename → fsync of the folder) or append-only
(it grows, and a checkpoint says how many of its bytes count, with their SHA-256). Arrays are
safetensors, everything else is JSON or TOML: nothing in a run folder can execute.

A folder may come from someone else. `inside` gives the paths below it, `open_file` opens them:
neither follows a link, so that nothing outside the folder is read, written or removed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from filelock import BaseFileLock, FileLock, Timeout

from fedlsvi.errors import DamagedFile, FedLSVIError, StoreError, WrongVersion
from fedlsvi.storage.schema import LONGEST, PLAIN_NAME, Shape, check_shape, parse_json, suspect

FORMAT = 1
"""Version of everything that is written: run folders, checkpoints, policies, journals."""

Stamp = dict[str, Any]
"""{"bytes": length, "sha256": hex digest} of a file or of its first bytes."""

STAMP: Shape = {"bytes": int, "sha256": re.compile("[0-9a-f]{64}")}


def inside(root: Path, *names: str) -> Path:
    """A path below a folder. The folder itself may be a link, because the user named it.

    Args:
        root: The folder.
        names: A name in it, then a name in that, and so on.

    Raises:
        DamagedFile: A name leads elsewhere.
        StoreError: There is a link at one of them.
    """
    path = root
    for name in names:
        if not PLAIN_NAME.fullmatch(name):
            raise DamagedFile(
                f"{root} names a file {name!r}: only plain names inside the folder are read",
                code="bad-name",
            )
        path = path / name
        try:
            is_link = path.is_symlink()
        except OSError as error:
            raise unreadable(path, error) from error
        if is_link:
            raise _linked(path)
    return path


def open_file(path: Path, flags: int, private: bool = False) -> int:
    """Open a regular file, and never through a link; returns its descriptor. A private one is made
    for its owner alone.

    Raises:
        StoreError: It is a link, a folder, a pipe or a device; or it is to be written and has a
            second name somewhere.
        OSError: It cannot be opened.
    """
    mode = file_mode(path) & (0o600 if private else 0o666) if flags & os.O_CREAT else 0
    try:  # a pipe must not block
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise _linked(path) from None
        raise
    about, writes = os.fstat(fd), flags & (os.O_WRONLY | os.O_RDWR)
    if stat.S_ISREG(about.st_mode) and not (writes and about.st_nlink > 1):
        return fd
    os.close(fd)
    if not stat.S_ISREG(about.st_mode):
        raise StoreError(f"{path} is not a file: {_restore(path)}", code="not-a-file")
    raise _linked(path)


def _linked(path: Path) -> StoreError:
    return StoreError(
        f"{path} is a symbolic link, which may point outside its folder: replace it by a copy of "
        "the file",
        code="linked-file",
    )


def prune(folder: Path, own: re.Pattern[str], needed: set[str]) -> None:
    """Remove the files in a folder that have our own names and are not needed. What someone else
    put there stays, and of a link only the link goes.

    Args:
        folder: A folder from `inside`; there may be none.
        own: The names that we write; also matches those of unfinished files, .NAME.tmp.
        needed: The names to keep.
    """
    # manifests go before the files that they vouch for
    for path in sorted(folder.glob("*"), key=lambda p: ".json" not in p.suffixes):
        if path.name not in needed and own.fullmatch(re.sub(r"^\.(.*)\.tmp$", r"\1", path.name)):
            with suppress(OSError):  # what cannot be removed now goes the next time
                path.unlink()


def stamp(data: bytes) -> Stamp:
    """What a manifest says about these bytes."""
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def write(path: Path, data: bytes, private: bool = False) -> Stamp:
    """Put a file in place whole or not at all; an older one stays until the new one is safe.
    A private one is for its owner alone, whoever may read its folder."""
    temp = path.with_name(f".{path.name}.tmp")
    try:
        temp.unlink(missing_ok=True)  # of a kill; or a link, whose target is not ours
        fd = open_file(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, private)
        try:
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temp, path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temp.unlink()
        raise cannot("write", path, error) from error
    return stamp(data)


def file_mode(path: Path) -> int:
    """Who may read a new file: nobody who may not read its folder."""
    return path.parent.stat().st_mode & 0o666


def write_all(fd: int, data: bytes) -> None:
    """Write every byte: a call of the system may take fewer."""
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def sync_folder(folder: Path) -> None:
    """Make renames and new names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def lock(
    path: Path,
    refusal: str,
    patience: float = 0.0,
    error: type[FedLSVIError] = StoreError,
) -> BaseFileLock:
    """Hold a file, which is made where there is none, until `release`; a killed process lets go.

    Args:
        path: The file.
        refusal: What to say where another process holds it.
        patience: Seconds that the other may take to let go.
        error: What to raise then.
    """
    try:
        os.close(open_file(path, os.O_RDWR | os.O_CREAT))
    except OSError as trouble:
        raise cannot("write", path, trouble) from trouble
    held = FileLock(path, timeout=patience, mode=file_mode(path), thread_local=False)
    try:
        held.acquire(poll_interval=0.2)
    except Timeout:
        raise error(refusal, code="in-use") from None
    except NotImplementedError:
        raise StoreError(
            f"cannot lock {path}: its file system does not support locks. Choose a folder on "
            "another disk",
            code="cannot-lock",
        ) from None
    except OSError as trouble:
        raise cannot("write", path, trouble) from trouble
    return held


def whole_lines(path: Path) -> bytes:
    """The lines of an append-only file, without a last one that has no end: a kill left it, or it
    is being written."""
    data = read(path) if exists(path) else b""
    return data[: data.rfind(b"\n") + 1]


def cut(path: Path, length: int) -> None:
    """Remove what comes after the first bytes of a file."""
    try:
        fd = open_file(path, os.O_WRONLY)
        try:
            os.ftruncate(fd, length)
        finally:
            os.close(fd)
    except OSError as error:
        raise cannot("write", path, error) from error


def make_folder(folder: Path) -> None:
    """A new folder, durable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
    except OSError as error:
        raise cannot_make(folder, error) from error


def make_private(folder: Path) -> None:
    """A folder for its owner alone, and so are the files that are written there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_mode & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise cannot_make(folder, error) from error


def cannot(what: str, path: Path, error: OSError) -> StoreError:
    """One sentence about a failed call of the system, with the way out."""
    reason = error.strerror or str(error)
    return StoreError(
        f"cannot {what} {path}: {reason}. Everything saved earlier is intact: free some space or "
        "change the permissions, then resume",
        code="cannot-write",
    )


def cannot_make(folder: Path, error: OSError) -> StoreError:
    """The same about a folder, in which nothing was saved before."""
    reason = error.strerror or str(error)
    if isinstance(error, FileExistsError | NotADirectoryError):
        reason = "a part of its path is a file"
    return StoreError(
        f"cannot make {folder} ({reason}): choose another folder, free some space or change the "
        "permissions",
        code="cannot-make-folder",
    )


def unreadable(path: Path, error: OSError) -> StoreError:
    """The same about something that is only looked at."""
    return StoreError(
        f"cannot read {path} ({error.strerror}): change the permissions, or choose another path",
        code="cannot-read",
    )


def exists(path: Path) -> bool:
    """Whether there is something at a path; a sentence where it cannot be told."""
    try:
        return path.exists()
    except OSError as error:  # no access, or a name that is too long
        raise unreadable(path, error) from error


def is_empty(folder: Path) -> bool:
    """Whether a folder holds nothing."""
    try:
        return not any(folder.iterdir())
    except OSError as error:
        raise unreadable(folder, error) from error


def read(path: Path, expected: Stamp | None = None) -> bytes:
    """The bytes of a file, which must be those of its stamp where one is given."""
    return _read(path, expected, None if expected is None else expected["bytes"] + 1)


def read_at_most(path: Path, most: int) -> bytes:
    """The bytes of a file from someone else; a longer one is refused before it is read."""
    data = _read(path, None, most + 1)
    if len(data) > most:
        raise DamagedFile(f"{path} has more than {most:,} bytes, which no such file has",
                          code="too-long")  # fmt: skip
    return data


def read_prefix(path: Path, expected: Stamp) -> bytes:
    """The first bytes of an append-only file, checked against their stamp."""
    return _read(path, expected, expected["bytes"])


def _read(path: Path, expected: Stamp | None, most: int | None) -> bytes:
    try:
        with os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(size if most is None else min(size, most))
    except FileNotFoundError:
        raise DamagedFile(f"{path} is missing: {_restore(path)}", code="missing") from None
    except OSError as error:
        raise unreadable(path, error) from error
    except MemoryError:
        raise DamagedFile(
            f"{path} has {size} bytes, too many for this machine's memory: {_restore(path)}",
            code="damaged",
        ) from None
    if expected is not None:
        compare(path, stamp(data), expected)
    return data


def compare(path: Path, found: Stamp, expected: Stamp) -> None:
    """Refuse a file that is not what was written."""
    if found["bytes"] < expected["bytes"]:
        raise DamagedFile(
            f"{path} is truncated: {found['bytes']} of {expected['bytes']} bytes: {_restore(path)}",
            code="truncated",
        )
    if found != expected:
        raise DamagedFile(
            f"{path} was changed after it was written: {_restore(path)}", code="altered"
        )


def _restore(path: Path) -> str:
    run = path.parent.parent if path.parent.name in ("checkpoints", "history") else path.parent
    settings = run / "settings.toml"
    usable = settings != path and settings.exists()
    again = f"with `fedlsvi run {quote(str(settings))}`" if usable else "in another folder"
    return f"restore it from a backup, or start over {again}"


def check_format(path: Path, found: Any) -> None:
    """Refuse files of another format, and say what to do."""
    if found != FORMAT:
        raise WrongVersion(
            f"{path} has format {found!r}, but this version of fedlsvi reads format {FORMAT}: use "
            "the version that wrote it, or start over",
            code="wrong-format",
        )


def write_json(path: Path, content: Mapping[str, Any], private: bool = False) -> Stamp:
    """A sealed JSON file."""
    return write(path, sealed(content), private)


def sealed(content: Mapping[str, Any]) -> bytes:
    """JSON that carries its own SHA-256, so that an altered one is noticed."""
    digest = json_hash(content)
    text = json.dumps({**content, "sha256": digest}, indent=1, ensure_ascii=False)
    return text.encode() + b"\n"


def read_json(path: Path, shape: Shape) -> dict[str, Any]:
    """What `write_json` wrote, without the hash; its fields must fit `shape`."""
    content = parse_json(path, _read(path, None, LONGEST + 1))
    if isinstance(content, dict):
        digest = content.pop("sha256", None)
        with suppress(UnicodeEncodeError):
            if digest == json_hash(content):
                if "format" in shape:
                    check_format(path, content.get("format"))
                check_shape(path, content, shape)
                return content
    raise DamagedFile(f"{path} is damaged: {_restore(path)}", code="damaged")


def json_hash(content: Mapping[str, Any]) -> str:
    """SHA-256 of plain values, whatever the order of their keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> Stamp:
    """A sealed safetensors file."""
    from safetensors.numpy import save

    return write(path, save({key: np.ascontiguousarray(a) for key, a in arrays.items()}))


def read_arrays(path: Path, expected: Stamp | None = None) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file."""
    from safetensors.numpy import load

    data = read(path, expected)
    with suspect(path):
        return load(data)


class AppendOnly:
    """A file that only grows. Bytes beyond the given stamp are cut off when it is opened, as a kill
    leaves them; those before it must be there and have its hash."""

    def __init__(self, path: Path, start: Stamp | None = None) -> None:
        self.path = path
        prefix = read_prefix(path, start) if start is not None else b""
        self._hash, self._length = hashlib.sha256(prefix), len(prefix)
        try:
            self._fd = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.ftruncate(self._fd, self._length)
        except OSError as error:
            raise cannot("write", path, error) from error

    def append(self, data: bytes) -> None:
        """Add to the end; visible to readers at once, durable after `sync`."""
        try:
            write_all(self._fd, data)
        except OSError as error:
            raise cannot("write", self.path, error) from error
        self._hash.update(data)
        self._length += len(data)

    def sync(self) -> Stamp:
        """Make everything durable, and say what there is."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise cannot("write", self.path, error) from error
        return {"bytes": self._length, "sha256": self._hash.copy().hexdigest()}

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)
