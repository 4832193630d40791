"""What FLARE keeps of answers that have arrived: few, however many there were."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from nvflare.fuel.f3.streaming.stream_const import StreamDataType
from streams import all_removed, arrives, kept, sleepers

from fedlsvi.remote.flare.received_streams import ReceivedStreams


@pytest.fixture(autouse=True)
def removed() -> Iterator[None]:
    with all_removed():
        yield


def test_an_answer_goes_when_the_exchange_after_its_own_has_ended() -> None:
    received, others, before = ReceivedStreams(), set(sleepers()), kept()

    def mine() -> list[int]:  # other tests of this process may have left answers
        return [number for number in kept() if number not in before]

    first = [arrives(b"one"), arrives(b"two")]
    assert len(set(sleepers()) - others) == 2
    received.exchange_ended()
    assert mine() == first
    assert arrives(b"two", number=first[1]) == first[1]  # a piece again: it is acknowledged
    second = [arrives(b"three")]
    received.exchange_ended()
    assert mine() == second
    assert len(set(sleepers()) - others) == 1
    received.exchange_ended()
    assert (mine(), set(sleepers()) - others) == ([], set())


def test_what_has_not_arrived_whole_stays() -> None:
    received = ReceivedStreams()
    number = arrives(b"a part", StreamDataType.CHUNK)
    for _ in range(3):
        received.exchange_ended()
    assert number in kept()


@pytest.mark.parametrize(
    "kind",
    [
        SimpleNamespace(rx_task_map={}),
        type("Other", (), {"rx_task_map": {}, "_remove_task": lambda self: None}),
    ],
)
def test_another_version_is_left_alone(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        received = ReceivedStreams(kind)
    assert "version" in caplog.text
    number = arrives(b"one")
    for _ in range(3):
        received.exchange_ended()
    assert number in kept()
