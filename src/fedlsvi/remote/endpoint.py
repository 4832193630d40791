"""The agents' side of a transport that carries bytes: one cohort, answering each frame once.

A cohort is a deterministic function of the requests that it has handled (randomness is keyed), so
an endpoint is its last snapshot and the requests since. Each request is written to a journal before
its answer leaves; a restarted endpoint loads the snapshot and repeats the requests:

- a request in the journal counts, one that is missing is sent again by the server: no episode is
  lost and none is counted twice;
- a request that arrives twice is carried out once and answered twice with the same bytes;
- a request with an earlier number or from an earlier server process is refused, and so is one that
  no server of this run would send now (`RequestOrder`): a round, an episode or a snapshot that is
  not the next by this site's own count;
- a request that fails is not written down, so it does not block later ones.

A server that was restarted itself begins with `Start` at the episode of its checkpoint, and the
endpoint returns to the snapshot that it made there (`Keep`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NoReturn, Protocol

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.config import Parameters
from fedlsvi.core.statistics import factorise, unpack
from fedlsvi.core.trigger import Trigger
from fedlsvi.errors import DamagedFile, InvalidInput, MessageRefused
from fedlsvi.protocol.agent import Cohort, Experience
from fedlsvi.protocol.messages import (
    Exploit,
    Explore,
    Keep,
    Layout,
    Model,
    Models,
    Request,
    Signal,
    Start,
    Stop,
)
from fedlsvi.protocol.transport import layout
from fedlsvi.remote.audit import Audit
from fedlsvi.remote.codec import Address, Failure, decode_request, encode
from fedlsvi.remote.identity import SiteIdentity
from fedlsvi.remote.journal import Journal
from fedlsvi.remote.model_check import PublicBounds
from fedlsvi.remote.recorded_cohort import RecordedCohort
from fedlsvi.remote.site_privacy import SitePrivacy, remembers
from fedlsvi.storage.schema import suspect

NOTHING_YET = (-1, -1)
"""Epoch and number before any request; no frame can have them."""

LARGEST = 1e100
"""No number of a model is larger."""

log = logging.getLogger(__name__)


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


@dataclass
class RequestOrder:
    """What a server may ask next, and with which numbers.

        Start → Explore … → Stop → Model H … Model 1 → (Keep) → Explore …
                                        at the end → Exploit → Model H … Model 1 → (Keep)
        where agents have logs, the run begins with Start → Stop(0) → Model H … Model 1

    b_h sums over an agent's whole history under a V_{h+1} that the server chose. A server that
    could ask for it with one V after another would learn which states were seen. So each step of a
    synchronisation is answered once, and what was agreed before the run (γ, β, T) holds whatever a
    message says.

    Attributes:
        parameters: The numbers that were agreed on.
        round: This site's own count: the round under way, from 1 on, where logs are round 0.
        due: The step whose model must come next; 0 between synchronisations.
        exploiting: Whether the pass after the last round has begun; it comes once.
        unread: Whether the round of the logs is next; it comes once too.
    """

    parameters: Parameters
    round: int = field(init=False)
    due: int = 0
    exploiting: bool = False
    unread: bool = False
    layout: Layout = field(init=False)
    trigger: Trigger = field(init=False)
    bounds: PublicBounds = field(init=False)

    def __post_init__(self) -> None:
        self.layout, self.trigger = layout(self.parameters), self.parameters.trigger
        self.round, self.bounds = self.first_round, PublicBounds(self.parameters)

    @property
    def first_round(self) -> int:
        """The round of a run that begins."""
        return 0 if self.parameters.logged else 1

    def check_round(self, round_: int) -> None:
        """Refuse a request of any round but the one under way, whatever the server counts."""
        if round_ != self.round:
            refuse("other-round", f"a request of round {round_}, but round {self.round} is next")

    def check(self, message: Request, world: Experience) -> None:
        """Raise MessageRefused for a request that cannot come next; changes nothing."""
        T = self.parameters.episodes
        if isinstance(message, Start):
            self._check_start(message)
        elif isinstance(message, Model):
            if message.h != self.due or self.parameters.exchange == "one-trip":
                refuse("model-out-of-order", f"a Model of step {message.h}: {self._expected()}")
            size = 0 if self.exploiting else self.layout.gram_size(message.h)
            if message.gram.size != size:
                refuse("bad-model", f"a Model with {message.gram.size} scalars of Λ, not {size}")
            self._check_model(message)
        elif isinstance(message, Models):
            if self.due != self.parameters.horizon or self.parameters.exchange != "one-trip":
                refuse("model-out-of-order", f"Models of all steps: {self._expected()}")
            if (message.gram.size == 0) != self.exploiting:
                refuse("bad-model", f"Models with {message.gram.size} scalars of Λ")
            self._check_model(message)
        elif self.due > 0:
            refuse("request-out-of-order", f"a {type(message).__name__}: {self._expected()}")
        match message:
            case Exploit(beta=beta) if not self._may_exploit(beta, world):
                refuse("bad-exploit", f"asked for a pass with β = {beta!r} after {world.t} of {T}")
            case Stop(t=0) if self.unread:
                return
            case Explore() | Stop() if self.unread:
                refuse("logs-first", f"a {type(message).__name__} before the round of the logs")
            case Explore(limit=limit) if not 0 <= limit <= T - world.t:
                refuse(
                    "bad-limit",
                    f"asked to explore {plural(limit, 'episode')} after {world.t} of {T}",
                )
            case Stop(t=t) if not world.t < t <= T or not self.trigger.ends(world.t, t):
                refuse("bad-stop", f"a round after episode {world.t} cannot stop at episode {t}")
            case Keep(t=t) if world.length or world.t != t:
                refuse("bad-keep", f"asked for a snapshot at episode {t}, within a round")

    def _check_model(self, model: Model | Models) -> None:
        _finite(w=model.w, gram=model.gram)
        if (model.w[..., self.layout.dim :] < 0.0).any():
            refuse("bad-model", "a model with a negative σ̂")
        self.bounds.check(model.gram)

    def follow(self, message: Request) -> None:
        """This request was carried out."""
        match message:
            case Start(t=t):
                self.due, self.exploiting = 0, False
                self.unread = self.parameters.logged > 0 and t == 0
            case Stop():
                self.due, self.unread = self.parameters.horizon, False
            case Exploit():
                self.due, self.exploiting = self.parameters.horizon, True
            case Model(h=h):
                self.due = h - 1
                self.round += h == 1 and not self.exploiting
            case Models():
                self.due, self.round = 0, self.round + (not self.exploiting)

    def resume(self, recorded: RecordedCohort, round_: int) -> None:
        """A snapshot was restored, which was made before this round."""
        self.follow(recorded.start)
        self.round = round_
        self.exploiting = bool(recorded.deployed.size)

    def _may_exploit(self, beta: float, world: Experience) -> bool:
        """At the end of the run, once, and with the β that was agreed on."""
        p = self.parameters
        over = world.t == p.episodes and world.length == 0
        return over and p.exploit and beta == -p.pessimism and not self.exploiting

    def _expected(self) -> str:
        return f"the model of step {self.due} is next" if self.due else "a round is under way"

    def _check_start(self, start: Start) -> None:
        p = self.parameters
        for name, sent, agreed in (
            ("gamma", start.gamma, p.gamma),
            ("beta", start.beta, p.signed_beta),
            ("episodes", start.episodes, p.episodes),
        ):
            if sent != agreed:
                refuse(f"other-{name}", f"a Start with {name} {sent!r}, agreed was {agreed!r}")
        if not 0 <= start.t <= p.episodes:
            refuse("bad-start", f"a Start at episode {start.t} of {p.episodes}")
        _finite(w=start.w, gram=start.gram)
        self.bounds.check_start(start)
        try:
            for gram in start.gram:
                factorise(unpack(gram, p.dim, p.packing))
        except InvalidInput as error:
            refuse("bad-start", f"a Start with this model: {error}")


class Endpoint:
    """One cohort behind frames.

    Args:
        make: Builds the cohort as it is before its first message.
        parameters: The numbers that were agreed on.
        run: The number that the frames of this run carry.
        journal: Where snapshots and requests are written; None keeps nothing.
        outbox: The log of every frame that leaves.
        identity: Signs this site's key and verifies those of others; needed for secure sums.
        agreed: Hash of the job that this site was given (`privacy.transcript`).
    """

    def __init__(
        self,
        make: Callable[[], Cohort],
        parameters: Parameters,
        run: int,
        journal: Journal | None = None,
        outbox: Audit | None = None,
        identity: SiteIdentity | None = None,
        agreed: bytes = b"",
    ) -> None:
        p = parameters
        self.make, self.parameters, self.run = make, p, run
        self.layout = layout(p)
        self.journal, self.outbox, self.identity = journal, outbox, identity
        self._agreed = agreed
        self._privacy: SitePrivacy | None = None
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
        self._last, self._reply = NOTHING_YET, b""
        self._order = RequestOrder(self.parameters)
        pessimism, journal = self.parameters.pessimism, self.journal
        self._recorded = RecordedCohort(self.make, self.run, pessimism, journal)
        if journal is None:
            self._privacy = self._privacy or self._private()
            return
        self._privacy = self._private()
        snapshot, frames = self._recorded.recover(journal, self.layout)
        if snapshot is not None:
            with suspect(journal.folder):
                self._resume(snapshot.plain)
                epoch, number, at = snapshot.plain["last"]
                address = Address(self.run, epoch, number, at, *self.agents)
                self._answered(address, encode(None, address))
        for frame in frames:
            self._repeat(frame)

    def _private(self) -> SitePrivacy | None:
        """What hides this site's uploads and remembers them; None where nothing does."""
        if not remembers(self.parameters):
            return None
        about = self.parameters, self.run, self.agents, self.identity, self.journal
        return SitePrivacy(*about, self._agreed)

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
                f"snapshot after episode {self._recorded.kept} ({error}): restore it from a copy",
                code="journal-gap",
            ) from None
        if not heard:
            self._answered(address, self._answer(address, message))

    @property
    def agents(self) -> tuple[int, int]:
        """The number of the first agent, and how many there are."""
        return self._recorded.agents

    @property
    def asked(self) -> bytes:
        """(32,) hash of what this site was asked so far; empty where nothing depends on it."""
        return b"" if self._privacy is None else self._privacy.transcript.digest

    @property
    def cohort(self) -> Cohort:
        """The agents as they are now."""
        return self._recorded.cohort

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
                self._recorded.end_threads()
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
            self._go_back(message, address.round)
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
        if not isinstance(message, Start):  # whose round is that of its snapshot
            self._order.check_round(address.round)
        self._order.check(message, self.cohort.experience)
        if self._privacy is not None:
            self._privacy.check(message, self.cohort.experience)
        return False

    def _answer(
        self, address: Address, message: Request, signals: SignalExchange | None = None
    ) -> bytes:
        """Carry a request out, for the first time or again."""
        if isinstance(message, Keep):
            asked = None if self._privacy is None else self._privacy.transcript.digest
            self._recorded.keep(message.t, address, asked)
            return encode(None, address)
        until = None
        if signals is not None and isinstance(message, Explore):
            signals.begin(address.epoch, address.number)
            until = signals.until
        if self._privacy is None:
            reply = self.cohort.receive(message, until)
        else:
            reply = self._privacy.answer(self.cohort, self._order.round, message, until)
        self._follow(message)
        frame = encode(reply, address)
        if signals is not None and isinstance(reply, Signal) and reply.t > 0:
            signals.fired(frame)
        return frame

    def _answered(self, address: Address, reply: bytes) -> None:
        self._last, self._reply = (address.epoch, address.number), reply

    def _follow(self, message: Request) -> None:
        """Remember what may come next, and the model in force: a snapshot needs it."""
        self._order.follow(message)
        if isinstance(message, Start | Exploit | Model | Models):
            self._recorded.follow(message)

    def _go_back(self, start: Start, round_: int) -> None:
        """A server begins, or resumes after the episode of a snapshot."""
        if start.t == 0 and round_ != self._order.first_round:
            refuse("other-round", f"a Start at episode 0 in round {round_}")
        snapshot = self._recorded.go_back(start, round_)
        if start.t == 0:
            self._order.round = self._order.first_round
            if self._privacy is not None:
                self._privacy.begin()
        if snapshot is not None:
            self._resume(snapshot.plain)

    def _resume(self, plain: Mapping[str, Any]) -> None:
        """A snapshot with these plain values was restored."""
        self._order.resume(self._recorded, plain["last"][2])
        if self._privacy is not None:
            start, round_ = self._recorded.start, self._order.round
            self._privacy.resume(self._asked(plain), start, round_)

    def _asked(self, plain: Mapping[str, Any]) -> str | None:
        """What was asked before a snapshot. Earlier versions did not remember it under a floor."""
        p = self.parameters
        hidden = p.aggregation == "secure" or p.privacy is not None
        asked: str | None = plain["transcript"] if hidden else plain.get("transcript")
        return asked

    def end(self) -> bool:
        """The server has written down the last model: delete the secrets that uploads were hidden
        with, if this site has played all episodes too. Returns whether that is so."""
        with self._lock:
            p, world = self.parameters, self.cohort.experience
            over = world.t == p.episodes and world.length == 0 and self._order.due == 0
            over = over and self._order.exploiting == p.exploit
            # what a restart would repeat needs them
            over = over and self._recorded.kept == p.episodes
            if over and self._privacy is not None:
                self._privacy.end()
            return over

    def close(self) -> None:
        """End the cohort's threads and release the journal."""
        self._recorded.end_threads()
        if self._privacy is not None:
            self._privacy.close()
        if self.journal is not None:
            self.journal.close()


def refuse(code: str, why: str) -> NoReturn:
    """Refuse a request."""
    raise MessageRefused(why, code=code) from None


def _finite(**arrays: np.ndarray) -> None:
    for name, array in arrays.items():
        # so large that some values would overflow: which ones would depend on what was seen
        if not (np.abs(array) <= LARGEST).all():
            refuse("model-not-finite", f"{name} of a model is not finite, or beyond {LARGEST:g}")
