"""Cohorts that are away and may come back (`absent="carry"`).

A cohort that is away keeps what it contributed. A round closes without it: its Gram increment is
zero and its response is the last one that was accepted, so that Λ and b keep describing the same
episodes of it. To come back it starts from the last snapshot that it surely has and repeats the
synchronisations since, each with the model of its own round; that of the logs is one of them. The
increments that the sums lack are added to its next upload: those of Λ, and in one trip of u and N,
with which the server had fresh responses of it meanwhile. A cohort is a deterministic function of
its requests, so a return that fails is simply repeated: nothing of it was counted, and noise of a
private run is that of the same rounds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedlsvi.protocol.membership import Membership
from fedlsvi.protocol.messages import (
    Exploit,
    Layout,
    Model,
    Models,
    Reply,
    Request,
    Start,
    Stop,
    Upload,
    gram_of,
)
from fedlsvi.protocol.transport import DOWN
from fedlsvi.remote.contributed import added

Ask = Callable[[Request, int], tuple[bool, Reply]]
"""Sends a request of round k again: whether an answer came, and the answer."""


@dataclass(frozen=True)
class RoundModel:
    """The model after round k, which ended with episode t."""

    k: int
    t: int
    w: np.ndarray  # (H, d)
    gram: np.ndarray  # (H, P) or (1, P)

    def requests(self, one_trip: bool) -> Iterator[Request]:
        """What the agents were asked in the round's synchronisation."""
        yield Stop(self.t)
        if one_trip:
            yield Models(self.w, self.gram)
            return
        H = len(self.w)
        for h in range(H, 0, -1):
            yield Model(h, self.w[h - 1], gram_of(self.gram, h, H))


class Absentees:
    """Cohorts that are away since some round, and what is needed to take them back.

    Attributes:
        answering: Those cohorts that are away and have answered the call to come back.
        upto: For cohorts that are away or just back, (H,): the last episode that Λ_h has of them;
            0 is the round of the logs, and −1 the time before.
        heard: For the same, (H, m): the last episode of the last round in Λ_h that each agent was
            in by schedule.
        counted: For the same, (H,): the last episode whose upload the ledger has. A cohort that is
            lost once more before Λ has what it owed sends that again.
        owed: For cohorts that are just back, step → increments that the sums lack.
        late: For the same, step → (m, …), responses of the last round that it repeated in which
            each agent was there by schedule; NaN where there is none.
        base: Cohort → the round after which it made the snapshot that it can start from.
        past: Models since the earliest of those rounds.
    """

    def __init__(self, layout: Layout, membership: Membership) -> None:
        self.layout, self.membership = layout, membership
        self.answering: set[int] = set()
        self.upto: dict[int, np.ndarray] = {}
        self.heard: dict[int, np.ndarray] = {}
        self.counted: dict[int, np.ndarray] = {}
        self.owed: dict[int, dict[int, Upload]] = {}
        self.late: dict[int, dict[int, np.ndarray]] = {}
        self.base: dict[int, int] = {}
        self.past: list[RoundModel] = []
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
                    self.base = dict.fromkeys(range(len(self.membership.cuts)), k)
            case Exploit():
                self._over = True  # the models that follow are of no round
            case Model(h=h, w=w, gram=gram) if not self._over:
                self._w[h - 1] = w
                gram_of(self._gram, h, self.layout.horizon)[:] = gram
                if h == 1:
                    self._closed(RoundModel(k, t, self._w.copy(), self._gram.copy()))
            case Models(w=w, gram=gram) if not self._over:
                self._closed(RoundModel(k, t, w, gram))

    def _closed(self, model: RoundModel) -> None:
        """A round has ended, and who is there has sent all that it owed."""
        self.past.append(model)
        self._settled = self.layout.horizon + 1
        for c in set(self.upto) - set(self.membership.away):
            for facts in (self.upto, self.heard, self.counted, self.owed, self.late):
                facts.pop(c, None)

    def lose(self, c: int, k: int, t: int, end: int) -> None:
        """A cohort is away from now on.

        Args:
            c: The cohort.
            k: The round under way, which began after episode t.
            t: The last episode of the round before; 0 of that of the logs, −1 before it.
            end: The last episode of round k, if it is being synchronised.
        """
        if c not in self.upto:
            settled = np.arange(1, self.layout.horizon + 1) >= self._settled
            self.upto[c] = np.where(settled, end, t)
            self.heard[c] = np.stack(
                [self.membership.last_round(c, t, end if done else None) for done in settled]
            )
            self.counted[c] = self.upto[c].copy()
        self.owed.pop(c, None)
        self.late.pop(c, None)
        self.membership.away[c] = k

    def forget(self, c: int) -> None:
        """A cohort will not be taken back."""
        self.answering.discard(c)
        self.membership.away.pop(c, None)
        known = (self.upto, self.heard, self.counted, self.owed, self.late, self.base, self._called)
        for facts in known:
            facts.pop(c, None)

    def with_owed(self, c: int, upload: Upload) -> Upload:
        """An upload together with what its cohort, which is just back, owes."""
        owed = self.owed[c].get(upload.h)
        if owed is None:
            return upload
        if not upload.every_step:
            upload = Upload(upload.h, upload.gram, self._with_late(c, upload), fit=upload.fit)
        return added(owed, upload, self.layout)

    def _with_late(self, c: int, upload: Upload) -> np.ndarray:
        """Responses of an upload in which those of agents that are away by schedule, but were there
        in a round that their cohort has repeated, are of the same episodes as what it owes."""
        late, attendance = self.late[c].get(upload.h), self.membership.attendance
        if late is None or attendance is None:
            return upload.b
        first, agents = self.membership.cuts[c]
        rows = ~np.isin(np.arange(first, first + agents), attendance.there)
        rows &= ~np.isnan(late).any(axis=1)
        return np.where(rows[:, None], late, upload.b)

    def accept(self, h: int, end: int) -> None:
        """The uploads of step h up to episode `end` are in Λ."""
        self._settled = h
        for c in set(self.upto) - set(self.membership.away):
            self.upto[c][self._rows(h)] = end

    def _rows(self, h: int) -> slice:
        """Of an array by steps, those that an upload of step h is for."""
        return slice(None) if self.layout.states else slice(h - 1, h)

    def start(self, c: int) -> Start:
        """The message with which a cohort begins to come back."""
        (past,) = [past for past in self.past if past.k == self.base[c]]
        return replace(self._start, w=past.w, gram=past.gram, t=past.t)

    def due(self, now: float, seconds: float) -> list[int]:
        """Cohorts to call now: silent ones that were not called for so many seconds."""
        silent = self.membership.away.keys() - self.answering
        due = [c for c in silent if now - self._called.get(c, -math.inf) >= seconds]
        self._called |= dict.fromkeys(due, now)
        return sorted(due)

    def take_back(self, c: int, ask: Ask) -> Mapping[str, int | np.ndarray]:
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
        owed: dict[int, Upload] = {}
        late: dict[int, np.ndarray] = {}
        began = 0
        travelled: dict[str, int | np.ndarray] = defaultdict(int, init=self.start(c).scalars)
        for past in self.past:
            there = self.membership.there_in(past.k, began, c)
            began = past.t
            for message in past.requests(layout.states > 0) if past.k > self.base[c] else ():
                answered, reply = ask(message, past.k)
                if not answered:
                    self.answering.discard(c)
                    return {}
                travelled[DOWN[type(message)]] += message.scalars
                if isinstance(reply, Upload) and past.t > upto[reply.h - 1]:
                    missing = np.full_like(reply.b, np.nan)
                    late.setdefault(reply.h, missing)[there] = reply.b[there]
                    before = owed.get(reply.h)
                    owed[reply.h] = reply if before is None else added(before, reply, layout)
                    if past.t > counted[reply.h - 1]:
                        counted[self._rows(reply.h)] = past.t
                        travelled["up_stats"] += of_each_agent(reply)
        self.counted[c] = counted
        del self.membership.away[c], self._called[c]
        self.answering.discard(c)
        self.owed[c], self.late[c] = owed, late
        return travelled

    def snapshots_made(self, cohorts: Sequence[int]) -> None:
        """These made a snapshot after the last round; others that are not away are excluded."""
        away = {c: k for c, k in self.base.items() if c in self.membership.away}
        self.base = away | dict.fromkeys(cohorts, self.past[-1].k)
        first = min(self.base.values())
        self.past = [past for past in self.past if past.k >= first]

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values for a checkpoint between two rounds."""
        arrays = {
            "carry.w": np.stack([past.w for past in self.past]),
            "carry.gram": np.stack([past.gram for past in self.past]),
        }
        return arrays, {
            "past": [[past.k, past.t] for past in self.past],
            "base": {str(c): k for c, k in self.base.items()},
            "away": {
                str(c): [k, *(by[c].tolist() for by in (self.upto, self.counted, self.heard))]
                for c, k in self.membership.away.items()
            },
        }

    def restore(self, arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        models = zip(plain["past"], arrays["carry.w"], arrays["carry.gram"], strict=True)
        self.past = [RoundModel(k, t, w, gram) for (k, t), w, gram in models]
        self.base = {int(c): k for c, k in plain["base"].items()}
        for c, (k, *by_step) in plain["away"].items():
            self.membership.away[int(c)] = k
            for by, array in zip((self.upto, self.counted, self.heard), by_step, strict=True):
                by[int(c)] = np.array(array)


def of_each_agent(upload: Upload) -> int | np.ndarray:
    """Scalars of each agent in an upload."""
    alike = (upload.gram.size + upload.b.size) // len(upload.b)
    if not upload.every_step:
        return alike
    return alike + np.array([table.scalars for table in upload.following])
