"""Every scalar stands under its category and beside its agent, and has eight bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from expecting import refused
from fedlsvi.core.trigger import Trigger
from fedlsvi.errors import TransportError
from fedlsvi.protocol.ledger import CATEGORIES, Ledger
from fedlsvi.protocol.messages import (
    Explore,
    Keep,
    Model,
    Reply,
    Request,
    Signal,
    Start,
    Stop,
    Upload,
)
from fedlsvi.protocol.transport import Transport

M, H, D, P = 3, 2, 2, 3


def worked() -> Ledger:
    """Each of three agents 10 down and 4 up; agents 0 and 2 signal with 2; agent 2 sends 5 more."""
    ledger = Ledger(M)
    ledger.each("down_model", 10)
    ledger.each("up_stats", 4)
    ledger.some("signal", np.array([0, 2]), 2)
    ledger.some("up_stats", np.array([2]), 5)
    return ledger


def test_by_hand() -> None:
    ledger = worked()
    expected = {"down_model": 30, "up_stats": 17, "signal": 4}
    assert ledger.scalars == dict.fromkeys(CATEGORIES, 0) | expected
    assert ledger.bytes == dict.fromkeys(CATEGORIES, 0) | {c: 8 * n for c, n in expected.items()}
    assert ledger.total == 51
    by_agent = {c: column.tolist() for c, column in ledger.by_agent.items()}
    each = {"down_model": [10, 10, 10], "up_stats": [4, 4, 9], "signal": [2, 0, 2]}
    assert by_agent == {c: each.get(c, [0, 0, 0]) for c in CATEGORIES}
    assert not ledger.alike


def test_read_back() -> None:
    ledger = worked()
    written = json.loads(json.dumps(ledger.to_dict()))
    assert written["bytes"]["up_stats"] == 8 * 17
    again = Ledger.from_dict(written)
    assert again.to_dict() == ledger.to_dict()
    for category, column in ledger.by_agent.items():
        assert np.array_equal(again.by_agent[category], column)


class Echo(Transport):
    """Two cohorts, of one and of two agents, who answer at once."""

    def deliver(self, message: Request) -> Sequence[Reply]:
        match message:
            case Stop():
                return [Upload(H, np.zeros((m, P)), np.zeros((m, D))) for m in (1, 2)]
            case Explore():
                return [Signal(1, np.array([0]), np.array([1])), Signal.silence()]
        return [None, None]


@pytest.mark.parametrize(("message", "expected"), [
    (Start(np.zeros((H, D)), np.zeros((H, P)), 4.0, 1.0, 9), {"init": H * (P + D) + 3}),
    (Stop(1), {"signal": 1, "up_stats": P + D}),
    (Model(1, np.zeros(D), np.zeros(P)), {"down_model": P + D}),
    (Keep(1), {"signal": 1}),
], ids=lambda x: type(x).__name__)  # fmt: skip
def test_a_broadcast_counts_once_for_each_agent(message: Request, expected: dict[str, int]) -> None:
    transport = Echo(M, Trigger(4.0, 9))
    transport.broadcast(message)
    ledger = transport.ledger
    assert ledger.scalars == {c: M * expected.get(c, 0) for c in CATEGORIES}
    assert ledger.bytes == {c: 8 * M * expected.get(c, 0) for c in CATEGORIES}
    assert ledger.alike


def test_a_signal_counts_for_whoever_raised_it() -> None:
    """2 of agent 0; where agents cannot call, the question and its answer are 2 of each."""
    transport = Echo(M, Trigger(4.0, 9))
    transport.wait(0, 9)
    assert transport.ledger.by_agent["signal"].tolist() == [2, 0, 0]
    transport = Echo(M, Trigger(4.0, 9))
    transport.asks = True
    transport.wait(0, 9)
    assert transport.ledger.by_agent["signal"].tolist() == [4, 2, 2]
    assert transport.ledger.total == transport.ledger.scalars["signal"] == 8


def test_a_transport_without_sites_says_so() -> None:
    with refused(TransportError, "no-sites", "Echo"):
        Echo(M, Trigger(4.0, 9)).sites()
