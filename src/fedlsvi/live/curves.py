"""Runs and comparisons below a folder, read again and again while they grow.

Only what was appended since is read. A curve keeps at most `POINTS` points, however long its run.
"""

from __future__ import annotations

import json
import math
import os
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedlsvi.errors import DamagedFile, StoreError
from fedlsvi.storage import files
from fedlsvi.storage.checkpoint import RECORDS
from fedlsvi.storage.schema import bounded

SETTINGS, RESULTS, SUMMARY = "settings.toml", "runs.jsonl", "summary.json"

POINTS = 400
"""Points of a curve; every second one goes where there are twice as many."""

DEEPEST = 4
"""Folders inside one another that are looked through."""

MOST_RUNS = 500
"""Runs that are shown, the first by name."""

BLOCK = 1 << 22
"""Bytes that are read of a file at a time."""

QUIET_SECONDS = 15.0
"""A run is not going on where nothing was appended for so long, and for three of its rounds."""

MEASURED = 20
"""Rounds from which the speed is taken."""

LARGEST = 2.0**53
"""Of a count, and of the size of a regret: what is larger was not written by a run."""

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)
"""What a line raises that no run has written."""


@dataclass
class Curve:
    """One run.

    Attributes:
        name: Its path below the folder.
        algorithm, environment, agents, planned: From its settings; 0 where nobody says.
        unit: "regret" or "return"; "" where nobody knows them, as at the server of a federation.
        t, y, rounds, scalars: Points: episodes, what was lost or earned, and what was sent so far;
            y is empty where there is no unit.
        each: Whether rounds and scalars are known at each point, and not only at the end.
        fired: Who ended the last round.
        state: "running", "finished" or "stopped".
        left: Seconds to the end, at the speed of the last rounds; None where it is not running.
    """

    name: str
    algorithm: str
    environment: str
    agents: int = 0
    planned: int = 0
    unit: str = ""
    t: list[int] = field(default_factory=list)
    y: list[float] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    scalars: list[int] = field(default_factory=list)
    each: bool = True
    fired: str = ""
    state: str = "stopped"
    left: float | None = None

    def add(self, t: int, y: float | None, unit: str, rounds: int, scalars: int) -> None:
        """One more point; one without y is left out of a curve that has some."""
        if y is None and self.y:
            return
        if y is not None:
            if not self.y:  # what came before had none
                self.t, self.rounds, self.scalars = [], [], []
            self.unit = unit
            self.y.append(y)
        self.t.append(t)
        self.rounds.append(rounds)
        self.scalars.append(scalars)
        if len(self.t) >= 2 * POINTS:
            del self.t[:-1:2], self.y[:-1:2], self.rounds[:-1:2], self.scalars[:-1:2]


class Appended:
    """The lines that are appended to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at, self._file, self._rest = 0, (0, 0), b""

    def lines(self) -> tuple[bool, list[bytes], float]:
        """Whether the file was begun again, its new whole lines, and when it was last written."""
        try:
            fd = files.open_file(self.path, os.O_RDONLY)
        except (OSError, StoreError, DamagedFile):
            return False, [], 0.0
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            here = (found.st_dev, found.st_ino)
            again = here != self._file or found.st_size < self._at
            if again:
                self._at, self._file, self._rest = 0, here, b""
            file.seek(self._at)
            data = file.read(BLOCK)
            self._at += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > BLOCK:
            self._rest = b""  # no line of ours is so long
        return again, whole, found.st_mtime


class RunFile:
    """A run folder that grows; `unreadable` counts the lines that no run has written."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name, self.unreadable = folder, name, 0
        self._records = Appended(folder / RECORDS)
        self._spent: list[tuple[int, float]] = []
        self._curve = self._new()

    def _new(self) -> Curve:
        """A run without rounds, with what its settings say."""
        try:
            table = bounded(files.read(files.inside(self.folder, SETTINGS)), tomllib.loads)
        except (DamagedFile, StoreError, ValueError):
            table = {}
        table = table if isinstance(table, dict) else {}
        env = table.get("env")
        env = env[0] if isinstance(env, list) and env else env
        env = env.get("name", "") if isinstance(env, dict) else "sites"
        return Curve(
            self.name, str(table.get("algorithm", "?")), str(env),
            _count(table.get("n_agents")), _count(table.get("episodes")),
        )  # fmt: skip

    def look(self) -> list[Curve]:
        """The run as it is now."""
        again, lines, written = self._records.lines()
        if again:
            self._curve, self._spent, self.unreadable = self._new(), [], 0
        for line in lines:
            try:
                self._take(json.loads(line))
            except UNREADABLE:
                self.unreadable += 1
        curve = self._curve
        done = curve.t[-1] if curve.t else 0
        slow = 3.0 * self._spent[-1][1] if self._spent else 0.0
        curve.state, curve.left = "stopped", None
        if curve.planned and done >= curve.planned:
            curve.state = "finished"
        elif written and time.time() - written < max(QUIET_SECONDS, slow):
            curve.state, curve.left = "running", self._left(curve.planned - done)
        return [curve]

    def _take(self, row: dict[str, Any]) -> None:
        """A round has ended."""
        late = row.get("regret")
        y, unit = (late, "regret") if late is not None else (row.get("mean_return"), "return")
        first, last, k = _whole(row["first"]), _whole(row["last"]), _whole(row["k"])
        scalars = _whole(sum(_whole(n) for n in row["scalars"].values()))
        fired = [(int(a), int(h)) for a, h in row["triggers"][:3] if h]
        more = _whole(row.get("signals") or 0) - len(fired)
        spent = sum(_number(seconds) for seconds in row["seconds"].values())
        self._curve.add(last, None if y is None else _number(y), unit, k, scalars)
        self._spent = [*self._spent, (last - first + 1, spent)][-MEASURED:]
        self._curve.fired = ", ".join(f"agent {a} at h = {h}" for a, h in fired)
        if more > 0 and fired:
            self._curve.fired += f" and {more} more"

    def _left(self, episodes: int) -> float | None:
        played, spent = (sum(column) for column in zip(*self._spent, strict=True))
        return max(0, episodes) * spent / played if played > 0 and spent > 0 else None


class ComparisonFile:
    """The folder of a comparison, which has a line for each run that is complete."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name, self.unreadable = folder, name, 0
        self._results = Appended(folder / RESULTS)
        self._curves: list[Curve] = []

    def look(self) -> list[Curve]:
        """The runs that are complete."""
        again, lines, _ = self._results.lines()
        if again:
            self._curves, self.unreadable = [], 0
        for line in lines:
            try:
                self._curves.append(self._of(json.loads(line)))
            except UNREADABLE:
                self.unreadable += 1
        return self._curves

    def _of(self, row: dict[str, Any]) -> Curve:
        job, came = row["job"], row["outcome"]
        env = job.get("env")
        env = env[0] if isinstance(env, list) else env
        curve = Curve(
            f"{self.name}/{came['algorithm']}-{came['seed']}", str(came["algorithm"]),
            str(env["name"]), _whole(came["n_agents"]), _whole(came["episodes"]), each=False,
            state="finished",
        )  # fmt: skip
        points = came["curve"]
        unit = next((key for key in ("regret", "mean_return") if key in points), "return")
        rounds, scalars = _whole(came["rounds"]), _whole(came["scalars"])
        for t, y in zip(points["t"], points[unit], strict=True):
            curve.add(
                _whole(t), _number(y), "regret" if unit == "regret" else "return", rounds, scalars
            )
        return curve


class Runs:
    """All runs below a folder.

    Args:
        folder: It may be a run folder itself.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[Path, RunFile | ComparisonFile] = {}

    def find(self) -> None:
        """Look for new runs, and forget those that are gone."""
        found: dict[Path, RunFile | ComparisonFile] = {}
        for path, kind in _below(self.folder):
            name = str(path.relative_to(self.folder)) if path != self.folder else path.name
            found[path] = self._files.get(path) or kind(path, name)
            if len(found) == MOST_RUNS:
                break
        self._files = found

    def look(self) -> list[Curve]:
        """All of them as they are now."""
        return [curve for file in self._files.values() for curve in file.look()][:MOST_RUNS]

    def unreadable(self) -> dict[str, int]:
        """How many lines of which run or comparison were left out."""
        return {file.name: file.unreadable for file in self._files.values() if file.unreadable}


def _below(folder: Path, depth: int = 0) -> Iterator[tuple[Path, type[RunFile | ComparisonFile]]]:
    """Folders of runs and comparisons. Links are not followed, hidden folders not looked into."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    names = {entry.name for entry in entries}
    if RESULTS in names:
        yield folder, ComparisonFile
    elif SETTINGS in names:
        yield folder, RunFile
    elif depth < DEEPEST:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                yield from _below(folder / entry.name, depth + 1)


def _count(value: Any) -> int:
    """A count of the settings; 0 where it is none."""
    try:
        return _whole(value)
    except UNREADABLE:
        return 0


def _whole(value: Any) -> int:
    """A count of a line; ValueError where it is none."""
    if isinstance(value, bool) or not 0 <= value <= LARGEST or value != int(value):
        raise ValueError("not a count")
    return int(value)


def _number(value: Any) -> float:
    """A number of a line; ValueError where a chart cannot show it, as infinity."""
    found = float(value)
    if not math.isfinite(found) or abs(found) > LARGEST:
        raise ValueError("not a number of a run")
    return found
