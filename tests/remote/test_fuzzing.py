"""Frames that somebody altered, checksum and all: whatever they say, the answer is a refusal of
this package and no other error. All 300,000 frames and 100,000 requests where CI is set.

A checksum keeps accidents away and no attacker, so most of these frames have a right one.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import problems
from fedlsvi import FedLSVI
from fedlsvi.errors import MessageRefused
from fedlsvi.protocol.messages import (
    Exploit,
    Explore,
    Keep,
    KeyRequest,
    Layout,
    MaskedUpload,
    Member,
    Model,
    Models,
    NextStates,
    Roster,
    Signal,
    SiteKey,
    Start,
    Stop,
    Upload,
)
from fedlsvi.remote import endpoint as endpoint_module
from fedlsvi.remote.codec import (
    Address,
    Failure,
    decode_reply,
    decode_request,
    encode,
    peek,
    run_id,
    split,
)
from fedlsvi.remote.endpoint_factory import EndpointFactory, endpoint_factories
from hostile_frames import LAST, OURS, mutated
from repeats import repeats

FRAMES = repeats(6_000, 300_000)
REQUESTS = repeats(1_000, 100_000)

H, D, S, AGENTS, T = 3, 4, 5, 2, LAST
LAYOUTS = [
    Layout(2 * AGENTS, H, D, "packed"),
    Layout(2 * AGENTS, H, D, "dense"),
    Layout(2 * AGENTS, H, D, "diagonal", stationary=True),
    Layout(2 * AGENTS, H, D, "packed", secure=True),
    Layout(2 * AGENTS, H, D, "packed", states=S),
    Layout(2 * AGENTS, H, D, "packed", stationary=True, secure=True, states=S),
]


def messages(layout: Layout) -> Iterator[Any]:
    """One of each kind, as this layout has them."""
    rng = np.random.default_rng(0)
    G, P = layout.matrices, layout.gram_size(layout.horizon)
    w, gram = rng.random((H, D)), rng.random((G, P))
    yield from (Start(w, gram, 8.0, 0.5, T), Explore(3), Stop(4), Keep(4), Exploit(0.0))
    yield from (Model(h, w[0], rng.random(layout.gram_size(h))) for h in (1, H))
    yield from (Models(w, gram), KeyRequest(), Failure("ValueError"), None)
    yield Signal(3, np.arange(AGENTS), np.ones(AGENTS, np.int64))
    yield Upload(H, rng.random((AGENTS, P)), rng.random((AGENTS, D)))
    keys = [(rng.bytes(32), rng.bytes(n)) for n in (100, 7)]
    yield SiteKey(*keys[0])
    yield Roster(tuple(Member(AGENTS * i, AGENTS, *key) for i, key in enumerate(keys)))
    yield MaskedUpload(1, rng.integers(0, 2**63, layout.upload_words(1), np.uint64))
    if layout.states:
        some = NextStates(np.array([0, 2]), rng.random(2))
        following = (some, NextStates(np.empty(0, np.int64), rng.random(layout.cells)))
        yield Upload(1, rng.random((AGENTS, G, P)), rng.random((AGENTS, G, D)), following)


def test_mutated_frames_raise_nothing_foreign() -> None:
    """Read as a request by a site, as a reply by the server, and as a line of several."""
    address = Address(7, 5, 3, 1, 0, AGENTS)
    frames = {layout: [encode(m, address) for m in messages(layout)] for layout in LAYOUTS}
    rng, read = random.Random(0), Counter[str]()
    for number in range(FRAMES):
        layout = LAYOUTS[number % len(LAYOUTS)]
        bad = mutated(rng.choice(frames[layout]), rng, frames[layout])
        for decode in (decode_request, decode_reply):
            with suppress(MessageRefused):
                found = decode(bad, layout)[1]
                read[type(found).__name__] += 1
        if number % 16 == 0:
            assert b"".join(split(bad)) == bad
            with suppress(MessageRefused):
                peek(bad)
    # most checks lie behind the checksum: what was altered must get there, and some of it through
    assert set(read) >= {"Start", "Model", "Upload", "Signal", "Roster", "MaskedUpload", "SiteKey"}
    assert sum(read.values()) > FRAMES // 20


class Site:
    """A site in a run, spoken to by a server that may say anything."""

    def __init__(self, factory: EndpointFactory) -> None:
        self.factory, self.endpoint = factory, factory()
        self.run = run_id(factory.plan.parameters, factory.plan.seed)
        self.epoch, self.number = 5, 0

    def frame(self, message: Any) -> bytes:
        # an altered start may have taken the highest number, or the last epoch
        turn = (self.epoch, min(self.number + 1, 2**32 - 1))
        if isinstance(message, Start) and self.number:
            turn = (min(self.epoch + 1, 2**64 - 1), 1)
        k = 1 if isinstance(message, Start) else self.endpoint._order.round
        return encode(message, Address(self.run, *turn, k, self.factory.lo, 2))

    def hear(self, frame: bytes) -> Any:
        """What it answers; a request that it carried out counts."""
        answer = self.endpoint.handle(frame)
        address, said = decode_reply(answer, self.endpoint.layout)
        if not isinstance(said, Failure):
            self.epoch, self.number = address.epoch, address.number
        return said


def talk(p: Any) -> list[Any]:
    """Two rounds, the first of which is kept."""
    upper = np.triu_indices(p.dim)
    model = [Model(h, np.full(p.dim, 0.1), 3.0 * np.eye(p.dim)[upper]) for h in (3, 2, 1)]
    gram = np.stack([p.lam * np.eye(p.dim)[upper]] * p.horizon)
    begin = Start(np.zeros((p.horizon, p.dim)), gram, p.gamma, p.beta, p.episodes)
    return [begin, Explore(3), Explore(2), Stop(4), *model, Keep(4), Explore(2), Stop(9), *model]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the traceback of each refusal in the log, and without waiting for the disk."""
    monkeypatch.setattr(endpoint_module.log, "disabled", True)
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.mark.usefixtures("quick")
def test_hostile_requests_raise_nothing_foreign(tmp_path: Path) -> None:
    """At every position of two rounds each request is answered and each refusal is one of this
    package. Then a later server begins anew, and hears what a site says that nobody disturbed."""
    learner = FedLSVI(n_agents=4, gamma=8.0, beta=0.5, lam=0.5)
    plan = learner.prepare(problems.simplex().envs, T, 1).plan
    requests, said, rng = talk(plan.parameters), Counter[str](), random.Random(1)
    undisturbed = site(plan, tmp_path / "undisturbed")
    expected = [repr(undisturbed.hear(undisturbed.frame(m))) for m in requests]
    undisturbed.endpoint.close()
    storms = repeats(2, 20)
    for storm in range(storms):
        victim = site(plan, tmp_path / f"{storm}")
        for message in requests:
            frames: list[bytes] = []
            for _ in range(REQUESTS // storms // len(requests) + 1):
                frames = frames or [victim.frame(m) for m in requests]
                answer = victim.hear(mutated(rng.choice(frames), rng, frames))
                kind = answer.name if isinstance(answer, Failure) else "answered"
                assert kind in OURS | {"answered"}, kind
                said[kind] += 1
                if kind == "answered":  # the conversation has gone on
                    frames = []
            victim.hear(victim.frame(message))
        if victim.epoch < 2**64 - 1:
            assert [repr(victim.hear(victim.frame(m))) for m in requests] == expected
        victim.endpoint.close()
    assert said.total() >= REQUESTS
    assert said["MessageRefused"] > REQUESTS // 2
    assert said["answered"] > 0


def site(plan: Any, folder: Path) -> Site:
    return Site(endpoint_factories(plan, 2, folder, durable=False, threads=1)[0])
