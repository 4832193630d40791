"""One record per round, the only thing that observers of a run see, and what ends a run early:
`STOP` of an observer, or Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from types import FrameType, TracebackType
from typing import Any, Literal

import numpy as np

from fedlsvi.errors import InvalidSetting


class Stop(Enum):
    """What an observer returns to end the run after the round that it was called with."""

    STOP = "stop"

    def __repr__(self) -> str:
        return "fedlsvi.STOP"


STOP = Stop.STOP
"""Returned by an observer, it ends the run after the round; also `fedlsvi.STOP`."""

Ending = Literal["finished", "stopped", "interrupted", "unfinished"]
"""How a run ended: it played all its episodes, an observer or Ctrl-C ended it, or none of these."""

Observer = Callable[["RoundRecord"], Any]
"""Called with the record of each round; the run ends after it where `STOP` is returned."""


def check_observers(observers: Any) -> list[Observer]:
    """The observers as a list; each must be callable with a record."""
    if callable(observers) or not isinstance(observers, Iterable):
        raise InvalidSetting(
            f"observers is {observers!r}: give a list of functions that take a RoundRecord",
            code="bad-observers",
        )
    given = list(observers)
    for k, observer in enumerate(given):
        if not callable(observer):
            raise InvalidSetting(
                f"observers[{k}] is {observer!r}: give a function that takes a RoundRecord",
                code="bad-observers",
            )
    return given


class Interrupt:
    """Ctrl-C that waits for the end of the round, so that nothing that was learned is lost.

    While active, the first one sets `asked`; the second one interrupts at once.
    Signals reach the main thread only; elsewhere this does nothing.
    """

    def __init__(self, polite: bool = False, active: bool = True) -> None:
        """Ready, not yet in force.

        Args:
            polite: Leave Ctrl-C alone where somebody else has taken it already.
            active: False leaves it alone in any case.
        """
        self.asked, self.polite, self.active = False, polite, active
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        ours = not self.polite or signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self.active and ours and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        # straight to the terminal: whoever was interrupted may hold the lock of sys.stderr
        os.write(2, b"\nfedlsvi: stopping at the end of this round; Ctrl-C again stops at once\n")


LISTED = 32
"""At most this many of the agents that signalled are named in a record; `signals` counts all."""


@dataclass(frozen=True)
class RoundRecord:
    """What happened in round k. Episodes and steps are 1-based, agents 0-based.

    Where a round is an episode, one record may stand for several: k is then the last of them.
    """

    k: int  #: number of the round
    first: int  #: τ_k, the round's first episode
    last: int  #: τ_{k+1} − 1
    signals: int  #: agents that raised the signal
    triggers: list[tuple[int, int]]  #: (agent, step h), h = 0: the episode budget was reached
    logdet: list[float]  #: log det Λ_h after the round, h = 1 … H
    scalars: dict[str, int]  #: totals so far, by category of the ledger
    regret: float | None  #: cumulative group regret, where the environment knows V*
    overshoot: int  #: episodes beyond the signal that were kept
    seconds: dict[str, float]  #: of this round: explore, synchronise, evaluate
    notes: list[str] = field(default_factory=list)
    """Agents that were carried, taken back or excluded, and why; a checkpoint that was damaged."""
    mean_return: float | None = None  #: of the round's episodes, where V* is not known
    rounds: int = 1  #: more where an algorithm replans every episode and records are thinned
    fewest: int | None = None  #: episodes in the emptiest Λ_h^loc, where ended ones leave it
    present: int | None = None  #: agents that played, where some were away by design
    steps: int | None = None  #: taken in a black box, those of dropped episodes included
    clipped: int | None = None  #: rewards of these steps outside `reward_range`

    @property
    def length(self) -> int:
        """Δt, the round's number of episodes."""
        return self.last - self.first + 1

    @property
    def shortest(self) -> int:
        """Episodes in the shortest of the rounds that this record stands for, as far as is known:
        they are taken to be of equal length."""
        return max(1, self.length // max(1, self.rounds))

    @property
    def smallest(self) -> int:
        """Episodes in the smallest upload, as far as is known: of a whole round, unless it was
        counted at which steps they had ended."""
        return self.shortest if self.fewest is None else self.fewest

    def row(self) -> dict[str, Any]:
        """Plain numbers only, as a table wants them."""
        return {
            "round": self.k, "first": self.first, "last": self.last, "length": self.length,
            "signals": self.signals, "regret": self.regret, "mean_return": self.mean_return,
            "smallest_upload": self.smallest, "overshoot": self.overshoot,
            "scalars": sum(self.scalars.values()),
            **{f"scalars_{category}": n for category, n in self.scalars.items()},
            **{f"seconds_{phase}": spent for phase, spent in self.seconds.items()},
        }  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """A JSON form that `from_dict` reads back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RoundRecord:
        """The record that `to_dict` described."""
        return cls(**{**data, "triggers": [(int(a), int(h)) for a, h in data["triggers"]]})


def returns_between(records: Sequence[RoundRecord], edges: np.ndarray) -> np.ndarray | None:
    """(windows,) mean return of the episodes between edges, from the rounds' means; None where
    these are not known.

    edges: numbers of episodes, rising; a window holds those after its left edge.
    """
    means = [record.mean_return for record in records]
    if None in means:
        return None
    # each agent that was there counts; where nobody is ever away, they all do
    weights = np.array([r.length * (1 if r.present is None else r.present) for r in records])
    ends = [0, *(record.last for record in records)]
    earned = np.interp(edges, ends, np.cumsum([0.0, *(np.array(means, np.float64) * weights)]))
    found: np.ndarray = np.diff(earned) / np.diff(np.interp(edges, ends, [0, *np.cumsum(weights)]))
    return found


def tenth(episodes: int) -> int:
    """How many episodes are the last tenth."""
    return max(1, episodes // 10)


def late_return(records: Sequence[RoundRecord], t: int) -> float | None:
    """Mean return over the last tenth of the first t episodes; None where it is not known."""
    found = returns_between(records, np.array([t - tenth(t), t]))
    return None if found is None else float(found[0])
