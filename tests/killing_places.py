"""Where a process is killed: by how far it has got, never by the clock.

A process changes the disk by a few calls of the system. Between two of them a kill leaves the same
files at whatever instant it comes, so a place is a number of calls: after so many checkpoints,
before the n-th call or halfway through the n-th write. A machine that is faster or slower is killed
at the same places.

    python killing_places.py SIGNAL:SEALS:CALLS,… WORDS…

is the command `fedlsvi WORDS…`, which sends itself these signals, each at a place that is counted
from the one before.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from statistics import median_low
from threading import Lock
from typing import Any, NamedTuple
from unittest import mock

CALLS = ("write", "fsync", "replace", "rename", "unlink", "ftruncate")


class Place(NamedTuple):
    """A place in the life of a process.

    Attributes:
        seals: So many more checkpoints, or snapshots of a site, are sealed first.
        calls: Then before this one of the following calls; of the writes, if it is in a write.
        part: If it is in a write: how much of the bytes that one still writes, below 1.
    """

    seals: int
    calls: int
    part: float | None = None


class Round(NamedTuple):
    """What a process did between two checkpoints: calls of any kind, and writes."""

    calls: int
    writes: int


def die() -> None:
    """SIGKILL to this process."""
    os.kill(os.getpid(), signal.SIGKILL)


class DiskCalls:
    """Counts the calls of this process that change the disk, as a context, and acts at a place.

    Args:
        act: What to do at the place.
        place: Which one; None counts only.
        seals: How the names of the folders begin where a manifest ends a round: those of a server's
            checkpoints, or of a site's snapshots.

    Attributes:
        place: The one that is still to come.
        rounds: What was done between the checkpoints so far.
    """

    def __init__(
        self,
        act: Callable[[], None] = die,
        place: Place | None = None,
        seals: str = "checkpoints",
    ) -> None:
        self.act, self.seals, self.rounds, self._lock = act, seals, list[Round](), Lock()
        self._patches = ExitStack()
        self.aim(place)

    def aim(self, place: Place | None) -> None:
        """Count from here."""
        self.place, self._seals, self._round = place, 0, Round(0, 0)

    def __enter__(self) -> DiskCalls:
        for name in CALLS:
            call = self._counted(name, getattr(os, name))
            self._patches.enter_context(mock.patch.object(os, name, call))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    def step(self, writes: int = 0) -> bool:
        """One more call, or another thing that counts as one: whether this is the place."""
        with self._lock:
            self._round = Round(self._round.calls + 1, self._round.writes + writes)
            place = self.place
            if place is None or self._seals < place.seals:
                return False
            torn = place.part is not None
            return self._round[torn] == place.calls and (writes == 1 or not torn)

    def _sealed(self) -> None:
        """A checkpoint is in place. Beyond those to wait for, the count of calls goes on."""
        with self._lock:
            self.rounds.append(self._round)
            self._seals += 1
            if self.place is None or self._seals <= self.place.seals:
                self._round = Round(0, 0)

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            if self.step(name == "write"):
                if self.place is not None and self.place.part is not None:
                    fd, data = arguments
                    call(fd, data[: int(self.place.part * len(data))])
                self.act()
            answer = call(*arguments, **named)
            if name == "replace" and self._is_seal(Path(arguments[1])):
                self._sealed()
            return answer

        return counted

    def _is_seal(self, path: Path) -> bool:
        numbered = path.suffix == ".json" and path.stem.isdigit()
        return numbered and path.parent.name.startswith(self.seals)


def places(chance: random.Random, rounds: int, each: Sequence[Round]) -> list[Place]:
    """Draw where a run of so many rounds is killed and resumed, one after the other, all over the
    run; every second place is in a write.

    Args:
        chance: What draws.
        rounds: Of the whole run.
        each: For every kill, what its victim does in a round. In that no more than one checkpoint
            is sealed, so the run cannot be over before the last kill.
    """
    marks = sorted(chance.choices(range(rounds - len(each) - 1), k=len(each)))
    found = []
    for i, (mark, following) in enumerate(pairwise([0, *marks])):
        torn = i % 2 == 0
        calls = chance.randint(1, each[i][torn])
        found.append(Place(following - mark, calls, chance.random() if torn else None))
    return found


def usual(rounds: list[Round]) -> Round:
    """The calls and the writes of most rounds; the first and the last do something else."""
    return Round(*map(median_low, zip(*rounds, strict=True)))


def main(signals: str, *words: str) -> int:
    """`fedlsvi`, which sends itself signals."""
    from fedlsvi.cli import main as fedlsvi

    to_come = [tuple(map(int, each.split(":"))) for each in signals.split(",")]

    def act() -> None:
        number, *_ = to_come.pop(0)
        disk.aim(Place(*to_come[0][1:]) if to_come else None)
        os.kill(os.getpid(), number)

    with DiskCalls(act, Place(*to_come[0][1:])) as disk:
        return fedlsvi(list(words))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
