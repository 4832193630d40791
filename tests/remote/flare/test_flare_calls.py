"""The server's side of FLARE over proxies that are objects here: conformance without an engine."""

from __future__ import annotations

from threading import Event
from typing import Any, Literal

import numpy as np
import pytest

from expecting import refused
from fedlsvi.errors import TransportError
from fedlsvi.protocol.messages import Explore, Signal
from fedlsvi.remote.codec import Address, decode_request, encode
from fedlsvi.remote.conformance import RUN, check_transport, opened, parameters, uploads
from fedlsvi.remote.flare.job import Coordinator
from fedlsvi.remote.flare.transport import Flare
from fedlsvi.remote.guard import Refusal
from fedlsvi.remote.retry_policy import RetryPolicy
from patience import PATIENCE


class Proxy:
    """What FLARE gives the server for a site: calls with options."""

    def __init__(self, handler: Any) -> None:
        self.handler, self.name = handler, f"site-{handler.first}"
        self.paced: list[tuple[int, int, int]] = []

    def __call__(self, **options: Any) -> Proxy:
        return self

    def handle(self, frame: bytes) -> bytes:
        reply: bytes = self.handler.handle(frame)
        return reply

    def signalled_elsewhere(self, epoch: int, number: int, t: int) -> None:
        self.paced.append((epoch, number, t))


class Unreachable(Proxy):
    """A site whose calls fail, after the first, which is Start."""

    def handle(self, frame: bytes) -> bytes:
        if self.handler.asked > 0:
            raise ConnectionError("no route to site")
        return super().handle(frame)


class CutOff(Proxy):
    """A site that announces its signal and is cut off before it can answer."""

    transport: Flare
    said = b""

    def handle(self, frame: bytes) -> bytes:
        address, message = decode_request(frame, self.handler.layout)
        if not isinstance(message, Explore):
            return super().handle(frame)
        self.said = encode(Signal(3, np.array([2]), np.array([1])), address)
        self.transport.signalled(self.said)
        raise ConnectionError("no route to site")


class Told(Proxy):
    """A site that hears of a signal before it fires itself, and then says nothing."""

    def __init__(self, handler: Any) -> None:
        super().__init__(handler)
        self.heard = Event()

    def signalled_elsewhere(self, epoch: int, number: int, t: int) -> None:
        super().signalled_elsewhere(epoch, number, t)
        self.heard.set()

    def handle(self, frame: bytes) -> bytes:
        address, message = decode_request(frame, self.handler.layout)
        if isinstance(message, Explore):
            assert self.heard.wait(PATIENCE)
            if (address.epoch, address.number) in [turn[:2] for turn in self.paced]:
                return encode(Signal.silence(), address)
        return super().handle(frame)


def flare(
    made: Any, retry: RetryPolicy, kind: type[Proxy] = Proxy, others: type[Proxy] = Proxy
) -> Flare:
    handlers = [make() for make in made]
    kinds = [others, kind, others]
    proxies = [one(handler) for one, handler in zip(kinds, handlers, strict=True)]
    cuts = [handler.agents for handler in handlers]
    return Flare(parameters(6), proxies, cuts, RUN, retry)


def test_conformance() -> None:
    check_transport(flare)


def test_a_site_that_cannot_be_reached_is_named() -> None:
    transport = opened(lambda m, p: flare(m, p, Unreachable), "none", RetryPolicy(PATIENCE, 2))
    with refused(
        TransportError, "no-answer", "site-2's agent 2", "round 1", "Explore", f"{PATIENCE:g} s"
    ):
        uploads(transport)
    assert transport.reachability.missing() == []
    transport.membership.excluded[1] = "away"
    assert transport.reachability.missing() == ["site-2's agent 2 is excluded (away)"]
    transport.close()


def test_a_refusal_names_the_site_of_its_agent() -> None:
    coordinator = Coordinator({})
    refusal = Refusal(2, 5, 1, "trace", 9.0, "at most 8")
    assert coordinator._sentence(refusal) == str(refusal)
    coordinator._transport = opened(flare, "none", RetryPolicy(PATIENCE, 1))
    assert coordinator._sentence(refusal) == f"site site-2: {refusal}"
    coordinator._transport.close()


def test_a_signal_is_passed_on_once_and_only_if_it_belongs_to_the_round() -> None:
    """To the other sites, with the numbers of the requests that they explore; one that is later,
    of an earlier request or unlawful goes nowhere."""
    transport: Any = opened(flare, "none", RetryPolicy(PATIENCE, 1))
    transport.deliver(Explore(5))
    transport._answered.clear()  # as while they explore
    turns, (one, two, three) = transport.turns, transport.proxies

    def say(t: int, number: int, agent: int = 2) -> None:
        address = Address(RUN, turns[1][0], number, transport.guard.round, 2, 1)
        signal = Signal(t, np.array([agent]), np.array([1]))
        transport.signalled(encode(signal, address))

    now = turns[1][1]
    say(3, now - 1)
    say(4, now, agent=0)
    assert not one.paced
    say(4, now)
    say(5, now)
    say(3, now)
    assert one.paced == three.paced == [(*turns[0], 4), (*turns[0], 3)]
    assert not two.paced
    transport.close()


@pytest.mark.parametrize("absent", ["carry", "exclude"])
def test_the_others_go_on_when_who_signalled_is_cut_off(
    absent: Literal["carry", "exclude"],
) -> None:
    """They stopped at its episode and have nothing to say; asked again they go on without it, and
    what it says later, of the request that it was lost with, goes nowhere."""
    retry = RetryPolicy(PATIENCE, 1, absent=absent)
    transport: Any = opened(lambda m, p: flare(m, p, CutOff, Told), "none", retry)
    one, two, _ = transport.proxies
    two.transport = transport
    signal = transport.wait(0, 100)
    assert (signal.t, signal.agents.tolist()) == (5, [0, 1, 3, 4, 5])
    told = list(one.paced)
    assert len(told) == 1
    transport.signalled(two.said)
    assert one.paced == told
    transport.close()
