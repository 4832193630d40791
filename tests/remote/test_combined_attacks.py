"""A server that tries everything at once, on real endpoints, and what it can read in the end.

All it gets from sites is words with masks on them. It can read data from a combination of them only
where the masks cancel, so the test computes every combination in which they do: the kernel of the
masks' lowest bits, over the field with two elements. (A relation modulo 2^64 is one modulo 2, after
as many divisions by 2 as its coefficients allow.) Each must be the sum of all sites' answers to the
same request, and all such sums of one round and step must be the same numbers.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlsvi import FedLSVI
from fedlsvi.core.statistics import pack
from fedlsvi.core.trigger import schedule
from fedlsvi.envs import RandomMDP
from fedlsvi.errors import InvalidInput
from fedlsvi.privacy.masks import new_private_key, public_key
from fedlsvi.privacy.protections import Protections
from fedlsvi.protocol.messages import (
    Explore,
    Keep,
    KeyRequest,
    MaskedUpload,
    Member,
    Model,
    Roster,
    SiteKey,
    Start,
    Stop,
)
from fedlsvi.protocol.plan import Plan, make_plan
from fedlsvi.remote import endpoint as endpoint_module
from fedlsvi.remote.codec import Failure
from repeats import repeats
from site_endpoints import SITES, Sites

SERVERS = repeats(6, 40)
ENV = RandomMDP(n_states=30, n_actions=4, horizon=2, seed=5)
"""More words in an upload than a server gets uploads."""

Answer = tuple[Any, np.ndarray, np.ndarray]
"""What was asked of whom, what left, and the mask that hid it."""


def plan(**about: Any) -> Plan:
    learner = FedLSVI(SITES, aggregation="secure", beta=0.5, lam=0.5, stationary=False, **about)
    return make_plan(learner.settings, ENV, 40, 3)


class Deviating(Sites):
    """Moves of a server: honest ones, and all attacks of which we know."""

    def __init__(self, made: Plan, folder: Path, rng: np.random.Generator) -> None:
        super().__init__(made, folder)
        self.rng, self.kept = rng, [(self.w.copy(), self.gram.copy(), 1, 0)]
        self.uploads: list[Any] = []

    def draw(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def some(self) -> list[int]:
        return [c for c in range(SITES) if self.rng.random() < 0.7]

    def ask(self, c: int, message: Any, round_: int | None = None) -> Any:
        """A request that was refused is not counted, so the next one has its number."""
        turn = self.turns[c]
        reply = super().ask(c, message, round_)
        if isinstance(reply, Failure) and not isinstance(message, Start):
            self.turns[c] = turn
        return reply

    def back(self) -> None:
        """From the beginning, or from a snapshot, with keys that are the sites' own or not."""
        self.w, self.gram, self.round, self.t = (np.copy(x) for x in self.draw(*self.kept))
        self.round, self.t = int(self.round), int(self.t)
        p = self.p
        gram = pack(self.gram, p.packing).copy()
        self.all(Start(self.w.copy(), gram, p.gamma, p.signed_beta, p.episodes, self.t))
        keys = [key for key in self.all(KeyRequest()) if isinstance(key, SiteKey)]
        members = [
            Member(*e.agents, k.public, k.proof) for e, k in zip(self.endpoints, keys, strict=False)
        ]
        swapped = [Member(m.first, m.agents, public_key(new_private_key()), m.proof)
                   if self.rng.random() < 0.3 else m for m in members]  # fmt: skip
        for c in range(SITES):
            if self.rng.random() < 0.2:
                self.ask(c, Roster(tuple(self.draw(swapped, members[:2], members[::-1]))))
            self.ask(c, Roster(tuple(members if self.rng.random() < 0.97 else swapped)))

    def stop(self) -> None:
        """The same end for all, or one for each."""
        ends = schedule(self.p.episodes, self.p.rounds or 4)
        later = [int(t) for t in ends if t > self.t] or [self.p.episodes]
        t = later[0] if self.rng.random() < 0.9 else self.draw(*later)
        different = self.rng.random() < 0.1
        self.uploads = [
            self.ask(c, Stop(t + int(self.rng.integers(1, 5)) * (different and c == 0)))
            for c in range(SITES)
        ]
        self.asked = t

    def models(self) -> None:
        """Backward through the steps; on the way some site may get another model, or a second."""
        for h in range(self.p.horizon, 0, -1):
            before = self.gram[h - 1].copy()
            if all(isinstance(upload, MaskedUpload) for upload in self.uploads):
                try:
                    self.add(h, self.uploads)
                except InvalidInput:  # noise: it goes on with what it had
                    self.gram[h - 1] = before
            honest, w, gram = self.model(h), self.w[h - 1].copy(), self.gram[h - 1].copy()
            pair = int(self.rng.integers(self.p.dim))
            w[pair] = min(0.3, abs(w[pair]) + 0.1)
            gram[pair] += self.draw(0.0, 0.5, 1e90)
            question = Model(h, w, pack(gram, self.p.packing).copy())
            asked = [question if self.rng.random() < 0.06 else honest for _ in range(SITES)]
            self.uploads = [self.ask(c, message) for c, message in enumerate(asked)]
            if self.rng.random() < 0.3:
                for c in self.some():
                    self.again(c, question)
            if self.rng.random() < 0.2:
                self.restart(*self.some())
        self.round, self.t = self.round + 1, self.asked

    def keep(self) -> None:
        self.all(Keep(self.t))
        self.kept.append((self.w.copy(), self.gram.copy(), self.round, self.t))

    def other(self) -> None:
        """Something out of order, of some sites, under a round number of the server's choice."""
        k = self.draw(self.round, self.round + 1, 1, 7777)
        for c in self.some():
            message = self.draw(Stop(self.t + 1), Explore(3), Keep(self.t), KeyRequest(),
                                self.model(1), self.model(2), Stop(self.p.episodes))  # fmt: skip
            self.ask(c, message, k)

    def play(self) -> None:
        for _ in range(6):
            self.back()
            for _ in range(int(self.rng.integers(1, 5))):
                if self.rng.random() < 0.3:
                    self.other()
                self.stop()
                self.models()
                if self.rng.random() < 0.6:
                    self.keep()


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Answer]:
    """All uploads that left the sites, with what only the test can see: their masks."""
    made: list[Answer] = []
    leaving = Protections.leaving

    def recorded(self: Protections, upload: Any, words: np.ndarray, at: Any) -> Any:
        sent = leaving(self, upload, words, at)
        assert isinstance(sent, MaskedUpload)
        assert self.masks is not None
        asked = (at.round, upload.h, at.asked, self.masks.membership)
        made.append(((self._agents[0], asked), words[0].copy(), sent.words - words[0]))
        return sent

    monkeypatch.setattr(Protections, "leaving", recorded)
    monkeypatch.setattr(endpoint_module.log, "disabled", True)
    return made


def kernel(rows: np.ndarray) -> list[set[int]]:
    """A basis of the sets of rows that add up to zero modulo 2."""
    pivots: dict[int, tuple[int, int]] = {}
    basis = []
    for i, row in enumerate(rows):
        value, which = int("".join(map(str, row.tolist())), 2), 1 << i
        while value:
            top = value.bit_length()
            if top not in pivots:
                pivots[top] = value, which
                break
            value, which = value ^ pivots[top][0], which ^ pivots[top][1]
        else:
            basis.append({j for j in range(i + 1) if which >> j & 1})
    return basis


@pytest.mark.parametrize("ends", ["public", "data"])
def test_masks_cancel_in_lawful_sums_and_nowhere_else(
    ends: str, tmp_path: Path, answers: list[Answer]
) -> None:
    sums = noise = 0
    for seed in range(SERVERS):
        answers.clear()
        made = plan(rounds=4) if ends == "public" else plan(gamma=60.0)
        server = Deviating(made, tmp_path / f"{seed}", np.random.default_rng(seed))
        server.play()
        server.close()
        unique = {(who, words.tobytes(), mask.tobytes()): (who, words, mask)
                  for who, words, mask in answers}.values()  # fmt: skip
        seen = {(who, mask.tobytes()) for who, _, mask in unique}
        assert len(seen) == len(unique)  # no mask hides a second content
        rows = list(unique)
        bits = np.stack([mask & np.uint64(1) for *_, mask in rows])
        assert len(rows) < bits.shape[1]
        totals: dict[tuple[int, int], set[bytes]] = {}
        asked = [who[1] for who, *_ in rows]
        complete = [a for a in set(asked) if asked.count(a) == SITES]
        relations = kernel(bits)
        assert len(relations) == len(complete)
        for relation in relations:
            assert {asked.count(asked[i]) for i in relation} == {SITES}
        for a in complete:
            parts = [words for who, words, _ in rows if who[1] == a]
            masks = [mask for who, _, mask in rows if who[1] == a]
            assert not np.add.reduce(masks).any()
            totals.setdefault(a[:2], set()).add(np.add.reduce(parts).tobytes())
        assert all(len(total) == 1 for total in totals.values())
        sums, noise = sums + len(complete), noise + len(set(asked)) - len(complete)
    assert sums > 2 * SERVERS  # it learns what it may
    assert noise > SERVERS  # and has tried more


def test_a_kernel_is_every_relation() -> None:
    rows = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [0, 0, 0]], np.uint64)
    every = {
        frozenset(np.flatnonzero(pick)) for pick in product((0, 1), repeat=4)
        if not (np.array(pick, np.uint64) @ rows % 2).any()
    }  # fmt: skip
    first, second = (frozenset(found) for found in kernel(rows))
    assert every == {frozenset(), first, second, first ^ second}
