"""Who takes part in a run over frames: cohorts that are present, away or excluded.

A cohort is one process, so it is excluded as a whole: whoever answers for one of its agents answers
for all. Excluding it takes back every increment that it ever contributed, so that from then on the
model is the one that the other agents would have learned from those episodes alone.

With `absent="carry"` a cohort that is away keeps what it contributed (`remote.absentees`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.errors import FedLSVIError, InvalidSetting, MessageRefused, TransportError
from fedlsvi.protocol.messages import Reply, Request, Upload
from fedlsvi.remote.absentees import Absentees
from fedlsvi.remote.guard import Guard, Refusal
from fedlsvi.remote.retry_policy import RetryPolicy
from fedlsvi.remote.suspicion import FEWEST, Suspect, compare

NO_ROUND = 0


class Notes:
    """Anomalies of a run, each kept for the record of the round that it affects.

    A cohort that is lost with a round's last model, or between two rounds, is missing in the next
    one: its note goes into a record that does not exist yet, and names the round that just ended.
    """

    def __init__(self) -> None:
        self._pending: list[tuple[int, int, str]] = []  # round of the record, round to name, text

    def add(self, text: str, record: int = NO_ROUND, happened: int | None = None) -> None:
        """Note an anomaly.

        Args:
            text: What happened.
            record: The round in whose record it belongs; 0 is the next record written.
            happened: The round to name, if it is another one.
        """
        self._pending.append((record, record if happened is None else happened, text))

    def take(self, k: int, last: bool) -> list[str]:
        """Notes for the record of round k; all of them if this is the last record."""
        due = [note for note in self._pending if last or note[0] <= k]
        self._pending = [] if last else [note for note in self._pending if note[0] > k]
        return [text if of == NO_ROUND else f"round {of}: {text}" for _, of, text in due]

    def state(self) -> list[list[int | str]]:
        """What is in no record yet, in plain values."""
        return [list(note) for note in self._pending]

    def restore(self, pending: Iterable[tuple[int, int, str]]) -> None:
        """Continue from `state`; what has been noted since stays."""
        self._pending = [(record, of, text) for record, of, text in pending] + self._pending


class Membership:
    """Which cohorts are present, away or excluded, and what happens when one fails.

    Args:
        cuts: (first agent, number of agents) of each cohort.
        retry: What to do about a cohort that fails.
        guard: The server's checks, which know the round under way.
        sites: The name of each cohort's site, where sites have names.

    Attributes:
        excluded: Cohorts that the run continues without, and why.
        absentees: Cohorts that are away and may come back.
        carries: Whether the run continues without absent cohorts until they come back.
        suspects: Cohorts whose data contradicted those of all others, and who were only noted.
        notes: Anomalies for the records of rounds.
        b: (M, H, d), each agent's responses as they were last accepted.
    """

    def __init__(
        self,
        cuts: Sequence[tuple[int, int]],
        retry: RetryPolicy,
        guard: Guard,
        sites: Sequence[str] | None = None,
    ) -> None:
        self.cuts, self.retry, self.guard, self.sites = cuts, retry, guard, sites
        self.excluded: dict[int, str] = {}
        self.suspects: set[int] = set()
        layout = guard.layout
        self.absentees = Absentees(layout, cuts)
        self.b = np.zeros((layout.n_agents, layout.horizon, layout.dim))
        self.carries = retry.absent == "carry"
        self.notes = Notes()
        self._everyone = list(range(len(cuts)))

    def present(self) -> list[int]:
        """Cohorts that take part in the round under way."""
        if not self.excluded and not self.absentees.away:
            return self._everyone
        missing = self.excluded.keys() | self.absentees.away.keys()
        return [c for c in self._everyone if c not in missing]

    def name(self, c: int) -> str:
        """The agents of a cohort as messages name them."""
        first, agents = self.cuts[c]
        name = f"agent {first}" if agents == 1 else f"agents {first} to {first + agents - 1}"
        return name if self.sites is None else f"{self.sites[c]}'s {name}"

    def failed(
        self, c: int, error: FedLSVIError | None, request: Request, k: int, attempt: int
    ) -> None:
        """A cohort gave no usable answer: retry (return), carry it, exclude it or stop the run.

        Args:
            c: The cohort.
            error: What was wrong with its answer; None if none came.
            request: What it was asked.
            k: The round that the request belongs to.
            attempt: How often it was asked by now.

        Raises:
            TransportError: The run stops because of silence or an error at the agents.
            MessageRefused: The run stops because of a message that failed the checks.
        """
        refused = isinstance(error, MessageRefused)
        action = self.retry.refused if refused else self.retry.absent
        if action == "wait" or attempt < self.retry.attempts:
            return
        if error is None:
            what = f"no answer to {type(request).__name__} {self.retry.waited()}"
            error = TransportError(what, code="no-answer")
        guard = self.guard
        if action == "carry":
            self.absentees.lose(c, guard.round, guard.t, guard.t + guard.length)
            self.notes.add(f"{self.name(c)} carried ({error})", guard.round, k)
        elif action == "exclude":
            self.exclude(c, str(error), k)
        elif isinstance(error, Refusal):
            raise error
        else:
            raise type(error)(f"{self.name(c)}, round {k}: {error}", code=error.code)

    def exclude(self, c: int, why: str, k: int) -> None:
        """Continue without a cohort for good, because of what happened in round k."""
        self.absentees.forget(c)
        self.excluded[c] = why
        self.notes.add(f"{self.name(c)} excluded ({why})", self.guard.round, k)

    def completed(self, h: int, replies: Mapping[int, Reply]) -> list[Upload]:
        """The uploads of step h from all cohorts, in agent order; the guard takes note of them.

        An excluded cohort is represented by its withdrawal, one that is away by its last response.
        In the pass after the last round there is nothing to take note of: the data are the same.
        """
        came = [(c, replies.get(c)) for c in self._everyone]
        uploads = [r if isinstance(r, Upload) else self._stand_in(c, h) for c, r in came]
        if self.guard.exploiting:
            return uploads
        for (first, _), upload in zip(self.cuts, uploads, strict=True):
            self.guard.accept(first, upload)
        self.b[:, h - 1] = np.concatenate([upload.b for upload in uploads])
        if self.carries:
            self.absentees.accept(h, self.guard.t + self.guard.length)
        return uploads

    def _stand_in(self, c: int, h: int) -> Upload:
        """What represents a cohort that is excluded or away."""
        first, agents = self.cuts[c]
        away, exploiting = c in self.absentees.away, self.guard.exploiting
        if not away and not exploiting:
            return self.guard.withdrawal(first, agents, h)
        b = np.zeros((agents, self.guard.layout.dim))
        if away:
            b[:] = self.b[first : first + agents, h - 1]
        return Upload(h, np.zeros((agents, self.guard.gram_size(h))), b)

    def compare(self, h: int, replies: dict[int, Reply], lam: float, xi: float) -> None:
        """Look for a cohort whose data contradict those of all others; the upload of one that is
        excluded for it is dropped. One that is just back has responses to other values."""
        if len(self.cuts) < FEWEST:
            return
        fresh = {c: upload for c, upload in replies.items() if isinstance(upload, Upload)
                 and c not in self.absentees.upto}  # fmt: skip
        found = compare(self.guard, self.cuts, h, fresh, lam, xi)
        if found is not None:
            self.contradicts(found, h)
            if found.site in self.excluded:
                del replies[found.site]

    def take_back(
        self, ask: Callable[[int, Request, int], tuple[bool, Reply]]
    ) -> Iterator[tuple[int, Mapping[str, int]]]:
        """Between two rounds: cohorts that answered the call repeat what they missed; those that
        have been away for too long are excluded.

        Args:
            ask: Sends a cohort a request of round k: whether an answer came, and the answer.

        Yields:
            For each cohort that is back, the scalars that travelled for each of its agents.
        """
        k = self.guard.round
        for c, lost in sorted(self.absentees.away.items()):
            if c in self.absentees.answering:
                travelled = self.absentees.take_back(c, partial(ask, c))
                if travelled:
                    self.notes.add(f"{self.name(c)} taken back, away since round {lost}", k)
                    yield c, travelled
            elif k - lost >= self.retry.carry:
                self.exclude(c, f"away for {plural(self.retry.carry, 'round')}", k)

    def contradicts(self, found: Suspect, h: int) -> None:
        """The data of a cohort contradict those of all others at step h: note it, exclude it or
        stop the run.

        Raises:
            MessageRefused: The policy is to stop.
        """
        why = (
            f"its data contradict those of all other sites at step {h}: residual "
            f"{found.residual:.3g}, at most {found.limit:.3g} expected"
        )
        c, k = found.site, self.guard.round
        if self.retry.suspicious == "fail":
            raise MessageRefused(f"{self.name(c)}, round {k}: {why}", code="contradicts-others")
        if self.retry.suspicious == "exclude":
            self.exclude(c, why, k)
        elif c not in self.suspects:
            self.suspects.add(c)
            self.notes.add(f"{self.name(c)} suspected ({why})", k)

    def missing(self) -> list[str]:
        """Who is not part of the run now, and why."""
        gone = [f"{self.name(c)} is excluded ({why})" for c, why in sorted(self.excluded.items())]
        away = sorted(self.absentees.away.items())
        return gone + [f"{self.name(c)} has been absent since round {lost}" for c, lost in away]

    def take_notes(self) -> list[str]:
        """Notes for the record of the round that has just ended."""
        k = self.guard.round - 1
        for c, lost in sorted(self.absentees.away.items()):
            if lost < k:
                self.notes.add(f"{self.name(c)} carried, away since round {lost}", k)
        return self.notes.take(k, last=self.guard.t >= self.guard.facts.episodes)

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values for a checkpoint between two rounds."""
        # b always: a run that began with another policy may be resumed with absent="carry"
        arrays, plain = {"carry.b": self.b}, dict[str, Any]()
        if self.carries:
            own, plain["carried"] = self.absentees.state()
            arrays |= own
        plain["excluded"] = {str(c): why for c, why in self.excluded.items()}
        plain["suspects"] = sorted(self.suspects)
        plain["notes"] = self.notes.state()
        return arrays, plain

    def restore(self, arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        self.b[:] = arrays["carry.b"]
        self.excluded = {int(c): why for c, why in plain["excluded"].items()}
        self.suspects = set(plain["suspects"])
        self.notes.restore(plain["notes"])
        carried = plain.get("carried")
        if carried is None:
            return
        if carried["away"] and not self.carries:
            raise InvalidSetting(
                f"{plural(len(carried['away']), 'cohort')} of this run are absent: resume it with "
                'absent="carry"',
                code="cohorts-are-away",
            )
        if self.carries:
            self.absentees.restore(arrays, carried)
