"""What a federation's server knows of its run, for those who watch: who is there, who is waited
for, how far the run is and what has travelled.

    status.json   in the server's run folder, written every two seconds while a job runs

Whoever is on the server's machine reads the file; others get the same table through the engine. It
holds what the server's records and log hold, and no statistics.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from fedlsvi.errors import DamagedFile, FedLSVIError, InvalidInput, StoreError
from fedlsvi.protocol.records import STOP, RoundRecord, Stop
from fedlsvi.storage import files
from fedlsvi.storage.schema import misfit, parse_json, shape_of

if TYPE_CHECKING:
    from fedlsvi.remote.frame_transport import FrameTransport
    from fedlsvi.remote.waiting import Awaited

STATUS = "status.json"

SERVER_KIT = "fed_server.json"
"""In the startup folder of a server's kit, and of no other."""

FRESH_SECONDS = 10.0
"""A status of a run that goes on which is older was left by a process that has died."""

NOTES = 8
"""The last notes, which the status repeats."""

State = Literal["starting", "running", "pausing", "paused", "failed", "complete"]
SiteState = Literal["here", "awaited", "away", "excluded"]


@dataclass(frozen=True)
class SiteStatus:
    """One site.

    Attributes:
        name: The site's name.
        agents: How many agents it has.
        state: Whether it answers, is waited for, is away (`absent="carry"`) or is excluded.
        why: What it is waited for and what it said; why it is excluded.
        since: When the wait began, as seconds since 1970.
        heard: When its last answer came.
        round: The round of that answer.
        up, down: Bytes received from it and sent to it in this job.
        refused: How many of its answers were refused in this job, by code.
        refusal: The last refusal.
        gone, named, back: When its last absence in this job began, when that was first said here,
            and when its return was; None where there was none.
    """

    name: str
    agents: int
    state: SiteState = "here"
    why: str = ""
    since: float | None = None
    heard: float | None = None
    round: int = 0
    up: int = 0
    down: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    refusal: str = ""
    gone: float | None = None
    named: float | None = None
    back: float | None = None


@dataclass(frozen=True)
class RunStatus:
    """A federation's run.

    Attributes:
        name: The federation.
        job: The engine's number of the job.
        state, reason: Where the job is, and why it failed.
        began, written: When the job began and when this was written, as seconds since 1970.
        round, episode, episodes: The last round, its last episode, and how many there will be.
        rounds: How many rounds this job has done.
        ended: When the last round ended; None before the first of this job.
        scalars: Of the whole run, by category of the ledger.
        seconds: Of this job, by phase.
        epsilon: What has been spent of the run's budget; None without noise.
        notes: The last ones.
        sites: In the order of agents; none before they have joined.
    """

    name: str
    job: str
    state: State
    reason: str
    began: float
    written: float
    round: int
    episode: int
    episodes: int
    rounds: int
    ended: float | None
    scalars: dict[str, int]
    seconds: dict[str, float]
    epsilon: float | None
    notes: list[str]
    sites: list[SiteStatus]

    @property
    def goes_on(self) -> bool:
        """Whether the job had not ended."""
        return self.state in ("starting", "running", "pausing")

    @property
    def fresh(self) -> bool:
        """Whether the process that writes it is alive, as far as its age tells."""
        return abs(time.time() - self.written) < FRESH_SECONDS


_SHAPE = shape_of(RunStatus)
_LATER = {"gone": None, "named": None, "back": None}
"""What a status of an earlier version lacks."""


def parse(table: Any) -> RunStatus | None:
    """The status that a table is; None for any other table."""
    if isinstance(table, dict) and isinstance(sites := table.get("sites"), list):
        later = [_LATER | site if isinstance(site, dict) else site for site in sites]
        table = {**table, "sites": later}
    if misfit(table, _SHAPE) is not None:
        return None
    return RunStatus(**{**table, "sites": [SiteStatus(**site) for site in table["sites"]]})


def read(run: Path) -> RunStatus | None:
    """The status in a server's run folder; None where there is none."""
    try:
        path = files.inside(run, STATUS)
        return parse(parse_json(path, files.read(path)))
    except (DamagedFile, StoreError):
        return None


def of_places(places: Sequence[Path]) -> list[RunStatus]:
    """The runs of servers whose files are on this machine.

    Args:
        places: Projects, kits of servers, or run folders of servers.

    Raises:
        InvalidInput: One of them is none of these.
    """
    found = []
    for place in places:
        runs = [place, *sorted(place.glob("fedlsvi/*")), *sorted(place.glob("kits/*/fedlsvi/*"))]
        if not any((run / STATUS).exists() for run in runs) and not any(
            (kit / "startup" / SERVER_KIT).exists() for kit in (place, *place.glob("kits/*"))
        ):
            raise InvalidInput(
                f"{place} is neither a project nor the kit of a server: give a folder written by "
                "`fedlsvi federate init`, or the server's kit in it",
                code="no-project",
            )
        found += [status for run in runs if (status := read(run)) is not None]
    return found


class ServerStatus:
    """Keeps the status of a run up to date: an observer of its rounds, called between two looks.

    Args:
        run: The server's run folder.
        name, job: The federation and the engine's number of the job.
        episodes: T.
    """

    def __init__(self, run: Path, name: str, job: str, episodes: int) -> None:
        self.path, self.name, self.job, self.episodes = run / STATUS, name, job, episodes
        self._state: State = "starting"
        self._reason, self._began = "", time.time()
        self._round, self._episode, self._scalars = 0, 0, dict[str, int]()
        self._rounds, self._ended = 0, None
        self._spent: Callable[[int], float | None] = lambda k: None
        self._seconds: Counter[str] = Counter()
        self._notes: list[str] = []
        self._sites: Sequence[str] = ()
        self._transport: FrameTransport | None = None
        self._late: Sequence[Awaited] = ()
        self._lost: dict[str, str] = {}
        self._absences: dict[int, tuple[float, float, float | None]] = {}
        self._lock = Lock()  # the run's thread and the one that looks write the same file

    _ended: float | None

    def begin(
        self, transport: FrameTransport, sites: Sequence[str], round_: int, episode: int,
        spent: Callable[[int], float | None],
    ) -> None:  # fmt: skip
        """The sites have joined.

        Args:
            transport: The way to them.
            sites: Their names, in the order of agents.
            round_, episode: How far the run was when the job began.
            spent: ε after so many rounds.
        """
        self._sites, self._transport = sites, transport
        self._round, self._episode, self._spent = round_, episode, cache(spent)
        self._state = "running"
        self.write()

    def __call__(self, record: RoundRecord) -> Stop | None:
        """A round has ended; the run stops here if somebody asked for a pause."""
        self._round, self._episode, self._scalars = record.k, record.last, dict(record.scalars)
        self._rounds, self._ended = self._rounds + 1, time.time()
        self._seconds.update(record.seconds)
        self._notes = [*self._notes, *record.notes][-NOTES:]
        return STOP if self._state == "pausing" else None

    def look(self, late: Sequence[Awaited]) -> None:
        """These are waited for."""
        self._late = late
        self.write()

    def lost(self, site: str, why: str) -> None:
        """The engine has lost this site, and says why."""
        self._lost[site] = why
        self.write()

    def pause(self) -> bool:
        """Ask for a pause after the round under way; whether there is a run to pause."""
        if self._state in ("running", "pausing"):
            self._state = "pausing"
            return True
        return False

    @property
    def paused(self) -> bool:
        """Whether a pause was asked for before the last episode was played."""
        return self._state == "pausing" and self._episode < self.episodes

    def end(self, state: State, reason: str = "") -> None:
        """The job ends."""
        self._state, self._reason, self._late = state, reason, ()
        self.write()

    def write(self) -> None:
        """Write the file; a run does not fail for it."""
        with self._lock, suppress(FedLSVIError, OSError):
            self._note_absences()
            files.write(self.path, json.dumps(self.table()).encode(), private=True)

    def table(self) -> dict[str, Any]:
        """The status as plain values."""
        return asdict(RunStatus(
            self.name, self.job, self._state, self._reason, self._began, time.time(),
            self._round, self._episode, self.episodes, self._rounds, self._ended, self._scalars,
            dict(self._seconds), self._spent(self._round), self._notes, self._site_table(),
        ))  # fmt: skip

    def _missing(self) -> dict[int, tuple[SiteState, str, float | None]]:
        """Who is not there, by cohort: the state, why, and when the wait began."""
        if self._transport is None:
            return {}
        membership, now = self._transport.membership, monotonic()
        found: dict[int, tuple[SiteState, str, float | None]] = {}
        for awaited in self._late:
            found[awaited.cohort] = "awaited", awaited.what(), time.time() - (now - awaited.since)
        for c, name in enumerate(self._sites):
            if name in self._lost:
                found[c] = "away", self._lost[name], None
        for c, since in membership.away.copy().items():
            found[c] = "away", f"away since round {since}", None
        for c, why in membership.excluded.copy().items():
            found[c] = "excluded", why, None
        return found

    def _note_absences(self) -> None:
        """When each absence began, was named, and was over."""
        now, missing = time.time(), self._missing()
        for c, (_, _, since) in missing.items():
            began, named, back = self._absences.get(c, (now, now, now))
            if back is not None:  # the one before is over
                began, named = now if since is None else since, now
            self._absences[c] = began, named, None
        for c, (began, named, back) in self._absences.items():
            if back is None and c not in missing:
                self._absences[c] = began, named, now

    def _site_table(self) -> list[SiteStatus]:
        if self._transport is None:
            return []
        transport, missing, absences = self._transport, self._missing(), self._absences.copy()
        found = []
        for c, (name, contact) in enumerate(
            zip(self._sites, transport.contacts.cohorts, strict=True)
        ):
            state, why, since = missing.get(c, ("here", "", None))
            found.append(SiteStatus(
                name, transport.cuts[c][1], state, why, since, contact.heard, contact.round,
                contact.up, contact.down, dict(contact.refused), contact.refusal,
                *absences.get(c, ()),
            ))  # fmt: skip
        return found
