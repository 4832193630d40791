"""Cohorts that are away and may come back (`absent="carry"`).

A cohort that is away keeps what it contributed. A round closes without it: its Gram increment is
zero and its response is the last one that was accepted, so that Λ and b keep describing the same
episodes of it. To come back it starts from the last snapshot that it surely has and repeats the
synchronisations since, each with the model of its own round. The Gram increments that Λ lacks are
added to its next upload. A cohort is a deterministic function of its requests, so a return that
fails is simply repeated: nothing of it was counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

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

Ask = Callable[[Request, int], tuple[bool, Reply]]
"""Sends a request of round k again: whether an answer came, and the answer."""


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

    def with_owed(self, c: int, upload: Upload) -> Upload:
        """An upload together with what its cohort, which is just back, owes."""
        if not 1 <= upload.h <= self.layout.horizon:
            return upload
        owed = gram_of(self.owed[c], upload.h, self.layout.horizon)
        return Upload(upload.h, owed + upload.gram, upload.b)

    def accept(self, h: int, end: int) -> None:
        """The uploads of step h up to episode `end` are in Λ."""
        self._settled = h
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
        """Arrays and plain values for a checkpoint between two rounds."""
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
