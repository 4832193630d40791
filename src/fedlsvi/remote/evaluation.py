"""The passes of an evaluation from logs behind frames, on any engine that carries them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

from fedlsvi.algorithms.shared.evaluation_site import Evaluation, EvaluationSite, Pass
from fedlsvi.config import cohort_count
from fedlsvi.errors import MessageRefused
from fedlsvi.logs.world import LoggedWorld
from fedlsvi.privacy.masks import check_sites
from fedlsvi.protocol.transport import Transport, layout
from fedlsvi.remote.audit import Audit
from fedlsvi.remote.bounds import Bounds
from fedlsvi.remote.codec import HEADER_BYTES, MODEL, peek, run_id
from fedlsvi.remote.endpoint import Endpoint
from fedlsvi.remote.frame_transport import FrameHandler, FrameTransport, ThreadTransport
from fedlsvi.remote.guard import Guard
from fedlsvi.remote.identity import SiteIdentity, run_identities
from fedlsvi.remote.journal import Journal
from fedlsvi.remote.release_log import append_record
from fedlsvi.storage import files

ANSWERED = "evaluated.log"
RECORD = struct.Struct("<II32s")  # number of a pass, step, SHA-256 of the model

Make = Callable[..., FrameTransport]
"""Makes a transport from parameters, factories, a run's number, a policy of retries and a guard."""


def pass_id(evaluation: Evaluation, one: Pass) -> int:
    """The number that the frames of a pass carry."""
    return run_id(evaluation.parameters(one), evaluation.passes.index(one))


def pass_guard(evaluation: Evaluation, one: Pass) -> Guard:
    """The server's checks in a pass."""
    p = evaluation.parameters(one)
    return Guard(layout(p), Bounds.of(p, evaluation.nonnegative))


@dataclass(frozen=True)
class SiteFactory:
    """Makes the handler of some agents in the process that calls it.

    Attributes:
        evaluation: What is evaluated.
        worlds: The logs of these agents.
        lo: The number of the first.
        identity: Of the site, where sums are secure.
    """

    evaluation: Evaluation
    worlds: tuple[LoggedWorld, ...]
    lo: int
    identity: SiteIdentity | None = None

    def __call__(self) -> FrameHandler:
        site = EvaluationSite(self.evaluation, self.worlds, self.lo)
        return PassHandler(site, identity=self.identity)


class AnsweredModels:
    """Under which model each step of each pass was answered, in a file: another one is refused.

    b_h sums over the log under a V_{h+1} that the server chose. A server that could ask for it with
    one V after another, by asking for the evaluation again, would learn which states were seen. One
    that was restarted asks with the same models, because it hears the same answers.

    Args:
        folder: Of the site, where the file is.
        durable: Whether an answer is known after a power failure too.
    """

    def __init__(self, folder: Path, durable: bool = True) -> None:
        self._path, self.durable = files.inside(folder, ANSWERED), durable
        data = files.read(self._path) if files.exists(self._path) else b""
        whole = len(data) - len(data) % RECORD.size
        if whole < len(data):  # a kill left it unfinished: nothing was sent behind it
            files.cut(self._path, whole)
        self._models = {(one, h): model for one, h, model in RECORD.iter_unpack(data[:whole])}

    def check(self, number: int, frame: bytes) -> None:
        """Refuse a model that is not the one of before; write a new one down.

        Args:
            number: Of the pass (`Pass.number`).
            frame: The request.
        """
        kind, h, _ = peek(frame)
        if kind != MODEL:
            return
        model = sha256(frame[HEADER_BYTES:]).digest()
        known = self._models.get((number, h))
        if known is None:
            append_record(self._path, RECORD.pack(number, h, model), self.durable)
            self._models[number, h] = model
        elif known != model:
            raise MessageRefused(
                f"step {h} of pass {number} was already answered for a different model, so "
                "nothing is sent: the logs of a site have changed, or the server asks for more "
                f"than one evaluation reveals. If that is intended, delete {self._path.name} at "
                "this site",
                code="evaluated-before",
            )


class PassHandler:
    """Answers the frames of one pass after the other; the logs are read once.

    A site that was restarted within a pass refuses the rest of it, and the evaluation is asked for
    again.

    Args:
        site: The agents and their logs.
        answered: Which models were answered; None keeps no account of them.
        outbox: The log of every frame that leaves.
        identity: Of the site, where sums are secure.
        private: Where passes with noise or masks have their journals, so that none is made twice,
            and their secrets.
    """

    def __init__(
        self,
        site: EvaluationSite,
        answered: AnsweredModels | None = None,
        outbox: Audit | None = None,
        identity: SiteIdentity | None = None,
        private: tuple[Path, Path] | None = None,
    ) -> None:
        self.site, self._answered, self._outbox = site, answered, outbox
        self._identity, self._private = identity, private
        self._passes = {pass_id(site.evaluation, one): one for one in site.evaluation.passes}
        self._take(next(iter(self._passes)))

    @property
    def agents(self) -> tuple[int, int]:
        """The number of the first agent, and how many there are."""
        return self.site.lo, len(self.site.worlds)

    def handle(self, frame: bytes) -> bytes:
        """The reply to a request; one of a pass that nobody agreed on is refused."""
        try:
            run = peek(frame)[2].run
        except MessageRefused:
            run = self._endpoint.run
        if run != self._endpoint.run and run in self._passes:
            self._endpoint.close()
            self._take(run)
        if self._answered is not None and run == self._endpoint.run:
            self._answered.check(self._passes[run].number, frame)
        return self._endpoint.handle(frame)

    def _take(self, run: int) -> None:
        one = self._passes[run]
        make, p = partial(self.site.cohort, one), self.site.evaluation.parameters(one)
        journal = None
        hidden = p.privacy is not None or p.aggregation == "secure"
        if self._private is not None and hidden:
            durable = self._answered is None or self._answered.durable
            own = f"pass-{one.number}"
            beside, secrets = (files.inside(part, own) for part in self._private)
            journal = Journal(beside, durable, 60.0, secrets=secrets)
        agreed = self.site.evaluation.agreed
        self._endpoint = Endpoint(make, p, run, journal, self._outbox, self._identity, agreed)

    def end(self) -> bool:
        """Delete what hid the uploads of the pass under way."""
        return self._endpoint.end()

    def close(self) -> None:
        """End the pass under way, and release the log of what left."""
        self._endpoint.close()
        if self._outbox is not None:
            self._outbox.close()


class FramePasses:
    """The sites of an evaluation behind a transport of frames."""

    def __init__(self, evaluation: Evaluation, transport: FrameTransport) -> None:
        self.evaluation, self.transport = evaluation, transport

    def begin(self, one: Pass) -> Transport:
        """The transport, ready for a pass."""
        own = self.evaluation
        self.transport.change_run(pass_id(own, one), pass_guard(own, one))
        return self.transport

    def close(self) -> None:
        """Release the sites."""
        self.transport.close()


def placed(
    make: Make,
    evaluation: Evaluation,
    worlds: Sequence[LoggedWorld],
    cohorts: int | None,
    **how: Any,
) -> FramePasses:
    """The sites behind a transport, the agents in equal shares."""
    M, secure = evaluation.n_agents, evaluation.aggregation == "secure"
    n = cohort_count(M if secure and cohorts is None else cohorts, M)
    cuts = [M * c // n for c in range(n + 1)]
    identities: Sequence[SiteIdentity | None] = [None] * n
    if secure:
        check_sites(n)
        identities = run_identities(cuts[:-1])
    factories = [
        SiteFactory(evaluation, tuple(worlds[lo:hi]), lo, identity)
        for (lo, hi), identity in zip(pairwise(cuts), identities, strict=True)
    ]
    first = evaluation.passes[0]
    transport = make(
        evaluation.parameters(first), factories, pass_id(evaluation, first),
        guard=pass_guard(evaluation, first), **how,
    )  # fmt: skip
    return FramePasses(evaluation, transport)


def in_threads(
    evaluation: Evaluation, worlds: Sequence[LoggedWorld], cohorts: int | None = None
) -> FramePasses:
    """The sites in threads of this process, behind frames."""
    return placed(ThreadTransport, evaluation, worlds, cohorts)
