"""The agents' end of a transport that carries bytes: one cohort, answering frames exactly once.

A cohort is a deterministic function of the requests that it has handled (randomness is keyed), so
a station is its last snapshot and the requests since. Each request is written down before it is
carried out; a restarted station takes the snapshot and carries the requests out again:

- a request that was written down counts, one that was not is asked again by the server: no episode
  is lost and none is counted twice;
- a request that arrives twice is answered twice with the same bytes and carried out once;
- a request of an earlier number or an earlier server process is refused.

A server that was restarted itself begins with `Start` at the episode of its checkpoint, and the
station goes back to the snapshot that it made there (`Keep`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol

import numpy as np

from fedlsvi.agent import Cohort
from fedlsvi.errors import DamagedFile, MessageRefused, TransportError
from fedlsvi.messages import Keep, Layout, Model, Reply, Request, Start, Stop
from fedlsvi.transports.wire import Address, Failure, decode_request, encode

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Snapshot:
    """A station between two rounds, after episode t."""

    t: int
    arrays: dict[str, np.ndarray]
    """What the experience remembers, and the model in force (`model.w`, `model.gram`)."""
    plain: dict[str, Any]
    """gamma, beta, episodes, and the epoch and number of the last request."""
    history: list[tuple[int, dict[str, np.ndarray]]] = field(default_factory=list)
    """Raw episodes in order, as (first, arrays); they never leave the agents' side."""


class Memory(Protocol):
    """Where a station writes itself down (`fedlsvi.federation.journal`)."""

    def append(self, frame: bytes) -> None:
        """Write a request down; durable when this returns."""
        ...

    def keep(self, snapshot: Snapshot) -> None:
        """Make a snapshot durable; the requests before it are needed no more. Its history is what
        came since the snapshot before."""
        ...

    def newest(self) -> tuple[Snapshot | None, list[bytes]]:
        """The last snapshot that is whole, with all its history, and the requests since."""
        ...

    def back_to(self, t: int) -> Snapshot | None:
        """Forget everything after episode t; the snapshot there, None at the very beginning."""
        ...


class Outbox(Protocol):
    """Is shown every frame that leaves (`fedlsvi.federation.audit`)."""

    def sent(self, frame: bytes) -> None:
        """This frame is about to leave."""
        ...


class Station:
    """One cohort behind frames. `make` builds the cohort as it is before its first message."""

    def __init__(
        self,
        make: Callable[[], Cohort],
        layout: Layout,
        run: int,
        memory: Memory | None = None,
        outbox: Outbox | None = None,
    ) -> None:
        self.make, self.layout, self.run = make, layout, run
        self.memory, self.outbox = memory, outbox
        self._lock = Lock()
        self._build()

    def _build(self) -> None:
        """The cohort as it was when the last request had been carried out."""
        self._last, self._reply = (0, 0), b""
        self._kept = 0
        self._whole = False
        self.cohort = self.make()
        if self.memory is not None:
            snapshot, frames = self.memory.newest()
            if snapshot is not None:
                self._restore(snapshot)
            for frame in frames:
                self._repeat(frame)
        self._whole = True

    def _repeat(self, frame: bytes) -> None:
        """Carry out once more what was written down; a gap before it is noticed."""
        try:
            address, message = decode_request(frame, self.layout)
            t = self.cohort.experience.t if any(self._last) else 0
            if isinstance(message, Start) and message.t != t:
                raise MessageRefused(f"a start at episode {message.t}")
            heard = self._in_turn(address, message)
        except MessageRefused as error:
            raise DamagedFile(
                f"the journal of agents from {self.agents[0]} on does not go on from its snapshot "
                f"after episode {self._kept} ({error}): restore it from a copy"
            ) from None
        if not heard:
            self._answer(address, message)

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
            if not self._whole:  # an error came in the middle of a request: begin from what is safe
                self._close()
                self._build()
            if self._heard(address, message):
                return self._reply
            self._whole = False
            if isinstance(message, Start):
                self._go_back(message.t)
            if self.memory is not None:
                self.memory.append(frame)
            reply = self._answer(address, message)
            self._whole = True
            return reply
        except MessageRefused as error:
            self._whole = True  # refused before anything was carried out
            self.trouble(error)
            return encode(Failure(type(error).__name__), address)
        except Exception as error:  # whatever an environment may raise: the server must hear of it
            self.trouble(error)
            return encode(Failure(type(error).__name__), address)

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
        experience = self.cohort.experience
        match message:
            case Start():
                if address.epoch <= epoch:
                    raise MessageRefused(
                        f"a start of epoch {address.epoch} after epoch {epoch}: another server has "
                        "followed that one, or the server's clock was set back"
                    )
            case _ if (address.epoch, address.number) != (epoch, number + 1):
                raise MessageRefused(
                    f"request {address.number} of epoch {address.epoch} after {number} of {epoch}"
                )
            case Stop(t=t) if not experience.t < t <= self.cohort.T:
                raise MessageRefused(f"a round cannot stop at episode {t}")
            case Keep(t=t) if experience.length or experience.t != t:
                raise MessageRefused(f"asked for episode {t} in the middle of a round")
        return False

    def _answer(self, address: Address, message: Request) -> bytes:
        """Carry a request out, now or once more."""
        reply: Reply = None
        if isinstance(message, Keep):
            self._keep(message.t, address)
        else:
            reply = self.cohort.receive(message)
            self._note(message)
        self._last = (address.epoch, address.number)
        self._reply = encode(reply, address)
        return self._reply

    def _note(self, message: Request) -> None:
        """Remember the model in force: a snapshot needs it."""
        if isinstance(message, Start):
            self._w, self._gram = message.w.copy(), message.gram.copy()
            self._start = message
        elif isinstance(message, Model):
            self._w[message.h - 1], self._gram[message.h - 1] = message.w, message.gram

    def _go_back(self, t: int) -> None:
        """A server begins or begins again after episode t."""
        self._close()
        snapshot = None if self.memory is None else self.memory.back_to(t)
        if snapshot is None and t > 0:
            raise TransportError(f"there is no snapshot after episode {t} to go back to")
        self.cohort, self._kept = self.make(), 0
        if snapshot is not None:
            self._restore(snapshot)

    def _keep(self, t: int, address: Address) -> None:
        if self.memory is None or t == self._kept:
            return
        experience = self.cohort.experience
        arrays = {**experience.state(), "model.w": self._w, "model.gram": self._gram}
        s = self._start
        last = [address.epoch, address.number, address.round]
        plain = {"gamma": s.gamma, "beta": s.beta, "episodes": s.episodes, "last": last}
        history = [(self._kept, experience.history(self._kept, t))] if t > self._kept else []
        self.memory.keep(Snapshot(t, arrays, plain, history))
        self._kept = t

    def _restore(self, snapshot: Snapshot) -> None:
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
        epoch, number, at = plain["last"]
        self._last = (epoch, number)
        self._reply = encode(None, Address(self.run, epoch, number, at, *self.agents))

    def _close(self) -> None:
        self.cohort.experience.workers.close()

    def close(self) -> None:
        """End the cohort's threads."""
        self._close()
