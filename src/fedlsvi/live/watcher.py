"""Looks at runs and federations once a second, and tells what has changed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Condition, Thread
from threading import Event as Flag
from typing import Any

from fedlsvi.errors import FedLSVIError, InvalidInput
from fedlsvi.live import page
from fedlsvi.live.curves import Runs
from fedlsvi.remote import server_status
from fedlsvi.remote.server_status import RunStatus
from fedlsvi.remote.site import kit_of
from fedlsvi.remote.site_status import Site
from fedlsvi.report import html

EVERY = 1.0
"""Seconds between two looks."""

FIND_EVERY = 5
"""Looks between two searches for new runs."""

KEPT = 50
"""Events that are remembered."""


@dataclass(frozen=True)
class Event:
    """Something that happened while somebody watched."""

    at: float
    what: str


class Watcher:
    """The state of everything below a folder, as parts of a page.

    Args:
        place: A run folder, a folder of runs, a project, or the kit of a server or a site.
        every: Seconds between two looks.

    Raises:
        InvalidInput: There is no such folder.
    """

    def __init__(self, place: Path, every: float = EVERY) -> None:
        if not place.is_dir():
            raise InvalidInput(
                f"there is no folder {place}: give a run, a folder of runs, a project or a kit",
                code="no-folder",
            )
        self.place, self.every = place, every
        kit = kit_of(place)
        self._site = Site(kit) if kit is not None and kit == place.absolute() else None
        self._runs, self._looks = Runs(place), 0
        self._parts: dict[str, str] = dict.fromkeys(page.PARTS, "")
        self._numbers = dict.fromkeys(page.PARTS, 0)
        self._states: dict[str, str] = {}
        self._events: list[Event] = []
        self._said, self._number = "", 0
        self._changed, self._over = Condition(), Flag()
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self.look()
        self._thread.start()

    def close(self) -> None:
        """Look no more, and end what `changes` yields."""
        self._over.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self.every):
            self.look()

    def look(self) -> None:
        """Make each part of the page that has changed again. Whatever stands in a file that others
        write, it is shown where a part cannot be made of it, and the next look is another try."""
        try:
            parts = self._made()
        except Exception as error:
            parts = {"outcome": _trouble(error)}
        with self._changed:
            for name, text in parts.items():
                if text != self._parts[name]:
                    self._number += 1
                    self._parts[name], self._numbers[name] = text, self._number
            self._changed.notify_all()

    def _made(self) -> dict[str, str]:
        """The parts as they are now."""
        if self._looks % FIND_EVERY == 0:
            self._runs.find()
        self._looks += 1
        federations, curves = self._federations(), self._runs.look()
        for status in federations:
            self._note(status.name, page.state_of(status))
            for site in status.sites:
                state = page.WORDS[site.state] + (f" ({site.why})" if site.why else "")
                key = f"{status.name}: {site.name}"
                self._note(key, page.WORDS[site.state], state)
                if site.refused:
                    times = f"{sum(site.refused.values()):,}"
                    self._note(f"{key}, refused answers", times, f"{times}: {site.refusal}")
        for curve in curves:
            self._note(curve.name, curve.state)
        make: dict[str, Callable[[], str]] = {
            "outcome": lambda: page.outcome(curves, federations, "Nothing has begun here yet."),
            "federations": lambda: "".join(map(page.federation, federations)),
            "site": self._own_view,
            "runs": lambda: page.runs_part(curves, self._runs.unreadable()),
            "curves": lambda: page.curves_part(curves),
            "events": lambda: page.events_part(self._events),
        }
        parts = {}
        for name, part in make.items():
            try:
                parts[name] = part()
            except Exception as error:
                parts[name] = _trouble(error)
        return parts

    def _note(self, what: str, state: str, sentence: str = "") -> None:
        """Remember a change of a state; the first one is none."""
        before = self._states.get(what)
        self._states[what] = state
        if before not in (None, state):
            self._events = [*self._events, Event(time.time(), f"{what} {sentence or state}")]
            self._events = self._events[-KEPT:]

    def _federations(self) -> list[RunStatus]:
        if self._site is not None:
            return []
        with suppress(FedLSVIError):
            return server_status.of_places([self.place])
        return []

    def _own_view(self) -> str:
        if self._site is None:
            return ""
        try:
            found = self._site.status()
        except FedLSVIError as error:
            return html.paragraph(str(error))
        return page.site_part(found["runs"], found["epsilon"])

    def _newer(self, seen: int) -> bool:
        return self._number > seen or self._over.is_set()

    def changes(self, patience: float = 10.0) -> Iterator[str]:
        """JSON of the parts that have changed since the last one, for as long as somebody reads;
        an empty text where nothing has for a while."""
        seen = 0
        while not self._over.is_set():
            with self._changed:
                self._changed.wait_for(partial(self._newer, seen), patience)
                new: dict[str, Any] = {
                    name: self._parts[name] for name, number in self._numbers.items()
                    if number > seen
                }  # fmt: skip
                said = self._events[-1].what if self._events and "events" in new else ""
                seen = self._number
            yield json.dumps({"parts": new, "said": said}) if new else ""


def _trouble(error: Exception) -> str:
    """What stands where a part of the page cannot be made."""
    return html.paragraph(f"This cannot be shown: {type(error).__name__}: {error}"[:500], "outcome")
