"""The agents' side of a transport that carries bytes: one cohort, answering each frame once.

A cohort is a deterministic function of the requests that it has handled (randomness is keyed), so
an endpoint is its last snapshot and the requests since. Each request is written to a journal before
its answer leaves; a restarted endpoint loads the snapshot and repeats the requests:

- a request in the journal counts, one that is missing is sent again by the server: no episode is
  lost and none is counted twice;
- a request that arrives twice is carried out once and answered twice with the same bytes;
- a request with an earlier number or from an earlier server process is refused, and so is one that
  no server of this run would send now (`RequestOrder`);
- a request that fails is not written down, so it does not block later ones.

A server that was restarted itself begins with `Start` at the episode of its checkpoint, and the
endpoint returns to the snapshot that it made there (`Keep`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Protocol

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.errors import DamagedFile, InvalidInput, MessageRefused, TransportError
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.messages import (
    Exploit,
    Explore,
    Increments,
    Keep,
    KeyRequest,
    Model,
    Models,
    Reply,
    Request,
    Roster,
    Signal,
    Start,
    Upload,
    gram_of,
)
from fedlsvi.protocol.second_pass import deploy
from fedlsvi.protocol.transport import layout
from fedlsvi.remote.audit import Audit
from fedlsvi.remote.codec import Address, Failure, decode_request, encode
from fedlsvi.remote.identity import SiteIdentity
from fedlsvi.remote.journal import Journal, Snapshot
from fedlsvi.remote.masking import Masking
from fedlsvi.remote.request_order import RequestOrder as RequestOrder
from fedlsvi.remote.request_order import refuse
from fedlsvi.remote.site_noise import SiteNoise, step_of
from fedlsvi.storage import files
from fedlsvi.storage.schema import suspect

NOTHING_YET = (-1, -1)
"""Epoch and number before any request; no frame can have them."""

log = logging.getLogger(__name__)


class FrameHandler(Protocol):
    """What answers frames for a cohort: an `Endpoint`, or a stand-in for tests."""

    @property
    def agents(self) -> tuple[int, int]:
        """The number of the first agent, and how many there are."""
        ...

    def handle(self, frame: bytes) -> bytes:
        """The reply to a request."""
        ...

    def close(self) -> None:
        """Release threads and files."""
        ...


class SignalExchange(Protocol):
    """Exchanges signals with other cohorts while this one explores, where agents can call."""

    def begin(self, epoch: int, number: int) -> None:
        """The exploration that this request asks for begins."""
        ...

    def until(self, t: int) -> int:
        """After episode t: the episode up to which to explore before asking again."""
        ...

    def fired(self, frame: bytes) -> None:
        """An agent of this cohort signals; the frame is about to be the reply."""
        ...


class Endpoint:
    """One cohort behind frames.

    Args:
        make: Builds the cohort as it is before its first message.
        parameters: The numbers that were agreed on.
        run: The number that the frames of this run carry.
        journal: Where snapshots and requests are written; None keeps nothing.
        outbox: The log of every frame that leaves.
        identity: Signs this site's key and verifies those of others; needed for secure sums.
    """

    def __init__(
        self,
        make: Callable[[], Cohort],
        parameters: Parameters,
        run: int,
        journal: Journal | None = None,
        outbox: Audit | None = None,
        identity: SiteIdentity | None = None,
    ) -> None:
        p = parameters
        self.make, self.parameters, self.run = make, p, run
        self.layout = layout(p)
        self.journal, self.outbox, self.identity = journal, outbox, identity
        self._masking: Masking | None = None
        self._noise: SiteNoise | None = None
        self._lock = Lock()
        self._last, self._reply = NOTHING_YET, b""  # the last request's epoch and number, answer
        self._build()

    def _build(self) -> None:
        """Bring the cohort to where the last request left it. If that fails, the last request is
        still remembered: only a later server may start again."""
        heard, self._intact = (self._last, self._reply), False
        try:
            self._recover()
            self._intact = True
        finally:
            if not self._intact:
                self._last, self._reply = heard

    def _recover(self) -> None:
        self._last, self._reply, self._kept = NOTHING_YET, b"", 0
        self._order = RequestOrder(self.parameters)
        self.cohort, self._foreign = self.make(), ""
        if self.journal is None:
            self._masking = self._masking or self._masks()
            self._noise = self._noise or self._noises()
            return
        self._masking, self._noise = self._masks(), self._noises()
        snapshot, frames = self.journal.newest()
        with suspect(self.journal.folder):
            self._foreign = self._other_owner(snapshot, frames)
        if self._foreign:  # a server that begins at episode 0 may reuse it; no other is answered
            return
        if snapshot is not None:
            with suspect(self.journal.folder):
                self._restore(snapshot)
                epoch, number, at = snapshot.plain["last"]
                address = Address(self.run, epoch, number, at, *self.agents)
                self._answered(address, encode(None, address))
        for frame in frames:
            self._repeat(frame)

    def _masks(self) -> Masking | None:
        """The site's part in secure sums, as its journal has it; None where sums are not secure."""
        if self.parameters.aggregation != "secure":
            return None
        if self.identity is None:
            raise InvalidInput(
                'aggregation="secure" needs a SiteIdentity for each endpoint, so that the server '
                "cannot pass off keys of its own: give identity=",
                code="no-identity",
            )
        return Masking(self.parameters, self.run, self.agents, self.identity, *self._where())

    def _noises(self) -> SiteNoise | None:
        """The site's noise, as its journal has it; None where the run is not private."""
        if self.parameters.privacy is None:
            return None
        folder, durable = self._where()
        if folder is not None:  # next to the journal, which is set aside when a server starts over
            folder = folder.with_name(f"{folder.name}.noise")
            files.make_private(folder)
        return SiteNoise(self.parameters, self.run, self.agents, folder, durable)

    def _where(self) -> tuple[Path | None, bool]:
        """The journal's folder, and whether it survives a power failure."""
        return (None, True) if self.journal is None else (self.journal.folder, self.journal.durable)

    def _repeat(self, frame: bytes) -> None:
        """Carry out a request of the journal again; a gap before it is noticed."""
        try:
            address, message = decode_request(frame, self.layout)
            if (address.run, address.first, address.agents) != (self.run, *self.agents):
                refuse("other-run", f"a request of run {address.run:x}")
            t = self.cohort.experience.t if self._last != NOTHING_YET else 0
            if isinstance(message, Start) and message.t != t:
                refuse("bad-start", f"a start at episode {message.t}")
            heard = self._in_turn(address, message)
        except MessageRefused as error:
            raise DamagedFile(
                f"the journal of agents from {self.agents[0]} on does not continue from its "
                f"snapshot after episode {self._kept} ({error}): restore it from a copy",
                code="journal-gap",
            ) from None
        if not heard:
            self._answered(address, self._answer(address, message))

    def _other_owner(self, snapshot: Snapshot | None, frames: list[bytes]) -> str:
        """Whose journal it is, if not that of these agents in this run."""
        mine = (self.run, *self.agents)
        run, first, agents = mine
        if snapshot is not None:
            run, first, agents = snapshot.plain["whose"]
        elif frames:
            with suppress(MessageRefused):  # damage is noticed when it is carried out
                address, _ = decode_request(frames[0], self.layout)
                run, first, agents = address.run, address.first, address.agents
        if (run, first, agents) == mine:
            return ""
        return (
            f"the journal belongs to agents {first} to {first + agents - 1} of run {run:x}, not to "
            f"{self.agents[0]} to {sum(self.agents) - 1} of run {self.run:x}: put each journal "
            "back where it was"
        )

    @property
    def agents(self) -> tuple[int, int]:
        """The number of the first agent, and how many there are."""
        return int(self.cohort.agents[0]), len(self.cohort.agents)

    def handle(self, frame: bytes, signals: SignalExchange | None = None) -> bytes:
        """Answer one request.

        Args:
            frame: The request.
            signals: Exchanges signals with other cohorts while this one explores.

        Returns:
            The reply. If the request failed it carries the kind of error and nothing else.
        """
        with self._lock:
            reply = self._handle(frame, signals)
            if self.outbox is not None:
                self.outbox.sent(reply)
            return reply

    def _handle(self, frame: bytes, signals: SignalExchange | None) -> bytes:
        address = Address(self.run, 0, 0, 0, *self.agents)
        try:
            address, message = decode_request(frame, self.layout)
            # the last request failed halfway: recover first; a Start needs only a snapshot
            if not self._intact and not isinstance(message, Start):
                self._close()
                self._build()
            if self._heard(address, message):
                return self._reply
            self._intact = False
            self._carry_out(address, message, frame, signals)
            self._intact = True
            return self._reply
        except Exception as error:  # whatever an environment may raise: the server must hear of it
            self.report(error)
            return encode(Failure(type(error).__name__), address)

    def _carry_out(
        self, address: Address, message: Request, frame: bytes, signals: SignalExchange | None
    ) -> None:
        """Carry a request out and write it down; a `Keep` first, because it ends the log."""
        if isinstance(message, Start):
            self._go_back(message.t)
        first = isinstance(message, Keep)
        if first and self.journal is not None:
            self.journal.append(frame)
        before = self.cohort.experience.length if isinstance(message, Explore) else 0
        reply = self._answer(address, message, signals)
        if isinstance(message, Explore):
            # exploration that stopped early, for a signal elsewhere, stops there again in a replay
            played = self.cohort.experience.length - before
            frame = frame if played == message.limit else encode(Explore(played), address)
        if not first and self.journal is not None:
            self.journal.append(frame)
        self._answered(address, reply)

    def report(self, error: Exception) -> None:
        """Log an error on the agents' side; its text never leaves."""
        log.error("a request could not be answered", exc_info=error)

    def _heard(self, address: Address, message: Request) -> bool:
        """Whether this request was answered before; refuses one that is out of turn."""
        if address.run != self.run:
            refuse("other-run", f"request of run {address.run:x}, this is run {self.run:x}")
        if (address.first, address.agents) != self.agents:
            refuse("other-agents", f"request for agents from {address.first}: they are not here")
        return self._in_turn(address, message)

    def _in_turn(self, address: Address, message: Request) -> bool:
        """Whether this was the last request; refuses one that cannot be the next."""
        epoch, number = self._last
        if (address.epoch, address.number) == self._last:
            return True
        if isinstance(message, Start):
            if address.epoch <= epoch:
                refuse(
                    "stale-start",
                    f"a start of epoch {address.epoch} after epoch {epoch}: a later server has "
                    "spoken since, or the server's clock was set back",
                )
        elif (address.epoch, address.number) != (epoch, number + 1):
            refuse(
                "stale-request",
                f"request {address.number} of epoch {address.epoch} after {number} of {epoch}",
            )
        self._order.check(message, self.cohort.experience)
        return False

    def _answer(
        self, address: Address, message: Request, signals: SignalExchange | None = None
    ) -> bytes:
        """Carry a request out, for the first time or again."""
        if isinstance(message, Keep):
            self._keep(message.t, address)
            return encode(None, address)
        until = None
        if signals is not None and isinstance(message, Explore):
            signals.begin(address.epoch, address.number)
            until = signals.until
        reply = self._reply_to(address, message, until)
        self._follow(message)
        frame = encode(reply, address)
        if signals is not None and isinstance(reply, Signal) and reply.t > 0:
            signals.fired(frame)
        return frame

    def _reply_to(
        self, address: Address, message: Request, until: Callable[[int], int] | None
    ) -> Reply:
        """What the cohort answers, with noise where the run is private, masked where sums are
        secure."""
        masking, noise = self._masking, self._noise
        if masking is None:
            reply = self.cohort.receive(message, until)
            if noise is not None and isinstance(reply, Upload | Increments):
                return noise.blur(self._played, reply)
            return reply
        if isinstance(message, KeyRequest):
            return masking.offer()
        if isinstance(message, Roster):
            masking.agree(message)
            return None
        reply = self.cohort.receive(message, until)
        if isinstance(reply, Upload | Increments):
            blur = None
            if noise is not None:
                blur = partial(noise.add, self._played, step=step_of(reply))
            return masking.mask(address.round, reply, blur)
        return reply

    @property
    def _played(self) -> int:
        """The last episode of the round under way, once it has ended."""
        return self.cohort.experience.t + self.cohort.experience.length

    def _answered(self, address: Address, reply: bytes) -> None:
        self._last, self._reply = (address.epoch, address.number), reply

    def _follow(self, message: Request) -> None:
        """Remember what may come next, and the model in force: a snapshot needs it."""
        self._order.follow(message)
        if isinstance(message, Start):
            self._w, self._gram = message.w.copy(), message.gram.copy()
            self._start, self._deployed = message, np.empty((0, 0))
        elif isinstance(message, Exploit):
            self._deployed = np.zeros_like(self._w)
        elif isinstance(message, Model) and self._order.exploiting:
            self._deployed[message.h - 1] = message.w
        elif isinstance(message, Model):
            self._w[message.h - 1] = message.w
            gram_of(self._gram, message.h, len(self._w))[:] = message.gram
        elif isinstance(message, Models):
            self._w, self._gram = message.w.copy(), message.gram.copy()

    def _go_back(self, t: int) -> None:
        """A server begins, or resumes after episode t."""
        if self._foreign and t > 0:
            raise TransportError(self._foreign, code="foreign-journal")
        snapshot = None if self.journal is None else self.journal.back_to(t)
        if snapshot is None and t > 0:
            raise TransportError(
                f"there is no snapshot after episode {t} to resume from", code="no-snapshot"
            )
        self._close()
        self.cohort, self._kept, self._foreign = self.make(), 0, ""
        if self._masking is not None and t == 0:
            self._masking.begin()
        if snapshot is not None and self.journal is not None:
            with suspect(self.journal.folder):
                self._restore(snapshot)

    def _keep(self, t: int, address: Address) -> None:
        if self.journal is None or t == self._kept:
            return
        experience, s = self.cohort.experience, self._start
        arrays = {**experience.state(), "model.w": self._w, "model.gram": self._gram}
        if self._deployed.size:
            arrays["exploit.w"] = self._deployed
        plain = {
            "whose": [self.run, *self.agents],
            "gamma": s.gamma,
            "beta": s.beta,
            "episodes": s.episodes,
            "last": [address.epoch, address.number, address.round],
        }
        history = [(self._kept, experience.history(self._kept, t))] if t > self._kept else []
        self.journal.keep(Snapshot(t, arrays, plain, history))
        self._kept = t

    def _restore(self, snapshot: Snapshot) -> None:
        arrays = dict(snapshot.arrays)
        w, gram = arrays.pop("model.w"), arrays.pop("model.gram")
        deployed = arrays.pop("exploit.w", None)
        for first, part in snapshot.history:
            self.cohort.experience.extend(first, part)
        self.cohort.experience.restore(arrays)
        plain = snapshot.plain
        start = Start(w, gram, plain["gamma"], plain["beta"], plain["episodes"], snapshot.t)
        self.cohort.start(start)
        self._follow(start)
        if deployed is not None:
            self._deployed, self._order.exploiting = deployed, True
            deploy(self.cohort, deployed, -self.parameters.pessimism)
        self._kept = snapshot.t

    def _close(self) -> None:
        self.cohort.experience.workers.close()

    def close(self) -> None:
        """End the cohort's threads and release the journal."""
        self._close()
        if self.journal is not None:
            self.journal.close()
