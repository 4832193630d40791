"""One record per round: the only thing that observers of a run see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

Observer = Callable[["RoundRecord"], None]

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
    notes: list[str] = field(default_factory=list)  #: agents that were excluded, and why
    mean_return: float | None = None  #: of the round's episodes, where V* is not known
    rounds: int = 1  #: more where an algorithm replans every episode and records are thinned

    @property
    def length(self) -> int:
        """Δt, the round's number of episodes."""
        return self.last - self.first + 1

    @property
    def shortest(self) -> int:
        """Episodes in the shortest of the rounds that this record stands for, as far as is known:
        they are taken to be of equal length."""
        return max(1, self.length // max(1, self.rounds))

    def to_dict(self) -> dict[str, Any]:
        """A JSON form that `from_dict` reads back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RoundRecord:
        """The record that `to_dict` described."""
        return cls(**{**data, "triggers": [(int(a), int(h)) for a, h in data["triggers"]]})
