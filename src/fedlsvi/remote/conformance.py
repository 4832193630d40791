"""The conformance suite of transports: what every one of them must do with agents that misbehave.

`check_contract` is for all transports, `check_transport` for those that carry bytes. Each check
raises `AssertionError` with a sentence. The suite plays the server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedlsvi.config import Parameters, Settings
from fedlsvi.core.statistics import packed_size
from fedlsvi.errors import FedLSVIError, MessageRefused, TransportError
from fedlsvi.groups import ProblemSize
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.messages import Explore, Layout, Reply, Request, Signal, Start, Stop, Upload
from fedlsvi.protocol.transport import Transport, layout
from fedlsvi.remote.codec import Address, Failure, decode_request, encode
from fedlsvi.remote.frame_transport import FrameHandler, FrameTransport
from fedlsvi.remote.retry_policy import RetryPolicy

Fault = Literal["none", "raises", "late", "twice", "garbage", "stale", "silent", "silent once"]
Factories = Sequence[Callable[[], FrameHandler]]
Make = Callable[[Factories, RetryPolicy], FrameTransport]

START_SECONDS = 600.0
"""For cohorts that do answer, whose engine may have to start first, on a busy machine."""

RUN = 7


def parameters(n_agents: int) -> Parameters:
    """A small problem: H = 2, d = 3, one-hot."""
    return Settings(n_agents=n_agents, gamma=5.0).resolve(ProblemSize(100, 2, 3, True))


@dataclass
class Echo:
    """A frame handler without a cohort: it signals at episode 5 and uploads counts that identify
    it; `fault` says how it misbehaves."""

    first: int
    count: int
    layout: Layout
    fault: Fault = "none"
    delay: float = 0.0
    asked: int = 0
    explored: int = 0

    @property
    def agents(self) -> tuple[int, int]:
        return self.first, self.count

    def handle(self, frame: bytes) -> bytes:
        self.asked += 1
        address, message = decode_request(frame, self.layout)
        reply = encode(self.answer(message), address)
        if isinstance(message, Start):
            return reply
        match self.fault:
            case "raises":
                return encode(Failure("RuntimeError"), address)
            case "late" if self.asked == 2:
                time.sleep(self.delay)
            case "twice":
                return reply + reply
            case "garbage":
                return reply[:-3] + b"xyz"
            case "stale":
                old = Address(address.run, address.epoch, address.number - 1, address.round,
                              address.first, address.agents)  # fmt: skip
                return encode(self.answer(message), old) + reply
            case "silent":
                return b""
            case "silent once" if self.asked == 2:
                return b""
        return reply

    def answer(self, message: Request) -> Reply:
        """What an honest agent of this small problem would answer."""
        if isinstance(message, Explore):
            self.explored += message.limit
            names = np.arange(self.first, self.first + self.count)
            fires = Signal(5, names, np.ones_like(names))
            return fires if self.explored >= 5 else Signal.silence()
        if isinstance(message, Stop):
            P = self.layout.packed
            gram = np.zeros((self.count, P))
            gram[:, self.first % P] = message.t
            behind = [0.5 * message.t, message.t]  # half of the targets are 1: Σy², and how many
            b = np.empty((self.count, self.layout.responses))
            b[:, :P], b[:, P:] = 0.5 * gram, behind[: self.layout.responses - P]
            return Upload(self.layout.horizon, gram, b)
        return None

    def end(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing to release."""


class EchoCohort(Cohort):
    """An `Echo` that is called directly, where no bytes travel."""

    def __init__(self, echo: Echo) -> None:
        self.agents, self._echo = np.arange(echo.first, echo.first + echo.count), echo

    @property
    def block(self) -> int:
        return 2**31 - 1

    def receive(self, message: Request, until: Callable[[int], int] | None = None) -> Reply:
        return self._echo.answer(message)


@dataclass(frozen=True)
class EchoFactory:
    """Makes an `Echo` in the process that calls it."""

    first: int
    count: int
    layout: Layout
    fault: Fault = "none"
    delay: float = 0.0

    def __call__(self) -> Echo:
        return Echo(self.first, self.count, self.layout, self.fault, self.delay)


def check_contract(
    make: Callable[[Sequence[Cohort], Factories, RetryPolicy], Transport],
) -> None:
    """Check the first half of a round on any transport.

    Every cohort is reached, the earliest signal ends the round and names every agent that raised
    it, uploads come in agent order, and each agent's scalars are in the ledger.

    Args:
        make: Called as make(cohorts, factories, retry), returns the transport: small cohorts for
            one that calls them, factories of frame handlers for one that carries bytes, perhaps to
            other processes.
    """
    made = _factories("none")
    transport = make([EchoCohort(one()) for one in made], made, RetryPolicy(START_SECONDS, 1))
    try:
        start = _start()
        transport.broadcast(start)
        signal = transport.wait(0, 100)
        assert signal.t == 5, f"the round ends at episode {signal.t}, the signal was 5"
        assert signal.agents.tolist() == list(range(6)), f"signalled: {signal.agents}"
        came = [u for u in transport.broadcast(Stop(5)) if isinstance(u, Upload)]
        _in_order(np.concatenate([upload.gram for upload in came]))
        found = transport.ledger.by_agent
        assert (found["init"] == start.scalars).all(), f"init: {found['init']}"
        scalars = sum(upload.scalars for upload in came) // 6
        assert (found["up_stats"] == scalars).all(), f"up_stats: {found['up_stats']}"
        assert (found["signal"] >= 3).all(), f"signal: {found['signal']}"
    finally:
        transport.close()


def check_transport(make: Make) -> None:
    """Run every check; a transport of bytes that passes can carry Fed-LSVI.

    Args:
        make: Called as make(factories, retry), returns the transport.
    """
    check_contract(lambda _, made, retry: make(made, retry))
    check_order(make)
    check_duplicates(make)
    check_late(make)
    check_raising(make)
    check_garbage(make)
    check_exclusion(make)
    check_carrying(make)


def _factories(fault: Fault, delay: float = 0.0) -> list[EchoFactory]:
    """Three cohorts of 2, 1 and 3 agents, the middle one with a fault."""
    sizes = layout(parameters(6))
    shares: list[tuple[int, int, Fault]] = [(0, 2, "none"), (2, 1, fault), (3, 3, "none")]
    return [EchoFactory(first, count, sizes, bad, delay) for first, count, bad in shares]


def _start() -> Start:
    p = parameters(6)
    gram = np.full((p.horizon, packed_size(p.dim, p.packing)), 1e3)
    return Start(np.zeros((p.horizon, p.dim + p.noisy)), gram, p.gamma, p.signed_beta, p.episodes)


def _in_order(grams: np.ndarray) -> None:
    columns = grams.argmax(axis=1).tolist()
    assert columns == [0, 0, 2, 0, 0, 0], f"replies are out of order: {columns}"


def opened(make: Make, fault: Fault, retry: RetryPolicy, delay: float = 0.0) -> FrameTransport:
    """A transport to which Start was delivered."""
    transport = make(_factories(fault, delay), retry)
    transport.deliver(_start())
    return transport


def uploads(transport: FrameTransport) -> Upload:
    """The first half of a round: explore, stop, and what came."""
    signals = [s for s in transport.deliver(Explore(5)) if isinstance(s, Signal)]
    assert [s.t for s in signals] == [5] * len(signals), "a signal came back changed"
    came = [reply for reply in transport.deliver(Stop(5)) if isinstance(reply, Upload)]
    assert len(came) == len(transport.cuts), "not one upload for each cohort"
    gram, b = (np.concatenate([getattr(u, name) for u in came]) for name in ("gram", "b"))
    return Upload(came[0].h, gram, b)


def check_order(make: Make) -> None:
    """Every cohort is reached, and replies come in agent order."""
    transport = opened(make, "none", RetryPolicy(START_SECONDS, 1))
    try:
        _in_order(uploads(transport).gram)
        assert transport.ignored == 0, "a reply was ignored"
    finally:
        transport.close()


def check_duplicates(make: Make) -> None:
    """A reply that comes twice, or answers an earlier request, has no effect."""
    faults: tuple[Fault, Fault] = ("twice", "stale")
    for fault in faults:
        transport = opened(make, fault, RetryPolicy(START_SECONDS, 1))
        try:
            assert uploads(transport).gram.sum() == 30.0, f"{fault}: counted more than once"
            assert transport.ignored >= 2, f"{fault}: not noticed"
        finally:
            transport.close()


def check_late(make: Make) -> None:
    """A cohort that is late or silent is asked again; the error names one that stays away."""
    transport = opened(make, "late", RetryPolicy(0.4, 100), delay=0.9)
    try:
        assert uploads(transport).gram.sum() == 30.0, "late: counted wrongly"
    finally:
        transport.close()
    transport = opened(make, "silent once", RetryPolicy(30.0, 2))
    try:
        assert uploads(transport).gram.sum() == 30.0, "silent: counted wrongly"
    finally:
        transport.close()
    transport = opened(make, "silent", RetryPolicy(30.0, 1))
    _must_fail(transport, TransportError, "agent 2")


def check_raising(make: Make) -> None:
    """An error at an agent stops the run with the error's name."""
    transport = opened(make, "raises", RetryPolicy(START_SECONDS, 2))
    _must_fail(transport, TransportError, "RuntimeError")


def check_garbage(make: Make) -> None:
    """Bytes that are not a message are refused, and the refusal names the agent."""
    transport = opened(make, "garbage", RetryPolicy(START_SECONDS, 2))
    _must_fail(transport, MessageRefused, "agent 2")


def check_exclusion(make: Make) -> None:
    """With `exclude` the others continue, and a note says so."""
    transport = opened(make, "garbage", RetryPolicy(START_SECONDS, 2, refused="exclude"))
    try:
        upload = uploads(transport)
        assert upload.gram.sum() == 25.0, "excluded but counted"
        assert not upload.gram[2].any(), "excluded but counted"
        assert list(transport.membership.excluded) == [1], "not excluded"
        assert "agent 2" in _noted(transport), "not noted"
    finally:
        transport.close()


def _noted(transport: FrameTransport) -> str:
    """The notes for the record of the round under way."""
    return "\n".join(str(text) for _, _, text in transport.reachability.notes.state())


def check_carrying(make: Make) -> None:
    """With `carry` the round closes without a silent cohort, and a note says so."""
    transport = opened(make, "silent once", RetryPolicy(30.0, 1, absent="carry"))
    try:
        upload = uploads(transport)
        assert not upload.gram[2].any(), "away but counted"
        assert upload.gram.sum() == 25.0, "the others are not all counted"
        assert list(transport.membership.away) == [1], "not carried"
        assert not transport.membership.excluded, "excluded"
        assert "agent 2 carried" in _noted(transport), "not noted"
    finally:
        transport.close()


def _must_fail(transport: FrameTransport, kind: type[FedLSVIError], words: str) -> None:
    said = ""
    try:
        uploads(transport)
    except kind as error:
        said = str(error)
    finally:
        transport.close()
    assert said, f"no {kind.__name__} was raised"
    assert words in said, f"the error does not say {words!r}: {said}"
