"""Who takes part in a run over frames: cohorts that are present, away or excluded.

A cohort is one process, so it is excluded as a whole: whoever answers for one of its agents answers
for all. Excluding it takes back every increment that it ever contributed, so that from then on the
model is the one that the other agents would have learned from those episodes alone.

With `absent="carry"` a cohort that is away keeps what it contributed. A round closes without it:
its Gram increment is zero and its response is the last one that was accepted, so that Λ and b keep
describing the same episodes of it. To come back it starts from the last snapshot that it surely has
and repeats the synchronisations since, each with the model of its own round. The Gram increments
that Λ lacks are added to its next upload. A cohort is a deterministic function of its requests, so
a return that fails is simply repeated: nothing of it was counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.errors import FedLSVIError, InvalidSetting, MessageRefused, TransportError
from fedlsvi.protocol.messages import (
    Exploit,
    Layout,
    Model,
    Reply,
    Request,
    Start,
    Stop,
    Upload,
    gram_of,
)
from fedlsvi.protocol.transport import DOWN
from fedlsvi.remote.guard import Guard, Refusal
from fedlsvi.remote.retry_policy import RetryPolicy
from fedlsvi.remote.suspicion import Suspect

Ask = Callable[[Request, int], tuple[bool, Reply]]
"""Sends a request of round k again: whether an answer came, and the answer."""

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


@dataclass(frozen=True)
class RoundModel:
    """The model after round k, which ended with episode t."""

    k: int
    t: int
    w: np.ndarray  # (H, d)
    gram: np.ndarray  # (H, P) or (1, P)

    def requests(self) -> Iterator[Request]:
        """What the agents were asked in the round's synchronisation."""
        yield Stop(self.t)
        H = len(self.w)
        for h in range(H, 0, -1):
            yield Model(h, self.w[h - 1], gram_of(self.gram, h, H))


class Absentees:
    """Cohorts that are away since some round, and what is needed to take them back.

    Attributes:
        away: Cohort → the first round that it missed.
        answering: Those of them that have answered the call to come back.
        upto: For cohorts that are away or just back, (H,): the last episode that Λ_h has of them.
        counted: For the same, (H,): the last episode whose upload the ledger has. A cohort that is
            lost once more before Λ has what it owed sends that again.
        owed: For cohorts that are just back, (H, m, P) or, where steps share Λ, (1, m, P):
            increments that Λ lacks.
        base: Cohort → the round after which it made the snapshot that it can start from.
        past: Models since the earliest of those rounds.
        b: (M, H, d), each agent's responses as they were last accepted.
    """

    def __init__(self, layout: Layout, cuts: Sequence[tuple[int, int]]) -> None:
        self.layout, self.cuts = layout, cuts
        self.away: dict[int, int] = {}
        self.answering: set[int] = set()
        self.upto: dict[int, np.ndarray] = {}
        self.counted: dict[int, np.ndarray] = {}
        self.owed: dict[int, np.ndarray] = {}
        self.base: dict[int, int] = {}
        self.past: list[RoundModel] = []
        self.b = np.zeros((layout.n_agents, layout.horizon, layout.dim))
        self._over = False
        self._called: dict[int, float] = {}  # when each was last called
        self._settled = layout.horizon + 1  # the lowest step whose uploads this round were accepted

    def follow(self, message: Request, k: int, t: int) -> None:
        """The server, which has closed k rounds and t episodes, sends this."""
        match message:
            case Start(w=w, gram=gram):
                self._start, self._w, self._gram = message, w.copy(), gram.copy()
                self._over = False
                if not self.past:
                    self.past = [RoundModel(k, t, w.copy(), gram.copy())]
                    self.base = dict.fromkeys(range(len(self.cuts)), k)
            case Exploit():
                self._over = True  # the models that follow are of no round
            case Model(h=h, w=w, gram=gram) if not self._over:
                self._w[h - 1] = w
                gram_of(self._gram, h, self.layout.horizon)[:] = gram
                if h == 1:
                    self.past.append(RoundModel(k, t, self._w.copy(), self._gram.copy()))
                    self._settled = self.layout.horizon + 1
                    for c in set(self.upto) - set(self.away):
                        del self.upto[c], self.counted[c], self.owed[c]

    def lose(self, c: int, k: int, t: int, end: int) -> None:
        """A cohort is away from now on.

        Args:
            c: The cohort.
            k: The round under way, which began after episode t.
            t: The last episode of the round before.
            end: The last episode of round k, if it is being synchronised.
        """
        if c not in self.upto:
            steps = np.arange(1, self.layout.horizon + 1)
            self.upto[c] = np.where(steps >= self._settled, end, t)
            self.counted[c] = self.upto[c].copy()
        self.owed.pop(c, None)
        self.away[c] = k

    def forget(self, c: int) -> None:
        """A cohort will not be taken back."""
        self.answering.discard(c)
        for known in (self.away, self.upto, self.counted, self.owed, self.base, self._called):
            known.pop(c, None)

    def substitute(self, c: int, h: int) -> Upload:
        """What stands for the upload of a cohort that is away."""
        first, m = self.cuts[c]
        gram = np.zeros((m, self.layout.gram_size(h)))
        return Upload(h, gram, self.b[first : first + m, h - 1].copy())

    def with_owed(self, c: int, upload: Upload) -> Upload:
        """An upload together with what its cohort owes."""
        if c not in self.owed or not 1 <= upload.h <= self.layout.horizon:
            return upload
        owed = gram_of(self.owed[c], upload.h, self.layout.horizon)
        return Upload(upload.h, owed + upload.gram, upload.b)

    def accept(self, h: int, b: np.ndarray, end: int) -> None:
        """The uploads of step h up to episode `end`, with responses b (M, d), are in Λ."""
        self.b[:, h - 1], self._settled = b, h
        for c in set(self.upto) - set(self.away):
            self.upto[c][h - 1] = end

    def start(self, c: int) -> Start:
        """The message with which a cohort begins to come back."""
        (past,) = [past for past in self.past if past.k == self.base[c]]
        return replace(self._start, w=past.w, gram=past.gram, t=past.t)

    def due(self, now: float, seconds: float) -> list[int]:
        """Cohorts to call now: silent ones that were not called for so many seconds."""
        silent = self.away.keys() - self.answering
        due = [c for c in silent if now - self._called.get(c, -math.inf) >= seconds]
        self._called |= dict.fromkeys(due, now)
        return sorted(due)

    def take_back(self, c: int, ask: Ask) -> Counter[str]:
        """Have a cohort that answers repeat what it missed.

        What Λ already has enters neither the sum that is owed nor the scalars.

        Args:
            c: The cohort.
            ask: Sends it a request and returns its answer.

        Returns:
            Scalars that travelled for each of its agents, by category; empty if it fell silent and
            stays away.
        """
        upto, counted, layout = self.upto[c], self.counted[c].copy(), self.layout
        owed = np.zeros((layout.matrices, self.cuts[c][1], layout.packed))
        travelled = Counter(init=self.start(c).scalars)
        for past in self.past:
            for message in past.requests() if past.k > self.base[c] else ():
                answered, reply = ask(message, past.k)
                if not answered:
                    self.answering.discard(c)
                    return Counter()
                travelled[DOWN[type(message)]] += message.scalars
                if isinstance(reply, Upload) and past.t > upto[reply.h - 1]:
                    own = gram_of(owed, reply.h, layout.horizon)
                    own += reply.gram
                    if past.t > counted[reply.h - 1]:
                        counted[reply.h - 1] = past.t
                        travelled["up_stats"] += layout.gram_size(reply.h) + layout.dim
        self.counted[c] = counted
        del self.away[c], self._called[c]
        self.answering.discard(c)
        self.owed[c] = owed
        return travelled

    def snapshots_made(self, cohorts: Sequence[int]) -> None:
        """These made a snapshot after the last round; others that are not away are excluded."""
        away = {c: k for c, k in self.base.items() if c in self.away}
        self.base = away | dict.fromkeys(cohorts, self.past[-1].k)
        first = min(self.base.values())
        self.past = [past for past in self.past if past.k >= first]

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values for a checkpoint between two rounds, apart from `b`."""
        arrays = {
            "carry.w": np.stack([past.w for past in self.past]),
            "carry.gram": np.stack([past.gram for past in self.past]),
        }
        return arrays, {
            "past": [[past.k, past.t] for past in self.past],
            "base": {str(c): k for c, k in self.base.items()},
            "away": {
                str(c): [k, self.upto[c].tolist(), self.counted[c].tolist()]
                for c, k in self.away.items()
            },
        }

    def restore(self, arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        models = zip(plain["past"], arrays["carry.w"], arrays["carry.gram"], strict=True)
        self.past = [RoundModel(k, t, w, gram) for (k, t), w, gram in models]
        self.base = {int(c): k for c, k in plain["base"].items()}
        for c, (k, upto, counted) in plain["away"].items():
            self.away[int(c)] = k
            self.upto[int(c)], self.counted[int(c)] = np.array(upto), np.array(counted)


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
        self.absentees = Absentees(guard.layout, cuts)
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

    def contradicts(self, found: Suspect, h: int) -> None:
        """The data of a cohort contradict those of all others at step h: note it, exclude it or
        stop the run.

        Raises:
            MessageRefused: The policy is to stop.
        """
        why = (
            f"its data contradict those of all others at step {h}: residual {found.residual:.3g}, "
            f"at most {found.limit:.3g} expected"
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
        return gone + [f"{self.name(c)} is away since round {lost}" for c, lost in away]

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
        arrays, plain = {"carry.b": self.absentees.b}, dict[str, Any]()
        if self.carries:
            own, plain["carried"] = self.absentees.state()
            arrays |= own
        plain["excluded"] = {str(c): why for c, why in self.excluded.items()}
        plain["suspects"] = sorted(self.suspects)
        plain["notes"] = self.notes.state()
        return arrays, plain

    def restore(self, arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        self.absentees.b[:] = arrays["carry.b"]
        self.excluded = {int(c): why for c, why in plain["excluded"].items()}
        self.suspects = set(plain["suspects"])
        self.notes.restore(plain["notes"])
        carried = plain.get("carried")
        if carried is None:
            return
        if carried["away"] and not self.carries:
            raise InvalidSetting(
                f"{plural(len(carried['away']), 'cohort')} of this run are away: resume it with "
                'absent="carry"',
                code="cohorts-are-away",
            )
        if self.carries:
            self.absentees.restore(arrays, carried)
