"""Cohorts that give no usable answer over frames: what the retry policy makes of them.

A cohort is one process, so it is excluded as a whole: whoever answers for one of its agents answers
for all. Excluding it takes back every increment that it ever contributed, so that from then on the
model is the one that the other agents would have learned from those episodes alone.

With `absent="carry"` a cohort that is away keeps what it contributed (`remote.absentees`). What
both mean for a round is in `protocol.membership`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from secrets import token_bytes
from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.core.statistics import factorise, identity, unpack
from fedlsvi.errors import FedLSVIError, InvalidSetting, MessageRefused, TransportError
from fedlsvi.protocol.membership import Membership, span
from fedlsvi.protocol.messages import Reply, Request, Upload
from fedlsvi.remote.absentees import Absentees
from fedlsvi.remote.contributed import Ahead, Contributed, nothing
from fedlsvi.remote.contribution import contributions
from fedlsvi.remote.guard import Guard, Refusal
from fedlsvi.remote.retry_policy import RetryPolicy
from fedlsvi.remote.suspicion import FEWEST, SECRET_BYTES, Suspect, compare, compares

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


class Reachability:
    """Finds out which cohorts are away or excluded, and what happens when one fails.

    Args:
        membership: Who takes part; this object enters who does not.
        retry: What to do about a cohort that fails.
        guard: The server's checks, which know the round under way.
        sites: The name of each cohort's site, where sites have names.

    Attributes:
        absentees: Cohorts that are away and may come back.
        contributed: In one trip, what each cohort brought into the sums.
        carries: Whether the run continues without absent cohorts until they come back.
        suspects: Cohorts whose data contradicted those of all others, and who were only noted.
        notes: Anomalies for the records of rounds.
    """

    def __init__(
        self,
        membership: Membership,
        retry: RetryPolicy,
        guard: Guard,
        sites: Sequence[str] | None = None,
    ) -> None:
        self.membership, self.cuts = membership, membership.cuts
        self.retry, self.guard, self.sites = retry, guard, sites
        self.suspects: set[int] = set()
        self.absentees = Absentees(guard.layout, membership)
        self.contributed = Contributed(guard.layout)
        self.carries = retry.absent == "carry"
        self.notes = Notes()
        self._secret = token_bytes(SECRET_BYTES)  # no site may know when it is compared

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
            self.absentees.lose(c, guard.round, *guard.span)
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
        self.membership.excluded[c] = why
        self.notes.add(f"{self.name(c)} excluded ({why})", self.guard.round, k)

    def completed(self, h: int, replies: Mapping[int, Reply], lam: float) -> list[Upload]:
        """The uploads of step h from all cohorts, in agent order; the guard takes note of them.

        An excluded cohort is represented by its withdrawal, one that is away by its last response.
        In the pass after the last round there is nothing to take note of: the data are the same.
        Then an excluded cohort, as far as it is still in Λ, has what the others predict.
        """
        came = [(c, replies.get(c)) for c in range(len(self.cuts))]
        uploads = [r if isinstance(r, Upload) else self._stand_in(c, h) for c, r in came]
        if self.guard.exploiting:
            return self._predicted(h, uploads, lam)
        for c, ((first, _), upload) in enumerate(zip(self.cuts, uploads, strict=True)):
            for part in contributions(upload, self.guard.layout):
                self.guard.accept(first, part)
            if upload.every_step and c not in self.membership.excluded:
                self.contributed.add(c, upload)
        if not self.guard.layout.states:
            self.membership.accept(uploads)
        if self.carries:
            self.absentees.accept(h, self.guard.span[1])
        return uploads

    def _predicted(self, h: int, uploads: list[Upload], lam: float) -> list[Upload]:
        """In the pass Λ stays what it was. With b_c = G_c w, w the weights of the others, in place
        of what an excluded cohort would send, the weights are w too:

            (λI + Σ_i G_i) w = Σ_{i≠c} b_i + G_c w    where    (λI + Σ_{i≠c} G_i) w = Σ_{i≠c} b_i.
        """
        guard, layout = self.guard, self.guard.layout
        gram = unpack(guard.gram[min(h, len(guard.gram)) - 1], layout.dim, layout.packing)
        out = {c: slice(*span(self.cuts[c])) for c in self.membership.excluded}
        if not any(gram[rows].any() for rows in out.values()):
            return uploads
        b = np.concatenate([upload.b for upload in uploads])[:, : layout.dim]
        inside = np.ones(len(b), np.bool_)
        for rows in out.values():
            inside[rows] = False
        base = identity(layout.dim, lam, layout.packing)
        w = factorise(base + gram[inside].sum(axis=0)).solve(b[inside].sum(axis=0))
        for c, rows in out.items():
            own = gram[rows] * w if gram.ndim == 2 else gram[rows] @ w
            uploads[c] = replace(uploads[c], b=own)
        return uploads

    def _stand_in(self, c: int, h: int) -> Upload:
        """What represents a cohort that is excluded or away."""
        first, agents = self.cuts[c]
        layout, exploiting = self.guard.layout, self.guard.exploiting
        if layout.states:
            excluded = c in self.membership.excluded
            return self.contributed.withdraw(c, agents) if excluded else nothing(h, agents, layout)
        away, width = c in self.membership.away, layout.dim if exploiting else layout.responses
        b = np.zeros((agents, width))
        if not away and not exploiting:
            return Upload(h, -self.guard.contributed(first, agents, h), b)
        if away:
            b = self.membership.last_response(first, agents, h, width)
        return Upload(h, np.zeros((agents, self.guard.gram_size(h))), b)

    def compare(
        self, h: int, replies: dict[int, Reply], lam: float, xi: float, ahead: Ahead | None
    ) -> None:
        """Look for a cohort whose data contradict those of all others; the upload of one that is
        excluded for it is dropped. One that is just back has responses to other values, but not in
        one trip: there all are compared under the model in force."""
        if len(self.cuts) < FEWEST:
            return
        uploads = {c: upload for c, upload in replies.items() if isinstance(upload, Upload)}
        guard, H = self.guard, self.guard.layout.horizon
        if not guard.layout.states:
            fresh = {
                c: upload
                for c, upload in uploads.items()
                if c not in self.absentees.upto and self.membership.all_there(*self.cuts[c])
            }
            self._compare(h, fresh, replies, lam, xi)
        elif compares(guard, self._secret):
            assert ahead is not None  # `OneTrip` gives it
            stepwise = {c: self.contributed.responses(c, u, ahead) for c, u in uploads.items()}
            for step in range(H, 0, -1):
                there = {c: of[H - step] for c, of in stepwise.items() if c in replies}
                self._compare(step, there, replies, lam, xi)

    def _compare(
        self, h: int, fresh: Mapping[int, Upload], replies: dict[int, Reply], lam: float, xi: float
    ) -> None:
        suspect = compare(self.guard, self.cuts, h, fresh, lam, xi, self._secret)
        if suspect is not None:
            self.contradicts(suspect, h)
            if suspect.site in self.membership.excluded:
                del replies[suspect.site]

    def take_back(
        self, ask: Callable[[int, Request, int], tuple[bool, Reply]]
    ) -> Iterator[tuple[int, Mapping[str, int | np.ndarray]]]:
        """Between two rounds: cohorts that answered the call repeat what they missed; those that
        have been away for too long are excluded.

        Args:
            ask: Sends a cohort a request of round k: whether an answer came, and the answer.

        Yields:
            For each cohort that is back, the scalars that travelled for each of its agents.
        """
        k = self.guard.round
        for c, lost in sorted(self.membership.away.items()):
            if c in self.absentees.answering:
                travelled = self.absentees.take_back(c, partial(ask, c))
                if travelled:
                    self.notes.add(f"{self.name(c)} taken back, away since round {lost}", k)
                    yield c, travelled
            elif k - lost >= self.retry.carry:
                self.exclude(c, f"away for {plural(self.retry.carry, 'round')}", k)

    def contradicts(self, suspect: Suspect, h: int) -> None:
        """The data of a cohort contradict those of all others at step h: note it, exclude it or
        stop the run.

        Raises:
            MessageRefused: The policy is to stop.
        """
        late = self.guard.exploiting  # the pass belongs to the last round
        where = f"step {h} of the pass after the last round" if late else f"step {h}"
        why = (
            f"its data contradict those of all other sites at {where}: residual "
            f"{suspect.residual:.3g}, at most {suspect.limit:.3g} expected"
        )
        c, k = suspect.site, self.guard.round - late
        if self.retry.suspicious == "fail":
            raise MessageRefused(f"{self.name(c)}, round {k}: {why}", code="contradicts-others")
        if self.retry.suspicious == "exclude":
            self.exclude(c, why, k)
        elif c not in self.suspects:
            self.suspects.add(c)
            self.notes.add(f"{self.name(c)} suspected ({why})", k)

    def missing(self) -> list[str]:
        """Who is not part of the run now, and why."""
        excluded, away = (
            sorted(self.membership.excluded.items()),
            sorted(self.membership.away.items()),
        )
        gone = [f"{self.name(c)} is excluded ({why})" for c, why in excluded]
        return gone + [f"{self.name(c)} has been absent since round {lost}" for c, lost in away]

    def take_notes(self) -> list[str]:
        """Notes for the record of the round that has just ended."""
        k = self.guard.round - 1
        for c, lost in sorted(self.membership.away.items()):
            if lost < k:
                self.notes.add(f"{self.name(c)} carried, away since round {lost}", k)
        return self.notes.take(k, last=self.guard.t >= self.guard.bounds.episodes)

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values for a checkpoint between two rounds."""
        # last responses always: a run may be resumed with absent="carry" that began without
        arrays, plain = self.membership.state()
        arrays |= self.contributed.state()
        if self.carries:
            models, plain["carried"] = self.absentees.state()
            arrays |= models
        plain["excluded"] = {str(c): why for c, why in self.membership.excluded.items()}
        plain["suspects"] = sorted(self.suspects)
        plain["notes"] = self.notes.state()
        plain["compare"] = self._secret.hex()
        return arrays, plain

    def restore(self, arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        self.membership.restore(arrays, plain)
        self.contributed.restore(arrays)
        self.membership.excluded = {int(c): why for c, why in plain["excluded"].items()}
        self.suspects = set(plain["suspects"])
        self.notes.restore(plain["notes"])
        if "compare" in plain:
            self._secret = bytes.fromhex(plain["compare"])
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
