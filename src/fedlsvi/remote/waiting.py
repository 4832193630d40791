"""Who has not answered the request under way, since when, and what it said last.

A run that waits looks like one that computes. `Waiting` is what the transport knows; `Watch` looks
at it from a thread of its own and says it once somebody is waited for longer than usual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Event, Lock, Thread
from time import monotonic

from fedlsvi.checks import plural

PATIENCE = 10.0
"""Seconds after which it is said that somebody is waited for."""

EVERY = 2.0
"""Seconds between two looks."""


@dataclass(frozen=True)
class Awaited:
    """A cohort that has not answered.

    Attributes:
        cohort: Its position.
        request: What it was asked.
        round: The round that the request belongs to.
        since: When, by the clock of `monotonic`.
        attempt: How often it was asked by now.
        why: What it said last instead of an answer; "" if nothing came.
    """

    cohort: int
    request: str
    round: int
    since: float
    attempt: int = 1
    why: str = ""

    def what(self) -> str:
        """What it was asked, and what it said."""
        asked = f"asked {plural(self.attempt, 'time')}"
        return f"{self.request}, round {self.round}, {asked}; {self.why or 'nothing came back'}"

    def sentence(self, name: str, now: float) -> str:
        """Who is waited for, since when and why."""
        began = datetime.now(UTC).timestamp() - (now - self.since)
        at = datetime.fromtimestamp(began, UTC).strftime("%H:%M:%S UTC")
        return f"waiting for {name} since {at} ({self.what()})"


class Waiting:
    """The cohorts that have not answered, written by the thread that asks and read by any other."""

    def __init__(self) -> None:
        self._awaited: dict[int, Awaited] = {}
        self._lock = Lock()

    def begin(self, cohorts: Iterable[int], request: str, round_: int) -> None:
        """These are asked now; nobody else is waited for."""
        now = monotonic()
        with self._lock:
            self._awaited = {c: Awaited(c, request, round_, now) for c in cohorts}

    def heard(self, c: int) -> None:
        """It has answered, or is waited for no longer."""
        with self._lock:
            self._awaited.pop(c, None)

    def failed(self, c: int, attempt: int, why: str) -> None:
        """An attempt brought no answer; where nobody said why, what the engine said stays."""
        with self._lock:
            if c in self._awaited:
                awaited = self._awaited[c]
                self._awaited[c] = replace(awaited, attempt=attempt + 1, why=why or awaited.why)

    def said(self, c: int, why: str) -> None:
        """The engine says why no answer comes."""
        with self._lock:
            if c in self._awaited:
                self._awaited[c] = replace(self._awaited[c], why=why)

    def longer_than(self, seconds: float) -> list[Awaited]:
        """Who has been waited for longer, in the order of cohorts."""
        before = monotonic() - seconds
        with self._lock:
            late = [awaited for awaited in self._awaited.values() if awaited.since <= before]
        return sorted(late, key=lambda awaited: awaited.cohort)


class Watch:
    """Says who is waited for, and when nobody is any more; a context.

    Args:
        waiting: Returns what the transport in use knows.
        name: The name of a cohort.
        tell: Receives one sentence for all that are waited for; "" if nobody is any more.
        looked: Called after each look with all that are waited for.
        patience, every: Seconds until something is said, and between two looks.
    """

    def __init__(
        self,
        waiting: Callable[[], Waiting],
        name: Callable[[int], str],
        tell: Callable[[str], None],
        patience: float = PATIENCE,
        every: float = EVERY,
        looked: Callable[[list[Awaited]], None] = lambda late: None,
    ) -> None:
        self._waiting, self._name, self._tell, self._looked = waiting, name, tell, looked
        self._patience, self._every = patience, every
        self._told: list[tuple[int, str]] = []
        self._over = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every):
            self.look()

    def look(self) -> None:
        """Say what has changed: who is waited for, or why."""
        late = self._waiting().longer_than(self._patience)
        self._looked(late)
        found = [(awaited.cohort, awaited.why) for awaited in late]
        if found == self._told:
            return
        self._told, now = found, monotonic()
        self._tell("; ".join(a.sentence(self._name(a.cohort), now) for a in late))
