"""Cohorts that are away and will be taken back: what `absent="carry"` remembers.

A round closes without a cohort that is away: its Gram increment is zero and its response is the
last one that was accepted, so that Λ and b go on describing the same episodes of it. To come back
it starts again at the last snapshot that it surely has and carries out the synchronisations since,
each with the model of its own round. The Gram increments that Λ lacks are added to its next
upload. A cohort is a deterministic function of its requests, so a return that breaks off is simply
begun again: nothing of it was counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedlsvi.core.statistics import packed_size
from fedlsvi.protocol.messages import Layout, Model, Reply, Request, Start, Stop, Upload
from fedlsvi.protocol.transport import DOWN

Ask = Callable[[Request, int], tuple[bool, Reply]]
"""Asks a request of round k again: whether an answer came, and the answer."""


@dataclass(frozen=True)
class Past:
    """The model after round k, which ended with episode t."""

    k: int
    t: int
    w: np.ndarray  # (H, d)
    gram: np.ndarray  # (H, P)

    def requests(self) -> Iterator[Request]:
        """What the agents were asked in the round's synchronisation."""
        yield Stop(self.t)
        for h in range(len(self.w), 0, -1):
            yield Model(h, self.w[h - 1], self.gram[h - 1])


class Carried:
    """Who is away since which round, and what is needed to take them back."""

    def __init__(self, layout: Layout, cuts: Sequence[tuple[int, int]]) -> None:
        self.layout, self.cuts = layout, cuts
        self.away: dict[int, int] = {}
        """Cohort → the round in which it was lost."""
        self.awake: set[int] = set()
        """Of those that are away: who has answered the call to come back."""
        self.upto: dict[int, np.ndarray] = {}
        """Of those that are away or just back, (H,): the last episode that Λ_h has of them."""
        self.counted: dict[int, np.ndarray] = {}
        """Of these, (H,): the last episode whose upload the ledger has; a cohort that is lost once
        more before Λ has what it owed sends that again."""
        self.owed: dict[int, np.ndarray] = {}
        """Of those that are just back, (H, m, P): increments that Λ lacks."""
        self.base: dict[int, int] = {}
        """Cohort → the round after which it made the snapshot that it can start from."""
        self.past: list[Past] = []
        """Models since the earliest of those rounds."""
        self.b = np.zeros((layout.n_agents, layout.horizon, layout.dim))
        """Each agent's responses as they were last accepted."""
        self._called: dict[int, float] = {}  # when who is away was called last
        self._settled = layout.horizon + 1  # the lowest step whose uploads this round were accepted

    def sends(self, message: Request, k: int, t: int) -> None:
        """Follow the server, which has closed k rounds and t episodes."""
        match message:
            case Start(w=w, gram=gram):
                self._start, self._w, self._gram = message, w.copy(), gram.copy()
                if not self.past:
                    self.past = [Past(k, t, w.copy(), gram.copy())]
                    self.base = dict.fromkeys(range(len(self.cuts)), k)
            case Model(h=h, w=w, gram=gram):
                self._w[h - 1], self._gram[h - 1] = w, gram
                if h == 1:
                    self.past.append(Past(k, t, self._w.copy(), self._gram.copy()))
                    self._settled = self.layout.horizon + 1
                    for c in set(self.upto) - set(self.away):
                        del self.upto[c], self.counted[c], self.owed[c]

    def lose(self, c: int, k: int, t: int, end: int) -> None:
        """A cohort stays away from here on, in round k, which began after episode t; where the
        round is being synchronised, `end` is its last episode."""
        if c not in self.upto:
            steps = np.arange(1, self.layout.horizon + 1)
            self.upto[c] = np.where(steps >= self._settled, end, t)
            self.counted[c] = self.upto[c].copy()
        self.owed.pop(c, None)
        self.away[c] = k

    def forget(self, c: int) -> None:
        """A cohort will not be taken back."""
        self.awake.discard(c)
        for known in (self.away, self.upto, self.counted, self.owed, self.base, self._called):
            known.pop(c, None)

    def substitute(self, c: int, h: int) -> Upload:
        """What stands for the upload of a cohort that is away."""
        first, m = self.cuts[c]
        size = packed_size(self.layout.dim, self.layout.packing)
        return Upload(h, np.zeros((m, size)), self.b[first : first + m, h - 1].copy())

    def whole(self, c: int, upload: Upload) -> Upload:
        """An upload with what its cohort owes."""
        if c not in self.owed or not 1 <= upload.h <= self.layout.horizon:
            return upload
        return Upload(upload.h, self.owed[c][upload.h - 1] + upload.gram, upload.b)

    def accept(self, h: int, b: np.ndarray, end: int) -> None:
        """The uploads of a step, up to episode `end`, are in Λ."""
        self.b[:, h - 1], self._settled = b, h
        for c in set(self.upto) - set(self.away):
            self.upto[c][h - 1] = end

    def start(self, c: int) -> Start:
        """The message with which a cohort begins to come back."""
        (past,) = [past for past in self.past if past.k == self.base[c]]
        return replace(self._start, w=past.w, gram=past.gram, t=past.t)

    def missed(self, c: int) -> list[Past]:
        """The rounds whose synchronisations it carries out then."""
        return [past for past in self.past if past.k > self.base[c]]

    def due(self, now: float, seconds: float) -> list[int]:
        """Who is to be called now: who has not answered, nor been called for so long."""
        silent = self.away.keys() - self.awake
        due = [c for c in silent if now - self._called.get(c, -math.inf) >= seconds]
        self._called |= dict.fromkeys(due, now)
        return sorted(due)

    def take_back(self, c: int, ask: Ask) -> Counter[str]:
        """Have a cohort that is awake carry out what it missed. Returns the scalars that travelled
        for each of its agents, by category; none where it fell silent and stays away. What Λ has
        already counts neither in the sum that is owed nor as sent."""
        upto, counted, layout = self.upto[c], self.counted[c].copy(), self.layout
        size = packed_size(layout.dim, layout.packing)
        owed = np.zeros((layout.horizon, self.cuts[c][1], size))
        travelled = Counter(init=self.start(c).scalars)
        for past in self.missed(c):
            for message in past.requests():
                answered, reply = ask(message, past.k)
                if not answered:
                    self.awake.discard(c)
                    return Counter()
                travelled[DOWN[type(message)]] += message.scalars
                if isinstance(reply, Upload) and past.t > upto[reply.h - 1]:
                    owed[reply.h - 1] += reply.gram
                    if past.t > counted[reply.h - 1]:
                        counted[reply.h - 1] = past.t
                        travelled["up_stats"] += size + layout.dim
        self.counted[c] = counted
        del self.away[c], self._called[c]
        self.awake.discard(c)
        self.owed[c] = owed
        return travelled

    def kept(self, cohorts: Sequence[int]) -> None:
        """These have made a snapshot after the last round; who is not away either is excluded."""
        away = {c: k for c, k in self.base.items() if c in self.away}
        self.base = away | dict.fromkeys(cohorts, self.past[-1].k)
        first = min(self.base.values())
        self.past = [past for past in self.past if past.k >= first]

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """What a checkpoint between two rounds must hold."""
        arrays = {
            "carry.b": self.b,
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
        """Continue from what `state` gave."""
        self.b[:] = arrays["carry.b"]
        models = zip(plain["past"], arrays["carry.w"], arrays["carry.gram"], strict=True)
        self.past = [Past(k, t, w, gram) for (k, t), w, gram in models]
        self.base = {int(c): k for c, k in plain["base"].items()}
        for c, (k, upto, counted) in plain["away"].items():
            self.away[int(c)] = k
            self.upto[int(c)], self.counted[int(c)] = np.array(upto), np.array(counted)
