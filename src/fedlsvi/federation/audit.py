"""What left a site: a log of every message sent, each line chained to the one before by its hash.

    {"n": 12, "kind": "Upload", "round": 3, "step": 2, "agents": 1, "scalars": 44, "bytes": 416,
     "digest": SHA-256 of the message's scalars, "before": hash of line 11, "hash": of this line}

A line is written before its message leaves. Altering, removing or reordering lines breaks the
chain; cutting lines off its end shows against the server's ledger, which `verify` compares.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlsvi.errors import DamagedFile
from fedlsvi.store import files
from fedlsvi.transports import wire

GENESIS = "0" * 64


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
        except OSError as error:
            raise files.cannot("write", self.path, error) from error

    def sent(self, frame: bytes) -> None:
        """This frame is about to leave."""
        kind, step, address = wire.peek(frame)
        body = frame[wire.HEADER_BYTES :]
        scalars = {wire.UPLOAD: len(body) // 8, wire.SIGNAL: len(body) // 8 - 1}.get(kind, 0)
        self.note(
            wire.KINDS[kind], round=address.round, step=step, agents=address.agents,
            scalars=scalars, bytes=len(frame), digest=hashlib.sha256(body).hexdigest(),
        )  # fmt: skip

    def note(self, kind: str, **facts: Any) -> None:
        """Write a line."""
        line = {"n": self._n + 1, "kind": kind, **facts, "before": self._before}
        line["hash"] = _hash(line)
        try:
            os.write(self._fd, json.dumps(line).encode() + b"\n")
            if self.durable:
                os.fsync(self._fd)
        except OSError as error:
            raise files.cannot("write", self.path, error) from error
        self._n, self._before = line["n"], line["hash"]

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
    """Uploads that were sent again after a restart of the server."""
    head: str
    """Hash of the last line: two parties that compare it compare the whole log."""


def lines(path: str | Path) -> Iterator[dict[str, Any]]:
    """The lines of a log, each checked against the one before."""
    before = GENESIS
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedFile(f"the log {path} cannot be read: {error}") from None
    for n, row in enumerate(text.splitlines(), start=1):
        try:
            line = json.loads(row)
            good = line["n"] == n and line["before"] == before and line["hash"] == _hash(line)
        except (ValueError, KeyError, TypeError):
            good = False
        if not good:
            raise DamagedFile(f"the log {path} was altered at line {n}: its chain is broken there")
        before = line["hash"]
        yield line


def verify(path: str | Path, up_stats: int | None = None) -> Sent:
    """Check the chain, and that its uploads are those of the server's ledger where it is given.

    up_stats   scalars of category up_stats that the server counts for this site's agents
    """
    messages = size = again = 0
    scalars: dict[str, int] = {}
    seen: set[tuple[int, int, str]] = set()
    head = GENESIS
    for line in lines(path):
        messages, size, head = messages + 1, size + line.get("bytes", 0), line["hash"]
        if line["kind"] == "Upload":
            key = (line["round"], line["step"], line["digest"])
            if key in seen:
                again += 1
                continue
            seen.add(key)
        scalars[line["kind"]] = scalars.get(line["kind"], 0) + line.get("scalars", 0)
    uploaded = scalars.get("Upload", 0)
    if up_stats is not None and uploaded != up_stats:
        raise DamagedFile(
            f"the log {path} has {uploaded} scalars of uploads, the server's ledger {up_stats}: "
            "lines are missing, or the ledger is of another run"
        )
    return Sent(messages, size, scalars, again, head)


def _hash(line: dict[str, Any]) -> str:
    body = {key: value for key, value in line.items() if key != "hash"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _cut_unfinished(path: Path) -> None:
    """A kill may leave half a line; its message never left."""
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)
