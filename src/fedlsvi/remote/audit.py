"""What left a site: a log of every message sent, each line chained to the one before by its hash.

    {"n": 12, "kind": "Upload", "run": "6f…", "round": 3, "step": 2, "first": 1, "agents": 1,
     "scalars": 44, "bytes": 416, "digest": SHA-256 of the message's scalars,
     "before": hash of line 11, "hash": of this line}

A line is written before its message leaves. Altering, removing or reordering lines breaks the
chain. Lines cut off its end, and a log that was written anew as a whole, show where an upload is
gone that the server counted: `verify` compares the two. What the server did not count cannot be
missed: signals, acknowledgements, uploads that came too late.
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
from typing import Any

from fedlsvi.errors import DamagedFile, InvalidInput
from fedlsvi.remote import codec as wire
from fedlsvi.storage import files

GENESIS = "0" * 64
KINDS = (*wire.KINDS.values(), "Hello")
RUN = re.compile("[0-9a-f]{16}")

Place = tuple[int, int]
"""Round and step of an upload."""

Origin = tuple[str, int, int]
"""Run, first agent, and the agent after the last: those that an upload is of."""


def in_logs(run: int) -> str:
    """A run's number as logs and the server's ledger have it."""
    return f"{run:016x}"


def named(run: Any) -> str | None:
    """The run that a ledger names, if any; ValueError for what is no run's number."""
    if run is not None and not RUN.fullmatch(str(run)):
        raise ValueError("no run's number")
    return None if run is None else str(run)


class Audit:
    """Appends to the log of one site; `durable` also survives the loss of power."""

    def __init__(self, path: str | Path, durable: bool = True) -> None:
        self.path, self.durable = Path(path), durable
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._n, self._before = 0, GENESIS
        if self.path.exists():
            _cut_unfinished(self.path)
            for line in lines(self.path):
                self._n, self._before = line["n"], line["hash"]
        try:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._size = os.fstat(self._fd).st_size
        except OSError as error:
            raise files.cannot("write", self.path, error) from error

    def sent(self, frame: bytes) -> None:
        """This frame is about to leave."""
        kind, step, address = wire.peek(frame)
        body = frame[wire.HEADER_BYTES :]
        scalars = {wire.UPLOAD: len(body) // 8, wire.SIGNAL: len(body) // 8 - 1}.get(kind, 0)
        self.note(
            wire.KINDS[kind], run=in_logs(address.run), round=address.round, step=step,
            first=address.first, agents=address.agents, scalars=scalars, bytes=len(frame),
            digest=hashlib.sha256(body).hexdigest(),
        )  # fmt: skip

    def note(self, kind: str, **facts: Any) -> None:
        """Write a line."""
        line = {"n": self._n + 1, "kind": kind, **facts, "before": self._before}
        line["hash"] = _hash(line)
        row = json.dumps(line).encode() + b"\n"
        try:
            files.write_all(self._fd, row)
            if self.durable:
                os.fsync(self._fd)
        except OSError as error:  # its message does not leave
            with suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise files.cannot("write", self.path, error) from error
        self._n, self._before, self._size = line["n"], line["hash"], self._size + len(row)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)


@dataclass(frozen=True)
class Sent:
    """What a log says in all."""

    messages: int
    bytes: int
    scalars: dict[str, int]
    """Paper's scalars by kind; what was sent again after a restart counts once."""
    again: int
    """Uploads that were sent again, to the last bit: the server was restarted, or called the site
    back."""
    uncounted: list[Place]
    """Uploads that left and are not in the server's ledger: they came too late, or a round was
    played again in another way. Empty where no ledger was given."""
    origins: list[Origin]
    """Whose uploads these are; an earlier fedlsvi did not write that down."""
    unfinished: bool
    """Whether half a line stands at the end, as a kill leaves it: its message did not leave."""
    head: str
    """Hash of the last line: two parties that compare it compare the whole log."""


def lines(path: str | Path) -> Iterator[dict[str, Any]]:
    """The lines of a log, each checked against the one before; half a line at the end is none."""
    return _chained(path, _rows(path)[:-1])


def _rows(path: str | Path) -> list[str]:
    """The lines as they stand in a log, and what comes after the last that was finished."""
    try:
        return Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedFile(f"the log {path} cannot be read: {error}") from None


def _chained(path: str | Path, rows: list[str]) -> Iterator[dict[str, Any]]:
    before = GENESIS
    for n, row in enumerate(rows, start=1):
        try:
            line = json.loads(row)
            good = line["n"] == n and line["before"] == before and line["hash"] == _hash(line)
        except (ValueError, KeyError, TypeError, RecursionError):
            good = False
        if not good:
            raise DamagedFile(f"the log {path} was altered at line {n}: its chain is broken there")
        before = line["hash"]
        yield line


def verify(
    path: str | Path,
    up_stats: int | None = None,
    agents: tuple[int, int] | None = None,
    run: str | None = None,
) -> Sent:
    """Check the chain, and that every upload which the server counted stands in it.

    up_stats   scalars of category up_stats that the server counts for this site's agents
    agents     the first of these, and the one after the last: the log must be theirs
    run        of which run the server's ledger is: uploads of others are not compared with it
    """
    messages = size = again = compared = 0
    scalars: dict[str, int] = {}
    uploads: dict[Place, set[str]] = {}
    others: dict[tuple[str, Place], set[str]] = {}
    origins: dict[Origin, None] = {}
    head, rows = GENESIS, _rows(path)
    for line in _chained(path, rows[:-1]):
        if odd := _odd(line):
            raise DamagedFile(f"line {line['n']} of the log {path} has no {odd} that a site writes")
        messages, size, head = messages + 1, size + line.get("bytes", 0), line["hash"]
        if line["kind"] == "Upload":
            if "first" in line:
                first = line["first"]
                origins[line["run"], first, first + line["agents"]] = None
            place, of = (line["round"], line["step"]), str(line.get("run", run))
            theirs = run is None or of == run
            known = (uploads.setdefault(place, set()) if theirs
                     else others.setdefault((of, place), set()))  # fmt: skip
            if line["digest"] in known:
                again += 1
                continue
            known.add(line["digest"])
            compared += line["scalars"] if theirs else 0
        scalars[line["kind"]] = scalars.get(line["kind"], 0) + line.get("scalars", 0)
    if messages == 0:
        raise DamagedFile(f"the log {path} is empty: a site writes a line before it takes part")
    if others and not uploads:
        played = " and ".join(dict.fromkeys(of for of, _ in others))
        raise InvalidInput(f"the log {path} is of run {played} and not of {run}")
    for of, *found in origins:
        if agents is not None and run in (None, of) and found != list(agents):
            owners, asked = ("{}:{}".format(*these) for these in (found, agents))
            raise InvalidInput(f"the log {path} is of agents {owners} and not of {asked}")
    uncounted: list[Place] = []
    if up_stats is not None:
        try:
            uncounted = _uncounted(uploads, compared, up_stats)
        except ValueError as error:
            doubt = "other agents" if run else "another run or other agents"
            raise DamagedFile(
                f"the log {path} has {compared} scalars of uploads, the server's ledger "
                f"{up_stats}: {error}, or the ledger is of {doubt}"
            ) from None
    unfinished = bool(rows[-1])
    return Sent(messages, size, scalars, again, uncounted, list(origins), unfinished, head)


def _odd(line: Mapping[str, Any]) -> str:
    """What in a line is not as `Audit` writes it; its chain may be whole for all that."""
    if line.get("kind") not in KINDS:
        return "kind"
    least = dict.fromkeys({"scalars", "bytes"} & line.keys(), 0)
    if line["kind"] == "Upload":
        least |= {"round": 1, "step": 1, "scalars": 1}
        if not isinstance(line.get("digest"), str):
            return "digest"
        if "first" in line:
            least |= {"first": 0, "agents": 1}
            if not RUN.fullmatch(str(line.get("run"))):
                return "run"
    for key, bound in least.items():
        if type(line.get(key)) is not int or line[key] < bound:
            return key
    return ""


def _uncounted(uploads: Mapping[Place, set[str]], sent: int, counted: int) -> list[Place]:
    """The uploads that a server did not count; ValueError where one that it counted is missing.

    It counts what a site sends in order, round after round and in each from step H down to 1. What
    a site owes from the time when it was away is counted before anything new; so nothing is
    counted after an upload that is not.
    """
    contents = sum(map(len, uploads.values()))
    horizon = max((step for _, step in uploads), default=0)
    if contents == 0 and counted > 0:
        raise ValueError("lines are missing")
    number, rest = divmod(counted * contents, sent) if sent else (0, 0)
    if rest:
        raise ValueError("that is no whole number of uploads")
    some = range(min(number, contents + 1))  # one more is missing already
    expected = {(1 + i // horizon, horizon - i % horizon) for i in some}
    if missing := sorted(expected - uploads.keys(), key=_order):
        raise ValueError("the upload of round {}, step {} is missing".format(*missing[0]))
    places = sorted(uploads, key=_order)
    return [p for p in places for _ in range(len(uploads[p]) - (p in expected))]


def _order(place: Place) -> tuple[int, int]:
    return place[0], -place[1]


def _hash(line: dict[str, Any]) -> str:
    body = {key: value for key, value in line.items() if key != "hash"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _cut_unfinished(path: Path) -> None:
    """A kill may leave half a line; its message never left."""
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)
