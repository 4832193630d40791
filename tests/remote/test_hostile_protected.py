"""Hostile requests to sites that hide what they send, of every kind: each is answered or refused by
this package, and whatever was asked, no mask and no noise serves for two contents.

250,000 requests for each kind where CI is set.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import problems
from fedlsvi import PEVI, FedLSVI
from fedlsvi.core.statistics import pack
from fedlsvi.core.trigger import schedule
from fedlsvi.envs import RandomMDP
from fedlsvi.logs.recording import record_episodes
from fedlsvi.logs.world import logged_worlds
from fedlsvi.privacy.protections import Protections
from fedlsvi.protocol.messages import (
    Exploit,
    Explore,
    Keep,
    KeyRequest,
    MaskedUpload,
    Member,
    Model,
    Models,
    Roster,
    Start,
    Stop,
)
from fedlsvi.protocol.plan import Plan, make_plan
from fedlsvi.remote import endpoint as endpoint_module
from fedlsvi.remote.codec import Address, Failure, decode_reply, encode
from fedlsvi.remote.release_log import ReleaseLog
from hostile_frames import LAST, OURS, mutated
from repeats import repeats
from site_endpoints import SITES, Sites

REQUESTS = repeats(1_500, 250_000)
STORMS = repeats(2, 12)
PRIVACY = {"epsilon": 5.0, "delta": 1e-6}
PROBLEM = problems.one_hot()
RECORDED = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)


PRESENT = [[0, 1, LAST // 4], [0, LAST // 2, LAST], [1, 1, LAST // 2]]
KNOWN: dict[str, Any] = {"beta": 0.5, "lam": 0.5, "rounds": 3}
PRIVATELY: dict[str, Any] = {"rounds": 3, "policy": "explore", "privacy": PRIVACY}
KINDS: dict[str, dict[str, Any]] = {
    "secure": KNOWN,
    "one trip": KNOWN | {"exchange": "one-trip"},
    "records": {},
    "private": PRIVATELY,
    "one trip, private": PRIVATELY | {"exchange": "one-trip"},
    "records, private": {"privacy": PRIVACY},
    "private without masks": PRIVATELY | {"aggregation": "exact"},
    "agents come and go": PRIVATELY | {"aggregation": "exact", "exchange": "one-trip",
                                       "present": PRESENT},
    "a floor": KNOWN | {"aggregation": "float", "gamma": 1.0, "min_round": 10},
}  # fmt: skip


def plan(kind: str) -> Plan:
    about = {"aggregation": "secure"} | KINDS[kind]
    if kind.startswith("records"):
        logs = [record_episodes(RECORDED, 20, seed=m, agent=m) for m in range(SITES)]
        reader = PEVI(SITES, **about)
        return make_plan(reader.settings, logged_worlds(logs, like=RECORDED), 20, 3)
    learner = FedLSVI(SITES, stationary=False, **about)
    return make_plan(learner.settings, PROBLEM.envs, LAST, 3, features=PROBLEM.features)


class Server(Sites):
    """Asks all sites what is due; what site 0 was asked besides is up to the test."""

    @property
    def ends(self) -> list[int]:
        """Of rounds: on the public schedule."""
        return schedule(self.p.episodes, self.p.rounds or 1, self.p.min_round).tolist()

    @property
    def positions(self) -> int:
        """How many requests a run has."""
        steps = self.p.horizon if self.p.exchange == "stepwise" else 1
        begin = 1 + (self.p.aggregation == "secure")
        return begin + len(self.ends) * (2 + steps + (not self.p.pessimistic))

    def roster(self) -> Roster:
        """Of all sites' keys, if they give them."""
        keys = self.all(KeyRequest())
        members = zip(self.endpoints, keys, strict=True)
        return Roster(tuple(
            Member(*e.agents, getattr(k, "public", bytes(32)), getattr(k, "proof", b""))
            for e, k in members
        ))  # fmt: skip

    def requests(self) -> Iterator[Any]:
        """A run: each is asked of all sites when the next is taken."""
        p = self.p
        yield self.begin()
        if p.aggregation == "secure":
            yield self.roster()
        for t in self.ends:
            if not p.pessimistic:
                yield Explore(t - self.t)
            yield Stop(t)
            if p.exchange == "one-trip":
                yield Models(self.w.copy(), pack(self.gram, p.packing).copy())
            for h in range(p.horizon if p.exchange == "stepwise" else 0, 0, -1):
                replies = self.replies
                if p.privacy is None and all(isinstance(r, MaskedUpload) for r in replies):
                    self.add(h, replies)
                yield self.model(h)
            self.round, self.t = self.round + 1, t
            yield Keep(t)

    def begin(self) -> Start:
        p = self.p
        gram = pack(self.gram, p.packing).copy()
        return Start(self.w.copy(), gram, p.gamma, p.signed_beta, p.episodes)

    def others(self) -> list[Any]:
        """Requests of every kind, to be altered."""
        p, w = self.p, self.w + 0.1
        gram = np.abs(pack(self.gram, p.packing)) + 1.0
        models = [Model(h, w[h - 1], gram[h - 1]) for h in (1, p.horizon)]
        return [*models, Models(w, gram), Explore(2), Stop(20), Keep(20), Exploit(0.0),
                KeyRequest(), self.begin()]  # fmt: skip

    def frame(self, message: Any) -> bytes:
        """The next request to site 0, as `ask` would send it."""
        epoch, number = self.turns[0]
        turn = (epoch, min(number + 1, 2**32 - 1))
        if isinstance(message, Start):
            turn = (min(epoch + 1, 2**64 - 1), 1)
        here = self.endpoints[0]
        return encode(message, Address(self.run, *turn, here._order.round, *here.agents))

    def hear(self, frame: bytes) -> str:
        """What site 0 answers to these bytes: the name of its error, or what it is."""
        address, said = decode_reply(self.endpoints[0].handle(frame), self.plan.layout)
        if isinstance(said, Failure):
            return said.name
        self.turns[0] = address.epoch, address.number
        return "answered"

    def all(self, message: Any) -> list[Any]:
        """The last epoch may be taken: then nobody can begin again."""
        self.turns = [(min(e, 2**64 - 2), min(n, 2**32 - 2)) for e, n in self.turns]
        self.replies = super().all(message)
        return self.replies


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[Any, ...], set[bytes]]:
    """Everything that left, by what names its mask, and by what names its noise; and whatever was
    written down as the answer of a round and step, which is all that there is under a floor."""
    used: dict[tuple[Any, ...], set[bytes]] = {}
    leaving, use = Protections.leaving, ReleaseLog.use

    def recorded(self: Protections, upload: Any, words: np.ndarray, at: Any) -> Any:
        content = sha256(words.data).digest()
        if self.masks is not None:
            mask = ("mask", self._agents, self.masks.membership, at.round, upload.h, at.asked)
            used.setdefault(mask, set()).add(content)
        if self.noise is not None:
            used.setdefault(("noise", self._agents, at.release, upload.h), set()).add(content)
        return leaving(self, upload, words, at)

    def answered(self: ReleaseLog, round_: int, step: int, asked: bytes, content: bytes) -> None:
        use(self, round_, step, asked, content)
        used.setdefault(("answer", self.agents, round_, step), set()).add(content)

    monkeypatch.setattr(Protections, "leaving", recorded)
    monkeypatch.setattr(ReleaseLog, "use", answered)
    return used


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_requests_raise_nothing_foreign_and_hide_nothing_twice(
    kind: str, tmp_path: Path, hidden: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every position of a run. Site 0 also restarts in between."""
    monkeypatch.setattr(endpoint_module.log, "disabled", True)
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    rng, said, made = random.Random(kind), Counter[str](), plan(kind)
    for storm in range(STORMS):
        hidden.clear()
        server = Server(made, tmp_path / f"{storm}")
        each = REQUESTS // STORMS // server.positions + 1
        for message in server.requests():
            frames: list[bytes] = []
            for _ in range(each):
                frames = frames or [server.frame(m) for m in [message, *server.others()]]
                kind_of = server.hear(mutated(rng.choice(frames), rng, frames))
                assert kind_of in OURS | {"answered"}, kind_of
                said[kind_of] += 1
                if kind_of == "answered":
                    frames = []
            if rng.random() < 0.2:
                server.restart(0)
            server.all(message)
        server.close()
        assert all(len(contents) == 1 for contents in hidden.values())
    assert said.total() >= REQUESTS
    assert said["MessageRefused"] > said.total() // 2
    assert said["answered"] > 0
