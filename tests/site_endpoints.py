"""Sites behind frames, and a server of the test's own that asks them whatever it likes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlsvi.core import fixed_point
from fedlsvi.core.statistics import factorise, identity, pack, unpack
from fedlsvi.errors import FedLSVIError
from fedlsvi.protocol.messages import (
    KeyRequest,
    MaskedUpload,
    Member,
    Model,
    Reply,
    Request,
    Roster,
    SiteKey,
    Start,
    Stop,
)
from fedlsvi.protocol.plan import Plan
from fedlsvi.remote.codec import Address, Failure, decode_reply, encode, run_id
from fedlsvi.remote.endpoint import Endpoint
from fedlsvi.remote.endpoint_factory import endpoint_factories

SITES = 3


class Sites:
    """Three sites with secure sums, step by step. What the server may ask next is up to the test;
    `synchronise` does what Algorithm 1 does.

    Args:
        plan: The run.
        folder: Of the journals; None keeps none.
    """

    def __init__(self, plan: Plan, folder: Path | None = None) -> None:
        self.plan, self.p, self.folder = plan, plan.parameters, folder
        self.run, self.turns = run_id(self.p, plan.seed), [(1, 0)] * SITES
        self.round, self.t = 1, 0
        self.factories = endpoint_factories(plan, SITES, folder, durable=False, threads=1)
        self.endpoints: list[Endpoint] = [make() for make in self.factories]
        H, d = self.p.horizon, self.p.dim
        self.gram = np.stack([identity(d, self.p.lam, self.p.packing)] * H)
        self.w = np.zeros((H, d))

    def close(self) -> None:
        for endpoint in self.endpoints:
            endpoint.close()

    def restart(self, *which: int) -> None:
        """Sites end and begin again from their journals: these, or all."""
        for c in which or range(SITES):
            self.endpoints[c].close()
            self.endpoints[c] = self.factories[c]()

    def ask(self, c: int, message: Request, round_: int | None = None) -> Reply | Failure:
        """The answer of one site; a Start begins a new epoch."""
        epoch, number = self.turns[c]
        start = isinstance(message, Start)
        self.turns[c] = (epoch + 1, 1) if start else (epoch, number + 1)
        return self.again(c, message, round_)

    def again(self, c: int, message: Request, round_: int | None = None) -> Reply | Failure:
        """The answer of one site to a request with the number of the last one."""
        endpoint = self.endpoints[c]
        k = self.round if round_ is None else round_
        frame = encode(message, Address(self.run, *self.turns[c], k, *endpoint.agents))
        return decode_reply(endpoint.handle(frame), self.plan.layout)[1]

    def all(self, message: Request) -> list[Any]:
        """The answers of all sites to one request."""
        return [self.ask(c, message) for c in range(SITES)]

    def start(self, t: int = 0, **changes: Any) -> Roster:
        """Begin, or resume after episode t with the model in force; the keys of all sites."""
        p = self.p
        about = {"w": self.w.copy(), "gram": pack(self.gram, p.packing).copy(), "gamma": p.gamma,
                 "beta": p.signed_beta, "episodes": p.episodes, "t": t}  # fmt: skip
        assert self.all(Start(**about | changes)) == [None] * SITES
        keys = self.all(KeyRequest())
        assert all(isinstance(key, SiteKey) for key in keys)
        members = zip(self.endpoints, keys, strict=True)
        return Roster(tuple(Member(*e.agents, key.public, key.proof) for e, key in members))

    def agreed(self, t: int = 0, **changes: Any) -> Roster:
        """The same, and all sites have agreed to the membership."""
        roster = self.start(t, **changes)
        assert self.all(roster) == [None] * SITES
        return roster

    def total(self, uploads: list[Any]) -> np.ndarray:
        """What the server reads from the uploads of all sites: Λ, packed, and b."""
        assert all(isinstance(upload, MaskedUpload) for upload in uploads), uploads
        words = np.add.reduce([upload.words for upload in uploads])
        return fixed_point.decode(words, self.p.scale_bits)

    def synchronise(
        self, t: int, between: Callable[[int], None] | None = None
    ) -> list[list[MaskedUpload]]:
        """One round that ends at episode t, as Algorithm 1 has it: the uploads of steps H … 1.
        `between` is called before the model of each step goes out."""
        uploads = [self.all(Stop(t))]
        for h in range(self.p.horizon, 0, -1):
            if between is not None:
                between(h)
            self.add(h, uploads[-1])
            uploads.append(self.all(self.model(h)))
        assert uploads.pop() == [None] * SITES
        self.round, self.t = self.round + 1, t
        return uploads

    def add(self, h: int, uploads: list[Any]) -> None:
        """The model of a step from the uploads of all sites."""
        total, d = self.total(uploads), self.p.dim
        self.gram[h - 1] += unpack(total[:-d], d, self.p.packing)
        self.w[h - 1] = factorise(self.gram[h - 1]).solve(total[-d:])

    def model(self, h: int) -> Model:
        """The model in force of a step."""
        return Model(h, self.w[h - 1].copy(), pack(self.gram[h - 1], self.p.packing).copy())

    def true(self, c: int, t: int, first: int = 0) -> np.ndarray:
        """What site c would send of step H without masks, if its first round ended at t: Λ, packed,
        and b; of episodes after the first ones alone, where a number of those is given."""
        cohort = self.factories[c].cohort()
        about = (self.p.gamma, self.p.signed_beta, self.p.episodes)
        w, gram = np.zeros_like(self.w), np.stack(
            [identity(self.p.dim, self.p.lam, self.p.packing)] * self.p.horizon
        )  # fmt: skip
        cohort.start(Start(w, pack(gram, self.p.packing).copy(), *about))
        upload = cohort.stop(t)
        whole = np.concatenate([upload.gram.sum(axis=0), upload.b.sum(axis=0)])
        return whole if not first else whole - self.true(c, first)


def failed(replies: list[Any]) -> bool:
    """Whether every site refused."""
    return replies == [Failure("MessageRefused")] * len(replies)


def refusals(caplog: pytest.LogCaptureFixture) -> set[str]:
    """What the sites' logs say was refused since the log was last cleared."""
    errors = [record.exc_info[1] for record in caplog.records if record.exc_info]
    return {error.code for error in errors if isinstance(error, FedLSVIError)}


def as_bytes(uploads: list[list[MaskedUpload]]) -> list[bytes]:
    """Every upload, byte by byte."""
    return [upload.words.tobytes() for step in uploads for upload in step]
