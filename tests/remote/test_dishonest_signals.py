"""A site that lies about when it learned enough is named itself, and no honest one in its place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import problems
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.errors import TransportError
from fedlsvi.learner import drive
from fedlsvi.protocol.messages import Explore, Reply, Signal
from fedlsvi.remote.codec import Address, decode_request, encode
from fedlsvi.remote.conformance import RUN, opened, parameters
from fedlsvi.remote.flare import job as engine
from fedlsvi.remote.flare.transport import Flare
from fedlsvi.remote.guard import Refusal
from fedlsvi.remote.retry_policy import RetryPolicy
from patience import PATIENCE
from transports_over_frames import over_frames

EPISODES = 100
LIAR = 2


def session_with_a_liar(overshoot: Any, retry: RetryPolicy, lie: Callable[[int], Signal]) -> Any:
    """Agents 0 and 1 are honest; at its first question of round 3 the cohort of agent 2 answers
    with `lie` of the episode after which the round began."""
    learner = FedLSVI(n_agents=3, gamma=40.0, beta=0.5, lam=0.5, overshoot=overshoot)
    session = learner.prepare(
        problems.simplex().envs, EPISODES, 1, transport=over_frames(3, retry=retry)
    )
    transport: Any = session.player.transport
    honest = transport.handlers[LIAR].handle

    def handle(frame: bytes) -> bytes:
        reply: bytes = honest(frame)
        address, message = decode_request(frame, transport.layout)
        if address.round == 3 and isinstance(message, Explore):
            transport.asked = message.limit
            return encode(lie(transport.guard.t), address)
        return reply

    transport.handlers[LIAR].handle = handle
    return session


def far(t: int) -> Signal:
    """No round is that long: the others would be led beyond their own triggers."""
    return Signal(t + 39, np.array([LIAR]), np.array([1]))


def at_the_end(t: int) -> Signal:
    """Where nobody has to show a determinant."""
    return Signal(EPISODES, np.array([LIAR]), np.array([0]))


@pytest.mark.parametrize("overshoot", ["cut", "keep"])
@pytest.mark.parametrize("lie", [far, at_the_end])
def test_a_signal_beyond_what_was_asked_names_its_sender(lie: Any, overshoot: str) -> None:
    session = session_with_a_liar(overshoot, RetryPolicy(PATIENCE, 1), lie)
    with refused(Refusal, "impossible-message", "agent 2, round 3", "signal's t") as caught:
        drive(session, [])
    start, asked = session.player.server.t, session.player.transport.asked
    assert 0 < asked < 39
    assert caught.value.bound == f"{start + 1} to {start + asked}"


@pytest.mark.parametrize("overshoot", ["cut", "keep"])
@pytest.mark.parametrize("lie", [far, at_the_end])
def test_the_others_go_on_without_a_liar(lie: Any, overshoot: str) -> None:
    retry = RetryPolicy(PATIENCE, 1, refused="exclude")
    session = session_with_a_liar(overshoot, retry, lie)
    drive(session, [])
    assert list(session.player.transport.membership.excluded) == [LIAR]
    assert session.player.server.t == EPISODES
    assert all(record.overshoot >= 0 for record in session.records)


def test_the_last_episode_that_was_asked_for_may_be_signalled() -> None:
    """Also in the second question of a round: the numbers that were asked for add up."""
    learner = FedLSVI(n_agents=2, gamma=6.0)
    session = learner.prepare(problems.simplex().envs, 20, 0, transport=over_frames(1))
    guard = session.player.transport.guard  # type: ignore[attr-defined]
    guard.sends(session.player.server.parameters())
    for limit, last in ((1, 1), (2, 3), (9, 6)):
        guard.sends(Explore(limit))
        guard.signal(0, 2, Signal(last, np.array([1]), np.array([1])))
        with refused(Refusal, "impossible-message", f"1 to {last}"):
            guard.signal(0, 2, Signal(last + 1, np.array([1]), np.array([1])))
    session.close()


# sites of FLARE announce what they then answer


class Site:
    """What FLARE gives the server for a site; an honest one says nothing once it was told to stop
    at an episode before its own."""

    transport: Flare

    def __init__(self, handler: Any) -> None:
        self.handler, self.name = handler, f"site-{handler.first}"
        self.told = Event()
        self.paced: list[int] = []

    def __call__(self, **options: Any) -> Site:
        return self

    def signalled_elsewhere(self, epoch: int, number: int, t: int) -> None:
        self.paced.append(t)
        self.told.set()

    def handle(self, frame: bytes) -> bytes:
        address, message = decode_request(frame, self.handler.layout)
        if isinstance(message, Explore) and self.waits > 0:
            self.waits -= 1
            assert self.told.wait(PATIENCE)
            self.told.clear()
            return encode(Signal.silence(), address)
        reply: bytes = self.handler.handle(frame)
        return reply

    waits = 0
    """How often an honest site is told before it comes to its own trigger."""


class Liar(Site):
    """Announces episode 1, unless it answers `first`, and answers with another."""

    answer = 4
    first = "announce"

    def handle(self, frame: bytes) -> bytes:
        address, message = decode_request(frame, self.handler.layout)
        if not isinstance(message, Explore):
            return super().handle(frame)
        if self.first == "announce":
            self.announce(1, address)
        return encode(self._signal(self.answer), address)

    def announce(self, t: int, address: Address) -> None:
        self.transport.signalled(encode(self._signal(t), address), self.name)

    def _signal(self, t: int) -> Signal:
        return Signal(t, np.array([2]), np.array([1])) if t else Signal.silence()


def flare(
    made: Any, retry: RetryPolicy, liar: type[Site] = Liar, waits: int = 1, **options: Any
) -> Flare:
    handlers = [make() for make in made]
    kinds = (Site, liar, Site)
    proxies = [kind(handler) for kind, handler in zip(kinds, handlers, strict=True)]
    cuts = [handler.agents for handler in handlers]
    transport = Flare(parameters(6), proxies, cuts, RUN, retry)
    for proxy in proxies:
        proxy.transport = transport
    for key, value in options.items():
        setattr(proxies[1], key, value)
    proxies[0].waits = proxies[2].waits = waits
    return transport


@pytest.mark.parametrize("answer", [4, 2, 0])
def test_who_answers_another_episode_than_it_announced_is_named(answer: int) -> None:
    """The others were sent to episode 1 and would be asked to play up to episode 4."""
    transport = opened(partial(flare, answer=answer), "none", RetryPolicy(PATIENCE, 1))
    with refused(Refusal, "impossible-message", "agent 2, round 1", f"signal's t is {answer}"):
        transport.wait(0, 100)
    transport.close()


def test_who_was_lost_may_be_silent_where_somebody_was_earlier() -> None:
    """It announced episode 5, died, and was sent to episode 3 when it was asked again."""
    transport: Any = opened(partial(flare, liar=Site), "none", RetryPolicy(PATIENCE, 1))
    transport.request, transport._announced = Explore(5), {1: 5}
    with refused(Refusal, "impossible-message", "signal's t is 0", "5"):
        transport.check_reply(1, Signal.silence())
    transport._passed = 5  # by itself
    with refused(Refusal, "impossible-message", "signal's t"):
        transport.check_reply(1, Signal.silence())
    transport._passed = 3
    transport.check_reply(1, Signal.silence())
    transport.close()


def test_the_others_are_asked_again_without_it() -> None:
    transport: Any = opened(flare, "none", RetryPolicy(PATIENCE, 1, refused="exclude"))
    signal = transport.wait(0, 100)
    assert list(transport.membership.excluded) == [1]
    assert (signal.t, signal.agents.tolist()) == (5, [0, 1, 3, 4, 5])
    transport.close()


@pytest.mark.parametrize(("announced", "passed"), [(1, []), (0, []), (4, [4])])
def test_what_is_announced_after_the_answer_is_the_answer_or_nothing(
    announced: int, passed: list[int]
) -> None:
    """Who has answered cannot send the others elsewhere while they explore, nor afterwards."""
    made = partial(flare, first="answer", waits=0)
    transport: Any = opened(made, "none", RetryPolicy(PATIENCE, 1))
    one, liar, _ = transport.proxies
    taken, check = Event(), transport.check_reply

    def checked(c: int, reply: Reply) -> None:
        check(c, reply)
        if c == 1 and isinstance(reply, Signal):
            taken.set()

    def explores(frame: bytes) -> bytes:
        address, message = decode_request(frame, one.handler.layout)
        if isinstance(message, Explore):
            assert taken.wait(PATIENCE)
            liar.announce(announced, address._replace(first=2, agents=1))
        reply: bytes = one.handler.handle(frame)
        return reply

    transport.check_reply, one.handle = checked, explores
    assert transport.wait(0, 100).t == 4
    assert one.paced == passed
    counted = transport.ledger.to_dict()
    liar.announce(announced, transport.address(1))
    assert one.paced == passed
    assert transport.ledger.to_dict() == counted
    transport.close()


def test_no_site_speaks_for_another() -> None:
    """Nor for itself when it is asked for something else, nor without an episode."""
    made = partial(flare, liar=Site, waits=0)
    transport: Any = opened(made, "none", RetryPolicy(PATIENCE, 1))
    one, two, three = transport.proxies
    early = encode(Signal(1, np.array([2]), np.array([1])), transport.address(1))
    transport.signalled(early, two.name)
    transport.deliver(Explore(5))
    transport._answered.clear()  # as while they explore
    frame = encode(Signal(3, np.array([2]), np.array([1])), transport.address(1))
    for name in (one.name, three.name, "site-9", ""):
        transport.signalled(frame, name)
    transport.signalled(encode(Signal.silence(), transport.address(1)), two.name)
    assert not one.paced
    assert not three.paced
    transport.signalled(frame, two.name)
    assert one.paced == three.paced == [3]
    transport.close()


def test_the_coordinator_asks_the_engine_who_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[bytes, str]] = []
    coordinator: Any = engine.Coordinator({})
    coordinator.signal(b"early")
    coordinator._transport = SimpleNamespace(signalled=lambda *given: heard.append(given))
    monkeypatch.setattr(engine, "collab", SimpleNamespace(caller="south"))
    coordinator.signal(b"frame")
    assert heard == [(b"frame", "south")]


def test_a_site_writes_no_line_into_the_log_of_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What comes with an error of the engine is a site's to choose."""
    text = "gone\nERROR - this run ends: all is well\x1b[2J\u202e"

    class Gone(Site):
        def handle(self, frame: bytes) -> bytes:
            _, message = decode_request(frame, self.handler.layout)
            if isinstance(message, Explore):
                raise ConnectionError(text)
            return super().handle(frame)

    transport = opened(partial(flare, liar=Gone, waits=0), "none", RetryPolicy(PATIENCE, 1))
    with refused(TransportError, "no-answer", "Explore"):
        transport.wait(0, 100)
    transport.close()
    (said,) = [r.getMessage() for r in caplog.records if "no answer from" in r.getMessage()]
    assert said == "no answer from site-2: gone ERROR - … all is well [2J"
