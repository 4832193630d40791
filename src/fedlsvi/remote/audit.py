"""What left a site: a log of every message sent, each line chained to the one before by its hash.

    {"n": 12, "kind": "Upload", "run": "6f…", "round": 3, "step": 2, "first": 1, "agents": 1,
     "scalars": 44, "bytes": 416, "digest": SHA-256 of the message's scalars,
     "before": hash of line 11, "hash": of this line}

A log that has grown to `ROTATE_BYTES` becomes `sent.1.jsonl`, the next one `sent.2.jsonl`, and so
on; the first line of a file names the hash of the last line of the one before. To continue a log,
only its last file is read.

A line is written before its message leaves. Altering, removing or reordering lines breaks the
chain. A log that lost its last lines, or was rewritten as a whole, is found out if it lacks an
upload that the server counted: `verify` compares the two. What the server did not count may be
missing unnoticed: signals, acknowledgements, uploads that came too late.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from fedlsvi.errors import DamagedFile, InvalidInput
from fedlsvi.protocol.messages import KEY_SCALARS
from fedlsvi.remote import codec
from fedlsvi.storage import files

GENESIS = "0" * 64
KINDS = (*codec.KINDS.values(), "Hello")
RUN = re.compile("[0-9a-f]{16}")

ROTATE_BYTES = 4_000_000
"""After so many bytes, about 10,000 lines, a new file begins."""

SUMS = (codec.UPLOAD, codec.MASKED, codec.INCREMENTS, codec.CLOSING)
UPLOADS = tuple(codec.KINDS[kind] for kind in SUMS)
"""Kinds of messages that carry statistics."""

Place = tuple[int, int]
"""Round and step of an upload."""

Origin = tuple[str, int, int]
"""Run, first agent, and the agent after the last, of an upload."""


def in_logs(run: int) -> str:
    """A run's number as logs and the server's ledger write it."""
    return f"{run:016x}"


def named(run: Any) -> str | None:
    """The run that a ledger names, if any; ValueError if it is not a run's number."""
    if run is not None and not RUN.fullmatch(str(run)):
        raise ValueError("not a run's number")
    return None if run is None else str(run)


class Audit:
    """Appends to the log of one site, from any thread of one process.

    Args:
        path: The log; it is continued if it exists.
        durable: Whether each line also survives a power failure (fsync).
        lock_seconds: How long to wait for another process to release the log.
    """

    def __init__(self, path: str | Path, durable: bool = True, lock_seconds: float = 0.0) -> None:
        self.path, self.durable = Path(path), durable
        self.path.parent.mkdir(parents=True, exist_ok=True)
        refusal = f"the log {self.path} is in use by another process"
        held = self.path.with_name(f".{self.path.name}.lock")
        self._file_lock = files.lock(held, refusal, lock_seconds)
        self._lock = Lock()
        self._n, self._before = 0, GENESIS
        try:
            self._continue()
            self._open()
        except BaseException:
            self._file_lock.release()
            raise

    def _continue(self) -> None:
        """Take up the chain at the end of the last file that has a line."""
        if self.path.exists():
            _cut_unfinished(self.path)
        last = [*rotated(self.path), *([self.path] if self.path.exists() else [])][-2:]
        for path in reversed(last):
            rows = _rows(path)[:-1]
            if rows:
                for line in _chained(path, rows, None):
                    self._n, self._before = line["n"], line["hash"]
                return

    def _open(self) -> None:
        try:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._size = os.fstat(self._fd).st_size
        except OSError as error:
            raise files.cannot("write", self.path, error) from error

    def _rotate(self) -> None:
        """Begin a new file. A kill in between leaves none, and the next process begins it."""
        number = max((number for number, _ in _rotated(self.path)), default=0) + 1
        numbered = self.path.with_name(f"{self.path.stem}.{number}{self.path.suffix}")
        try:
            self.path.rename(numbered)
            files.sync_folder(self.path.parent)
        except OSError as error:
            raise files.cannot("write", self.path, error) from error
        os.close(self._fd)
        self._open()

    def sent(self, frame: bytes) -> None:
        """This frame is about to leave."""
        kind, step, address = codec.peek(frame)
        body = frame[codec.HEADER_BYTES :]
        words = len(body) // 8
        counted = dict.fromkeys(SUMS, words) | {codec.SIGNAL: words - 1}
        counted[codec.INCREMENTS] -= address.agents
        scalars = counted.get(kind, KEY_SCALARS if kind == codec.SITE_KEY else 0)
        self.note(
            codec.KINDS[kind], run=in_logs(address.run), round=address.round, step=step,
            first=address.first, agents=address.agents, scalars=scalars, bytes=len(frame),
            digest=hashlib.sha256(body).hexdigest(),
        )  # fmt: skip

    def note(self, kind: str, **facts: Any) -> None:
        """Write a line of this kind with these facts.

        Raises:
            StoreError: It cannot be written; its message must not leave.
        """
        with self._lock:
            if self._size >= ROTATE_BYTES:
                self._rotate()
            line = {"n": self._n + 1, "kind": kind, **facts, "before": self._before}
            line["hash"] = _hash(line)
            row = json.dumps(line).encode() + b"\n"
            try:
                files.write_all(self._fd, row)
                if self.durable:
                    os.fsync(self._fd)
            except OSError as error:
                with suppress(OSError):
                    os.ftruncate(self._fd, self._size)
                raise files.cannot("write", self.path, error) from error
            self._n, self._before, self._size = line["n"], line["hash"], self._size + len(row)

    def close(self) -> None:
        """Close the file and let other processes use it."""
        os.close(self._fd)
        self._file_lock.release()


@dataclass(frozen=True)
class Sent:
    """The totals of a log.

    Attributes:
        messages, bytes: How many were sent.
        scalars: The paper's scalars by kind; what was sent again after a restart counts once.
        again: Uploads that were sent again, to the last bit: the server was restarted, or called
            the site back.
        uncounted: Uploads that left and are not in the server's ledger: they came too late, or a
            round was played again differently. Empty if no ledger was given.
        origins: Whose uploads these are.
        unfinished: Whether the last line is truncated, as a kill leaves it; that message was never
            sent.
        head: Hash of the last line: two parties that compare it compare the whole log.
    """

    messages: int
    bytes: int
    scalars: dict[str, int]
    again: int
    uncounted: list[Place]
    origins: list[Origin]
    unfinished: bool
    head: str


def rotated(path: str | Path) -> list[Path]:
    """The earlier files of a log, oldest first."""
    return [file for _, file in _rotated(Path(path))]


def _rotated(path: Path) -> list[tuple[int, Path]]:
    """The earlier files with their numbers."""
    name = re.compile(rf"{re.escape(path.stem)}\.([1-9]\d*){re.escape(path.suffix)}")
    found = ((name.fullmatch(file.name), file) for file in path.parent.iterdir())
    return sorted((int(match[1]), file) for match, file in found if match)


def lines(path: str | Path) -> Iterator[dict[str, Any]]:
    """The lines of a log, each checked against the one before, without a truncated last one."""
    n, before = 0, GENESIS
    for file in _files(path):
        for line in _chained(file, _rows(file)[:-1], (n, before)):
            n, before = line["n"], line["hash"]
            yield line


class GrowingLog:
    """The lines of a log that grows, each read and checked once, for who looks again and again.

    A change of a line that was read before is found by `lines` and `verify`, not here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begin()

    def _begin(self) -> None:
        self._n, self._before = 0, GENESIS
        self._read, self._at = 0, 0  # files that are read to their end, and bytes of the next one

    def lines(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether the log was begun again, and the lines that came since the last call.

        Raises:
            DamagedFile: It cannot be read, or was changed; the next call begins again.
        """
        try:
            return self._lines()
        except DamagedFile:
            self._begin()
            raise

    def _lines(self) -> tuple[bool, list[dict[str, Any]]]:
        every = _files(self.path)
        if len(every) <= self._read or _size(every[self._read]) < self._at:
            self._begin()
        again, found = self._n == 0, list[dict[str, Any]]()
        for number, file in enumerate(every[self._read :], self._read + 1):
            data = _bytes_after(file, self._at)
            whole = data[: data.rfind(b"\n") + 1]
            rows = whole.decode(errors="replace").split("\n")[:-1]
            for line in _chained(file, rows, (self._n, self._before)):
                self._n, self._before = line["n"], line["hash"]
                found.append(line)
            self._at += len(whole)
            if number < len(every):
                self._read, self._at = number, 0
        return again, found


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _bytes_after(path: Path, at: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(at)
            return file.read()
    except OSError as error:
        raise DamagedFile(f"cannot read the log {path}: {error}", code="log-unreadable") from None


def _files(path: str | Path) -> list[Path]:
    """All files of a log, oldest first. A kill in a rotation leaves earlier ones only."""
    earlier = rotated(path) if Path(path).parent.is_dir() else []
    return earlier if earlier and not Path(path).exists() else [*earlier, Path(path)]


def _unfinished(path: str | Path) -> bool:
    return bool(_rows(_files(path)[-1])[-1])


def _rows(path: Path) -> list[str]:
    """The lines of one file, and what follows the last complete one."""
    try:
        return path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedFile(f"cannot read the log {path}: {error}", code="log-unreadable") from None


def _chained(
    path: Path, rows: list[str], after: tuple[int, str] | None
) -> Iterator[dict[str, Any]]:
    """The lines of one file, which follows the line with this number and hash; None takes the
    file's own word for it."""
    for i, row in enumerate(rows):
        try:
            line = json.loads(row)
            n, before = (line["n"] - 1, line["before"]) if after is None else after
            good = line["n"] == n + 1 and line["before"] == before and line["hash"] == _hash(line)
        except (ValueError, KeyError, TypeError, RecursionError):
            good = False
        if not good:
            at = i + 1 if after is None else after[0] + 1
            raise DamagedFile(
                f"the log {path} was changed at line {at}: its hash chain breaks there, or an "
                "earlier file of the log is missing. Restore it from a backup. If there is none, "
                "move all its files elsewhere as evidence and restart the site: it starts a new "
                "log, and what it sent earlier can no longer be verified",
                code="log-altered",
            )
        after = (line["n"], line["hash"])
        yield line


def verify(
    path: str | Path,
    up_stats: int | None = None,
    agents: tuple[int, int] | None = None,
    run: str | None = None,
) -> Sent:
    """Check the chain, and that every upload which the server counted is in it.

    Args:
        path: The log of a site.
        up_stats: Scalars of category up_stats that the server counted for this site's agents.
        agents: The first of these, and the one after the last: the log must be theirs.
        run: The run of the server's ledger; uploads of other runs are not compared with it.

    Raises:
        DamagedFile: The log was altered, or lacks what the server counted.
        InvalidInput: The log belongs to another run or other agents.
    """
    messages = size = again = compared = 0
    scalars: dict[str, int] = {}
    uploads: dict[Place, set[str]] = {}
    lengths: dict[Place, set[int]] = {}
    others: dict[str, dict[Place, set[str]]] = {}
    origins: dict[Origin, None] = {}
    head = GENESIS
    for line in lines(path):
        if odd := _odd(line):
            raise DamagedFile(
                f"line {line['n']} of the log {path} has an invalid {odd}: restore the log from a "
                "backup",
                code=f"bad-{odd}",
            )
        messages, size, head = messages + 1, size + line.get("bytes", 0), line["hash"]
        if line["kind"] in UPLOADS:
            place, of, first = (line["round"], line["step"]), line["run"], line["first"]
            origins[of, first, first + line["agents"]] = None
            theirs = run is None or of == run
            known = (uploads if theirs else others.setdefault(of, {})).setdefault(place, set())
            if line["digest"] in known:
                again += 1
                continue
            known.add(line["digest"])
            if theirs:
                lengths.setdefault(place, set()).add(line["scalars"])
            compared += line["scalars"] if theirs else 0
        scalars[line["kind"]] = scalars.get(line["kind"], 0) + line.get("scalars", 0)
    if messages == 0:
        raise DamagedFile(
            f"the log {path} is empty, but a site writes a line before it takes part: give the "
            "sent.jsonl of a site that took part",
            code="log-empty",
        )
    if others and not uploads:
        played = " and ".join(others)
        raise InvalidInput(
            f"the log {path} belongs to run {played}, not to {run}", code="log-of-another-run"
        )
    for of, *found in origins:
        if agents is not None and run in (None, of) and found != list(agents):
            owners, asked = ("{}:{}".format(*these) for these in (found, agents))
            raise InvalidInput(
                f"the log {path} belongs to agents {owners}, not to {asked}",
                code="log-of-other-agents",
            )
    uncounted: list[Place] = []
    if up_stats is not None:
        try:
            uncounted = _uncounted(uploads, lengths, compared, up_stats)
        except ValueError as error:
            doubt = "other agents" if run else "another run or other agents"
            raise DamagedFile(
                f"the log {path} has {compared} scalars of uploads, the server's ledger "
                f"{up_stats}: {error}, or the ledger belongs to {doubt}",
                code="log-incomplete",
            ) from None
    whole = (messages, size, scalars, again, uncounted, list(origins))
    return Sent(*whole, _unfinished(path), head)


def _odd(line: Mapping[str, Any]) -> str:
    """The field of a line that is not as `Audit` writes it, even if the chain is intact."""
    if line.get("kind") not in KINDS:
        return "kind"
    least = dict.fromkeys({"scalars", "bytes"} & line.keys(), 0)
    if line["kind"] in UPLOADS:
        least |= {"round": 0, "step": 1, "scalars": 1, "first": 0, "agents": 1}
        if not isinstance(line.get("digest"), str):
            return "digest"
        if not RUN.fullmatch(str(line.get("run"))):
            return "run"
    for key, bound in least.items():
        if type(line.get(key)) is not int or line[key] < bound:
            return key
    return ""


def _uncounted(
    uploads: Mapping[Place, set[str]], lengths: Mapping[Place, set[int]], sent: int, counted: int
) -> list[Place]:
    """The uploads that a server did not count; ValueError if one that it counted is missing.

    It counts what a site sends in order, round after round and in each from step H down to 1. What
    a site owes from the time when it was away is counted before anything new; so nothing is
    counted after an upload that is not.
    """
    contents = sum(map(len, uploads.values()))
    horizon = max((step for _, step in uploads), default=0)
    if contents == 0 and counted > 0:
        raise ValueError("lines are missing")
    number, rest = divmod(counted * contents, sent) if sent else (0, 0)
    if len(set().union(*lengths.values())) > 1:  # in one trip an upload is as long as it must be
        number, rest = _add_up(lengths, counted), 0
    if rest:
        raise ValueError("that is not a whole number of uploads")
    some = range(min(number, contents + 1))  # one more is missing already
    first = min((k for k, _ in uploads if k == 0), default=1)  # the round of the logs is 0
    expected = {(first + i // horizon, horizon - i % horizon) for i in some}
    if missing := sorted(expected - uploads.keys(), key=_order):
        raise ValueError("the upload of round {}, step {} is missing".format(*missing[0]))
    places = sorted(uploads, key=_order)
    return [p for p in places for _ in range(len(uploads[p]) - (p in expected))]


def _add_up(lengths: Mapping[Place, set[int]], counted: int) -> int:
    """How many uploads in order have so many scalars together; ValueError if none do."""
    sums = {0}
    for number, place in enumerate(sorted(lengths, key=_order)):
        if counted in sums:
            return number
        sums = {before + length for before in sums for length in lengths[place]}
    if counted in sums:
        return len(lengths)
    raise ValueError("that is not a whole number of uploads")


def _order(place: Place) -> tuple[int, int]:
    return place[0], -place[1]


def _hash(line: dict[str, Any]) -> str:
    body = {key: value for key, value in line.items() if key != "hash"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _cut_unfinished(path: Path) -> None:
    """A kill may leave a truncated line; its message was never sent."""
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)
