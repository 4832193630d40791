"""Who takes part in a run over frames: cohorts that are excluded, away or back, and their notes.

A cohort is one process, so it is excluded as a whole: whoever answers for one of its agents answers
for all. Excluding it takes back every increment that it ever contributed, so that the model is from
then on the one the other agents would have learned from those episodes alone. One that is carried
keeps what it contributed and is taken back between two rounds, once it answers again (`carry`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.errors import FedLSVIError, MessageRefused, TransportError
from fedlsvi.protocol.messages import Request
from fedlsvi.protocol.transport import Transport, layout
from fedlsvi.remote.absentees import Carried
from fedlsvi.remote.guard import Guard, Refusal
from fedlsvi.remote.notes import Notes
from fedlsvi.remote.retry_policy import Patience


class Attendance(Transport):
    """A transport to cohorts that may fail, `cuts` = (first, agents)."""

    _asked: Request
    """The request under way."""

    def __init__(
        self,
        parameters: Parameters,
        cuts: Sequence[tuple[int, int]],
        patience: Patience,
        guard: Guard,
    ) -> None:
        p = parameters
        super().__init__(p.n_agents, p.gamma, p.overshoot)
        self.cuts, self.patience, self.guard = list(cuts), patience, guard
        self.excluded: dict[int, str] = {}
        """Cohorts that the run goes on without, and why."""
        self.notes = Notes()
        self.carried = Carried(layout(p), self.cuts)
        self._carries = patience.absent == "carry"
        self._everyone = list(range(len(self.cuts)))

    def _present(self) -> list[int]:
        """Cohorts that take part in the round under way."""
        if not self.excluded and not self.carried.away:
            return self._everyone
        missing = self.excluded.keys() | self.carried.away.keys()
        return [c for c in self._everyone if c not in missing]

    def enter(self, category: str, scalars: int) -> None:
        present = self._present()
        if len(present) == len(self.cuts):
            self.ledger.each(category, scalars)
            return
        for c in present:
            self._count(c, category, scalars)

    def _count(self, c: int, category: str, scalars: int) -> None:
        first, agents = self.cuts[c]
        self.ledger.some(category, np.arange(first, first + agents), scalars)

    def _lost_patience(self, c: int, error: FedLSVIError | None, attempt: int) -> None:
        """A cohort has not given a usable answer: ask again (return), carry or exclude it, or
        stop."""
        who = self._who(c)
        refused = isinstance(error, MessageRefused)
        policy = self.patience.refused if refused else self.patience.absent
        if error is None:
            error = TransportError(
                f"no answer to {type(self._asked).__name__} {self.patience.in_words()}"
            )
        if policy == "wait" or attempt < self.patience.attempts:
            return
        if policy == "carry":
            guard = self.guard
            self.carried.lose(c, guard.round, guard.t, guard.t + guard.length)
            self._note(f"{who} carried ({error})")
        elif policy == "exclude":
            self._exclude(c, str(error))
        else:
            raise (
                error
                if isinstance(error, Refusal)
                else type(error)(f"{who}, round {self.guard.round}: {error}")
            )

    def _exclude(self, c: int, why: str) -> None:
        self.carried.forget(c)
        self.excluded[c] = why
        self._note(f"{self._who(c)} excluded ({why})")

    def _note(self, text: str) -> None:
        self.notes.add(text, self.guard.round)

    def _who(self, c: int) -> str:
        first, agents = self.cuts[c]
        return f"agent {first}" if agents == 1 else f"agents {first} to {first + agents - 1}"

    def missing(self) -> list[str]:
        """Who is not part of the run now, and why."""
        gone = [f"{self._who(c)} is excluded ({why})" for c, why in sorted(self.excluded.items())]
        away = sorted(self.carried.away.items())
        return gone + [f"{self._who(c)} is away since round {lost}" for c, lost in away]

    def told(self) -> list[str]:
        k = self.guard.round - 1
        for c, lost in sorted(self.carried.away.items()):
            if lost < k:
                self.notes.add(f"{self._who(c)} carried, away since round {lost}", k)
        return self.notes.due(k, last=self.guard.t >= self.guard.facts.episodes)
