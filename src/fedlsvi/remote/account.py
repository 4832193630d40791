"""What a site's data have been used for: the account of differential privacy over all jobs.

    account.jsonl   a line for each run that releases sums of these data, in the order of booking,
                    and for each set of sites in whose secure sums they are

Each run has a budget of its own, and budgets add up: releases with μ_1, μ_2, … are together like
one with μ² = Σμ_i² (`core.privacy_accountant`). A run is booked with all that it may spend before
its first sum is computed, and once only, however often the site restarts. Where whoever is
protected has several episodes, a run that protects single ones counts μ for each. A line holds the
hash of the line before it, so that none can be changed, moved or taken out without notice.

A run without noise is booked too, with no ε: nothing bounds what it reveals, so no limit of all
runs can hold after it. Secure sums without noise hide a site only among the sites of the sum. Over
the same data, one more sum with other sites reveals what was in one of them only, so the first set
of sites is the only one, unless the site allows others.

The file lies beside the folders of the federations and outlives them. Of a backup and the file that
is here, a restore keeps the longer one. Where bookings may be missing, runs under a limit are
refused until a person states what is lost (`fedlsvi federate account`).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedlsvi.core.privacy_accountant import epsilon_of, mu_of
from fedlsvi.errors import DamagedFile, MessageRefused
from fedlsvi.remote.requirements import Requirements
from fedlsvi.storage import files
from fedlsvi.storage.schema import Shape, check_shape, parse_json, suspect

ACCOUNT = "account.jsonl"
STATED = "0" * 16
"""In place of a run: a person has stated what is missing."""
_HASH = re.compile("[0-9a-f]{64}")
_SHAPE: Shape = {
    "federation": str,
    "run": re.compile("[0-9a-f]{16}"),
    "agents": [int],
    "unit": str,
    "episodes_per_user": int,
    "epsilon": (float, None),
    "delta": float,
    "before": _HASH,
}
_TOGETHER: Shape = {"federation": str, "data": str, "sites": [str], "before": _HASH}
_LATER: Shape = {"estimate": _HASH, "counted": {str: int}}
"""What lines of an earlier version lack."""
_BEGINNING = "0" * 64


@dataclass(frozen=True)
class Booking:
    """What one run may spend.

    Attributes:
        federation: Its name.
        run: Its number, as 16 hexadecimal digits.
        agents: The first agent of the site, and how many it has.
        unit, episodes_per_user: Who is protected.
        epsilon, delta: The run's budget; ε is None where nothing bounds what it reveals.
        estimate: Hash of the estimate that it ends with, whose noise is its own; "" without one.
    """

    federation: str
    run: str
    agents: tuple[int, int]
    unit: str
    episodes_per_user: int
    epsilon: float | None
    delta: float
    estimate: str = ""

    @property
    def mu(self) -> float:
        """The budget in a form that adds up."""
        if self.epsilon is None:
            return math.inf
        return mu_of(self.epsilon, self.delta) if self.epsilon > 0.0 else 0.0

    def mu_for(self, episodes: int) -> float:
        """The same for somebody with so many episodes, where the run protects fewer."""
        covered = self.episodes_per_user if self.unit == "user" else 1
        return self.mu * max(1.0, episodes / covered)


@dataclass(frozen=True)
class Together:
    """Sums without noise in which these data are.

    Attributes:
        federation: In which they were first.
        data: Which of the site's data: its records, or the episodes of a seed.
        sites: Names of all sites of the sum, if it is secure.
        counted: What decides which episodes are in it, as numbers; empty in lines of an earlier
            version, which did not write it down.
    """

    federation: str
    data: str
    sites: tuple[str, ...] = ()
    counted: Mapping[str, int] = field(default_factory=dict)

    def differs(self, other: Together) -> str | None:
        """What decides otherwise there; None if nothing does that both have."""
        shared = self.counted.keys() & other.counted.keys()
        return next((k for k in sorted(shared) if self.counted[k] != other.counted[k]), None)

    def within(self, other: Together) -> bool:
        """Whether the other one says all of this."""
        same = (self.data, self.sites) == (other.data, other.sites)
        return same and self.counted.items() <= other.counted.items()


class Account:
    """The bookings of one body of data.

    Args:
        folder: Where the file is; it may not exist yet.
        durable: Whether a booking is known after a power failure too.

    Attributes:
        bookings: In their order.
        together: Sets of sites with which secure sums were made.
    """

    def __init__(self, folder: Path, durable: bool = True) -> None:
        self.path, self.durable = files.inside(folder, ACCOUNT), durable
        self.bookings, self.together, self._last = _read(self.path)

    @property
    def unbounded(self) -> list[Booking]:
        """Runs without noise."""
        return [booking for booking in self.bookings if booking.epsilon is None]

    def spent(self, delta: float, besides: Sequence[Booking] = (), episodes: int = 1) -> float:
        """ε of all private runs that are booked, and of other bookings, at this δ, for somebody
        with so many episodes."""
        every = [b for b in (*self.bookings, *besides) if b.epsilon is not None]
        mu2 = sum(b.mu_for(episodes) ** 2 for b in every)
        return epsilon_of(math.sqrt(mu2), delta) if every else 0.0

    def refuse_beyond(
        self, booking: Booking, total: float = math.inf, delta: float = 1.0, episodes: int = 1
    ) -> None:
        """Refuse a run with which the data would have spent more than `total` at this δ.

        Raises:
            MessageRefused: They would.
        """
        if self.holds(booking):
            return
        if self.unbounded and total < math.inf:
            raise MessageRefused(
                f"this site's data may spend ε = {total:g} in all, but sums of them have left "
                "without noise, and nothing bounds what those reveal (`fedlsvi privacy`): give "
                "other data a kit of their own, or remove total_epsilon from [require]",
                code="budget-spent",
            )
        then = self.spent(delta, [booking], episodes)
        if then > total * (1.0 + 1e-9):
            raise MessageRefused(
                f"this site's data may spend ε = {total:g} in all (δ = {delta:g}): "
                f"{self.spent(delta, (), episodes):.3g} are spent, and with this job it would be "
                f"{then:.3g}. Ask the organiser for a smaller epsilon",
                code="budget-spent",
            )

    def holds(self, booking: Booking) -> bool:
        """Whether a run is booked with this budget."""
        return booking in self.bookings

    def book(
        self, booking: Booking, total: float = math.inf, delta: float = 1.0, episodes: int = 1
    ) -> None:
        """Write a run down, unless it is; refused like `refuse_beyond`."""
        with self._current():
            self.refuse_beyond(booking, total, delta, episodes)
            if not self.holds(booking):
                row = asdict(booking) | {"agents": list(booking.agents)}
                self._append({key: value for key, value in row.items() if value != ""})
                self.bookings.append(booking)

    def take_part(self, now: Together, require: Requirements) -> None:
        """Write down which sums without noise these data are in, unless it is.

        Args:
            now: The sums, with the names of their sites in order.
            require: What the site allows.

        Raises:
            MessageRefused: They were summed up with other sites before, or so many of them that the
                difference would be few.
        """
        with self._current():
            before = [known for known in self.together if known.data == now.data]
            if any(now.within(known) for known in before):
                return
            for known in before:
                others = now.sites and known.sites and known.sites != now.sites
                if others and not require.other_sites:
                    raise MessageRefused(
                        f"{now.data} of this site are in secure sums with {', '.join(known.sites)} "
                        f"({known.federation}), and now it would be {', '.join(now.sites)}. From "
                        "both together follows what is in one of them only, so one site that works "
                        "with the server would be enough. Ask for the same sites or, where new "
                        "episodes are played, another seed; give new records a kit of their own; "
                        "or set other_sites = true in [require] of local/fedlsvi.toml",
                        code="other-sites",
                    )
                what = None if require.other_episodes else now.differs(known)
                if what is not None:
                    raise MessageRefused(
                        f"{now.data} of this site are in sums with {what} = {known.counted[what]} "
                        f"({known.federation}), and now it would be {now.counted[what]}. What is "
                        "in one of them only, which may be one person, would be the difference of "
                        "the two. Ask for the same number or, where new episodes are played, "
                        "another seed; give new records a kit of their own; or set other_episodes "
                        "= true in [require] of local/fedlsvi.toml",
                        code="other-episodes",
                    )
            self._append(asdict(now) | {"sites": list(now.sites)})
            self.together.append(now)

    @contextmanager
    def _current(self) -> Iterator[None]:
        """The account as other jobs have left it, and none of them writes until this ends."""
        lock = files.lock(
            files.inside(self.path.parent, f"{ACCOUNT}.lock"),
            f"another job is writing to {self.path}: try again",
            patience=60.0,
        )
        try:
            self.bookings, self.together, self._last = _read(self.path)
            yield
        finally:
            lock.release()

    def _append(self, row: dict[str, Any]) -> None:
        line = json.dumps(row | {"before": self._last}, sort_keys=True).encode() + b"\n"
        try:
            fd = files.open_file(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                files.write_all(fd, line)
                if self.durable:
                    os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise files.cannot("write", self.path, error) from error
        self._last = _hash(line)


def booking_of(
    federation: str, run: int, agents: tuple[int, int], privacy: dict[str, Any] | None,
    estimate: str = "",
) -> Booking:  # fmt: skip
    """What a job may spend; None is one without noise."""
    if privacy is None:
        return Booking(federation, f"{run:016x}", agents, "episode", 1, None, 0.0, estimate)
    return Booking(
        federation, f"{run:016x}", agents, privacy["unit"], privacy["episodes_per_user"],
        float(privacy["epsilon"]), float(privacy["delta"]), estimate,
    )  # fmt: skip


def _hash(line: bytes) -> str:
    return sha256(line).hexdigest()


def _read(path: Path) -> tuple[list[Booking], list[Together], str]:
    """All bookings and sets of sites, and the hash of the last line. A line that a kill left
    unfinished is cut off: its run has computed nothing yet."""
    data = files.read(path) if files.exists(path) else b""
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        files.cut(path, whole)
    bookings, together, last = list[Booking](), list[Together](), _BEGINNING
    for number, line in enumerate(data[:whole].splitlines(keepends=True), start=1):
        with suspect(path):
            row = parse_json(path, line)
            sums = isinstance(row, dict) and "sites" in row
            shape = _TOGETHER if sums else _SHAPE
            check_shape(path, row, shape | {k: _LATER[k] for k in _LATER.keys() & row.keys()})
            if row.pop("before") != last:
                raise DamagedFile(
                    f"line {number} of {path} does not follow from the line before it: put the "
                    "file back as it was. It says what these data have been used for",
                    code="account-damaged",
                )
            if sums:
                together.append(Together(sites=tuple(row.pop("sites")), **row))
            else:
                first, count = row.pop("agents")
                bookings.append(Booking(agents=(first, count), **row))
        last = _hash(line)
    return bookings, together, last
