"""What a site does and what left it, for the engineer at that site: nothing of it is sent.

fedlsvi/NAME/activity.json   the job and the last request, written at most once a second
fedlsvi/NAME/log.jsonl       warnings and errors, among them requests that were refused
fedlsvi/NAME/sent.jsonl      every message that left (`audit`)
fedlsvi/account.jsonl        what runs may spend of the site's data (`account`)
"""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from fedlsvi import json_log
from fedlsvi.errors import DamagedFile, FedLSVIError, MessageRefused, StoreError
from fedlsvi.remote import audit, codec
from fedlsvi.remote.account import Account
from fedlsvi.remote.site import HOME, SETTINGS
from fedlsvi.remote.site_settings import SiteSettings
from fedlsvi.storage import files
from fedlsvi.storage.schema import misfit, parse_json, shape_of

ACTIVITY, LOG = "activity.json", "log.jsonl"

EVERY = 1.0
"""Seconds between two writes of a site's activity."""

NAMED = 10
"""Refusals and errors that are named, the last ones."""


@dataclass(frozen=True)
class Request:
    """The last request that a site answered.

    Attributes:
        job: The engine's number of the job.
        kind: What was asked, by the kind of message.
        round: Of the run.
        at: When it came, as seconds since 1970.
        answered: How many requests of this job were answered before.
    """

    job: str
    kind: str
    round: int
    at: float
    answered: int


_SHAPE = shape_of(Request)


class Activity:
    """Writes down what a site is asked.

    Args:
        folder: The site's folder of this federation.
        job: The engine's number of the job.
    """

    def __init__(self, folder: Path, job: str) -> None:
        self.path, self.job = folder / ACTIVITY, job
        self._answered, self._written = 0, -EVERY

    def asked(self, frame: bytes) -> None:
        """This request has come; a site does not fail because it cannot be written down."""
        now = monotonic()
        if now - self._written >= EVERY:
            with suppress(MessageRefused, StoreError, OSError):
                kind, _, address = codec.peek(frame)
                request = Request(
                    self.job, codec.KINDS[kind], address.round, time.time(), self._answered
                )
                files.write(self.path, json.dumps(vars(request)).encode(), private=True)
                self._written = now
        self._answered += 1


@dataclass(frozen=True)
class SiteRun:
    """A federation as a site knows it.

    Attributes:
        name: The federation.
        request: The last request; None before the first.
        messages, bytes, scalars: What has left, by kind of message.
        refused: Requests that were refused and errors, by their sentence.
        log_intact: Whether the chain of the log of what left is whole.
    """

    name: str
    request: Request | None
    messages: dict[str, int]
    bytes: int
    scalars: dict[str, int]
    refused: list[dict[str, Any]]
    log_intact: bool


def status(kit: Path) -> dict[str, Any]:
    """All federations of a site, and what its data have been used for."""
    return Site(kit).status()


class Site:
    """A kit that is looked at again and again: what has been added up is not read twice."""

    def __init__(self, kit: Path) -> None:
        self.kit = kit
        self._sent: dict[Path, _Sent] = {}

    def status(self) -> dict[str, Any]:
        """All federations of the site, and what its data have been used for.

        Raises:
            FedLSVIError: Its settings or its account cannot be read.
        """
        settings = SiteSettings.read(self.kit / "local" / SETTINGS)
        home = self.kit / HOME
        there = home.is_dir()
        folders = sorted(path for path in home.glob("[!.]*") if path.is_dir()) if there else []
        account = Account(home) if there else None
        bookings = [] if account is None else account.bookings
        delta = settings.require.delta
        if delta is None:
            private = [booking for booking in bookings if booking.epsilon is not None]
            delta = min((booking.delta for booking in private), default=None)
        spent = 0.0
        if account is not None and delta is not None:
            spent = account.spent(delta, episodes=settings.require.protected)
        return {
            "site": self.kit.absolute().name, "agents": settings.agents,
            "runs": [self._run(folder) for folder in folders],
            "epsilon": {"spent": spent, "delta": delta, "limit": settings.require.total_epsilon,
                        "jobs": len(bookings),
                        "without_noise": 0 if account is None else len(account.unbounded)},
        }  # fmt: skip

    def _run(self, folder: Path) -> SiteRun:
        sent = self._sent.setdefault(folder, _Sent(folder))
        intact = sent.look()
        return SiteRun(
            folder.name, _request(folder), dict(sent.messages), sent.bytes,
            {kind: n for kind, n in sent.scalars.items() if n}, sent.refused(), intact,
        )  # fmt: skip


class _Sent:
    """What left in one federation, and what was refused, as far as it was read."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._log = folder, audit.GrowingLog(folder / "sent.jsonl")
        self._refused: list[dict[str, Any]] = []
        self._seen: tuple[int, ...] = ()
        self._begin()

    def _begin(self) -> None:
        self.messages, self.scalars, self.bytes = Counter[str](), Counter[str](), 0

    def look(self) -> bool:
        """Add what left since; whether the chain of the log is whole."""
        try:
            try:
                again, lines = self._log.lines()
            except FedLSVIError:  # perhaps another file was begun meanwhile
                again, lines = self._log.lines()
        except FedLSVIError:
            return not (self.folder / "sent.jsonl").exists()
        if again:
            self._begin()
        for line in lines:
            self.messages[line["kind"]] += 1
            self.scalars[line["kind"]] += line.get("scalars", 0)
            self.bytes += line.get("bytes", 0)
        return True

    def refused(self) -> list[dict[str, Any]]:
        """As `refusals`; the log is read again where it has changed."""
        path = self.folder / LOG
        with suppress(OSError):
            found = path.stat()
            seen = (found.st_ino, found.st_size, found.st_mtime_ns)
            if seen != self._seen:
                self._seen, self._refused = seen, refusals(path)
        return self._refused


def _request(folder: Path) -> Request | None:
    try:
        path = files.inside(folder, ACTIVITY)
        table = parse_json(path, files.read(path))
    except (DamagedFile, StoreError):
        return None
    return None if misfit(table, _SHAPE) is not None else Request(**table)


def refusals(path: Path) -> list[dict[str, Any]]:
    """Warnings and errors of a log, each sentence once: how often, and when last."""
    found: dict[str, dict[str, Any]] = {}
    for line in json_log.read(path):
        if line["level"] in ("WARNING", "ERROR", "CRITICAL"):
            said = f"{line['message']}: {line['text']}" if "text" in line else str(line["message"])
            times = found.pop(said, {"times": 0})["times"] + 1
            found[said] = {"sentence": said, "code": str(line.get("code", "")), "times": times,
                           "last": str(line["time"])}  # fmt: skip
    return list(found.values())[-NAMED:]
