"""The agents' end of a transport that carries bytes: one cohort, answering frames exactly once.

A cohort is a deterministic function of the requests that it has handled (randomness is keyed), so
a station is its last snapshot and the requests since. Each request is written down before its
answer leaves; a restarted station takes the snapshot and carries the requests out again:

- a request that was written down counts, one that was not is asked again by the server: no episode
  is lost and none is counted twice;
- a request that arrives twice is answered twice with the same bytes and carried out once;
- a request of an earlier number or an earlier server process is refused, and so is one that no
  server of this run would send now (`order`);
- a request that cannot be carried out is not written down: it does not stand in the way of others.

A server that was restarted itself begins with `Start` at the episode of its checkpoint, and the
station goes back to the snapshot that it made there (`Keep`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock

from fedlsvi.config import Parameters
from fedlsvi.errors import DamagedFile, MessageRefused, TransportError
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.messages import Explore, Keep, Model, Reply, Request, Start
from fedlsvi.protocol.transport import layout
from fedlsvi.remote.codec import Address, Failure, decode_request, encode
from fedlsvi.remote.endpoint_storage import Memory, Outbox, Snapshot
from fedlsvi.remote.request_order import Order
from fedlsvi.storage.schema import suspect

NOBODY = (-1, -1)
"""Epoch and number before any request; no frame can have them."""

SNAPSHOT = Path("the agents' snapshot")
"""What errors about it call it; only its journal knows where it is."""

log = logging.getLogger(__name__)


class Station:
    """One cohort behind frames. `make` builds the cohort as it is before its first message."""

    def __init__(
        self,
        make: Callable[[], Cohort],
        parameters: Parameters,
        run: int,
        memory: Memory | None = None,
        outbox: Outbox | None = None,
    ) -> None:
        p = parameters
        self.make, self.parameters, self.run = make, p, run
        self.layout = layout(p)
        self.memory, self.outbox = memory, outbox
        self._lock = Lock()
        self._last, self._reply = NOBODY, b""  # epoch and number of the last request, its answer
        self._build()

    def _build(self) -> None:
        """The cohort as it was when the last request had been carried out. What was heard last is
        not forgotten where that fails: a server that starts anew must be a later one."""
        heard, self._whole = (self._last, self._reply), False
        try:
            self._take_up()
            self._whole = True
        finally:
            if not self._whole:
                self._last, self._reply = heard

    def _take_up(self) -> None:
        self._last, self._reply, self._kept = NOBODY, b"", 0
        self._order = Order(self.parameters)
        self.cohort, self._strange = self.make(), ""
        if self.memory is None:
            return
        snapshot, frames = self.memory.newest()
        with suspect(SNAPSHOT):
            self._strange = self._stranger(snapshot, frames)
        if self._strange:  # a server that begins at episode 0 begins anew; no other is answered
            return
        if snapshot is not None:
            self._restore(snapshot)
            with suspect(SNAPSHOT):
                epoch, number, at = snapshot.plain["last"]
                address = Address(self.run, epoch, number, at, *self.agents)
                self._answered(address, encode(None, address))
        for frame in frames:
            self._repeat(frame)

    def _repeat(self, frame: bytes) -> None:
        """Carry out once more what was written down; a gap before it is noticed."""
        try:
            address, message = decode_request(frame, self.layout)
            if (address.run, address.first, address.agents) != (self.run, *self.agents):
                raise MessageRefused(f"a request of run {address.run:x}")
            t = self.cohort.experience.t if self._last != NOBODY else 0
            if isinstance(message, Start) and message.t != t:
                raise MessageRefused(f"a start at episode {message.t}")
            heard = self._in_turn(address, message)
        except MessageRefused as error:
            raise DamagedFile(
                f"the journal of agents from {self.agents[0]} on does not go on from its snapshot "
                f"after episode {self._kept} ({error}): restore it from a copy"
            ) from None
        if not heard:
            self._answered(address, self._answer(address, message))

    def _stranger(self, snapshot: Snapshot | None, frames: list[bytes]) -> str:
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
            f"the journal is of agents {first} to {first + agents - 1} in run {run:x}, here are "
            f"{self.agents[0]} to {sum(self.agents) - 1} in run {self.run:x}: put each journal "
            "back where it was"
        )

    @property
    def agents(self) -> tuple[int, int]:
        """The number of its first agent, and how many there are."""
        return int(self.cohort.agents[0]), len(self.cohort.agents)

    def handle(self, frame: bytes) -> bytes:
        """Answer one request; what cannot be answered is answered with the kind of error."""
        with self._lock:
            reply = self._handle(frame)
            if self.outbox is not None:
                self.outbox.sent(reply)
            return reply

    def _handle(self, frame: bytes) -> bytes:
        address = Address(self.run, 0, 0, 0, *self.agents)
        try:
            address, message = decode_request(frame, self.layout)
            # an error came in the middle of a request: begin from what is safe
            if not self._whole and not isinstance(message, Start):  # which needs a snapshot alone
                self._close()
                self._build()
            if self._heard(address, message):
                return self._reply
            self._whole = False
            self._carry_out(address, message, frame)
            self._whole = True
            return self._reply
        except Exception as error:  # whatever an environment may raise: the server must hear of it
            self.trouble(error)
            return encode(Failure(type(error).__name__), address)

    def _carry_out(self, address: Address, message: Request, frame: bytes) -> None:
        """Carry a request out and write it down; a `Keep` first, which ends the log."""
        if isinstance(message, Start):
            self._go_back(message.t)
        first = isinstance(message, Keep)
        if first and self.memory is not None:
            self.memory.append(frame)
        played = self.cohort.experience.length if isinstance(message, Explore) else 0
        reply = self._answer(address, message)
        if isinstance(message, Explore):  # who heard of a signal stopped there, and will again
            played = self.cohort.experience.length - played
            frame = frame if played == message.limit else encode(Explore(played), address)
        if not first and self.memory is not None:
            self.memory.append(frame)
        self._answered(address, reply)

    def trouble(self, error: Exception) -> None:
        """For the log at the agents' side; the text of an error never leaves."""
        log.error("a request could not be answered", exc_info=error)

    def _heard(self, address: Address, message: Request) -> bool:
        """Whether this very request was answered before; refuses what is out of turn."""
        if address.run != self.run:
            raise MessageRefused(f"request of run {address.run:x}, this is run {self.run:x}")
        if (address.first, address.agents) != self.agents:
            raise MessageRefused(f"request for agents from {address.first}: not held here")
        return self._in_turn(address, message)

    def _in_turn(self, address: Address, message: Request) -> bool:
        """Whether this very request was the last; refuses one that cannot be the next."""
        epoch, number = self._last
        if (address.epoch, address.number) == self._last:
            return True
        if isinstance(message, Start):
            if address.epoch <= epoch:
                raise MessageRefused(
                    f"a start of epoch {address.epoch} after epoch {epoch}: another server has "
                    "followed that one, or the server's clock was set back"
                )
        elif (address.epoch, address.number) != (epoch, number + 1):
            raise MessageRefused(
                f"request {address.number} of epoch {address.epoch} after {number} of {epoch}"
            )
        self._order.check(message, self.cohort.experience)
        return False

    def _answer(self, address: Address, message: Request) -> bytes:
        """Carry a request out, now or once more."""
        reply: Reply = None
        if isinstance(message, Keep):
            self._keep(message.t, address)
        else:
            reply = self.cohort.receive(message)
            self._note(message)
        return encode(reply, address)

    def _answered(self, address: Address, reply: bytes) -> None:
        self._last, self._reply = (address.epoch, address.number), reply

    def _note(self, message: Request) -> None:
        """Remember what may come next, and the model in force: a snapshot needs it."""
        self._order.follow(message)
        if isinstance(message, Start):
            self._w, self._gram = message.w.copy(), message.gram.copy()
            self._start = message
        elif isinstance(message, Model):
            self._w[message.h - 1], self._gram[message.h - 1] = message.w, message.gram

    def _go_back(self, t: int) -> None:
        """A server begins or begins again after episode t."""
        if self._strange and t > 0:
            raise TransportError(self._strange)
        snapshot = None if self.memory is None else self.memory.back_to(t)
        if snapshot is None and t > 0:
            raise TransportError(f"there is no snapshot after episode {t} to go back to")
        self._close()
        self.cohort, self._kept, self._strange = self.make(), 0, ""
        if snapshot is not None:
            self._restore(snapshot)

    def _keep(self, t: int, address: Address) -> None:
        if self.memory is None or t == self._kept:
            return
        experience = self.cohort.experience
        arrays = {**experience.state(), "model.w": self._w, "model.gram": self._gram}
        s = self._start
        last = [address.epoch, address.number, address.round]
        plain = {"whose": [self.run, *self.agents], "gamma": s.gamma, "beta": s.beta,
                 "episodes": s.episodes, "last": last}  # fmt: skip
        history = [(self._kept, experience.history(self._kept, t))] if t > self._kept else []
        self.memory.keep(Snapshot(t, arrays, plain, history))
        self._kept = t

    def _restore(self, snapshot: Snapshot) -> None:
        with suspect(SNAPSHOT):
            arrays = dict(snapshot.arrays)
            w, gram = arrays.pop("model.w"), arrays.pop("model.gram")
            for first, part in snapshot.history:
                self.cohort.experience.extend(first, part)
            self.cohort.experience.restore(arrays)
            plain = snapshot.plain
            start = Start(w, gram, plain["gamma"], plain["beta"], plain["episodes"], snapshot.t)
            self.cohort.start(start)
        self._note(start)
        self._kept = snapshot.t

    def _close(self) -> None:
        self.cohort.experience.workers.close()

    def close(self) -> None:
        """End the cohort's threads."""
        self._close()
