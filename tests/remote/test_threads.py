"""The transport contract over threads, and runs that are the in-process run to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import problems
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.errors import MessageRefused
from fedlsvi.features import RBFFeatures, TileFeatures
from fedlsvi.protocol.transport import InProcess
from fedlsvi.remote.conformance import (
    RUN,
    check_contract,
    check_transport,
    opened,
    parameters,
    uploads,
)
from fedlsvi.remote.frame_transport import ThreadTransport
from fedlsvi.remote.retry_policy import RetryPolicy
from patience import PATIENCE
from transports_over_frames import assert_same, learn, over_frames

BOX: dict[str, Any] = {"low": [-2.4, -3.0, -0.3, -3.0], "high": [2.4, 3.0, 0.3, 3.0]}
ZOO = [*problems.finite_zoo(), problems.heterogeneous(M=5), problems.continuous()]


def test_conformance() -> None:
    check_transport(lambda made, retry: ThreadTransport(parameters(6), made, RUN, retry))


@pytest.mark.parametrize("reply", [None, 3, "words"])
def test_what_is_not_bytes_is_refused(reply: Any) -> None:
    transport: Any = opened(
        lambda made, retry: ThreadTransport(parameters(6), made, RUN, retry),
        "none",
        RetryPolicy(PATIENCE, 1),
    )
    transport.handlers[1].handle = lambda frame: reply
    with refused(MessageRefused, "answer-not-bytes", "agent 2"):
        uploads(transport)
    transport.close()


def test_conformance_in_process() -> None:
    """Calls cannot be late, doubled or garbled: the contract is all there is."""
    check_contract(lambda cohorts, made, retry: InProcess(cohorts, parameters(6).trigger))


@pytest.mark.parametrize("problem", ZOO, ids=lambda p: p.name)
def test_same_run_as_in_process(problem: Any) -> None:
    """The guard is on: every honest upload of the zoo passes it."""
    here = learn(problem)
    for cohorts in (1, 3):
        assert_same(here, learn(problem, transport=over_frames(cohorts)))


@pytest.mark.parametrize(
    "features", [RBFFeatures(2, **BOX), TileFeatures(1, tiles=2, **BOX)], ids=["rbf", "tiles"]
)
def test_the_guard_takes_episodes_that_end_early(features: Any) -> None:
    """Features of every state sum to one; of an episode that has ended there are none."""
    pole = problems.Problem("pole", "CartPole-v1", np.empty(0), features)
    own: Any = {"horizon": 25, "stationary": False}
    here = learn(pole, **own)
    assert here.gram[-1].sum() < 5 * 60
    assert_same(here, learn(pole, transport=over_frames(2), **own))


def test_control_messages_are_counted_as_signals() -> None:
    here = learn(problems.simplex())
    there = learn(problems.simplex(), transport=over_frames(2))
    assert there.ledger.scalars["signal"] > here.ledger.scalars["signal"]
    assert (there.ledger.scalars["signal"] - here.ledger.scalars["signal"]) % (2 * 5) == 0


def test_bytes_on_the_wire_are_eight_per_scalar() -> None:
    """One agent per process and d = 32: frames add less than a tenth."""
    problem = problems.simplex(S=40, A=3, d=32, H=4)
    sessions = FedLSVI(n_agents=3, gamma=30.0).prepare(
        problem.envs, 200, 0, transport=over_frames(3)
    )
    for _ in sessions.rounds():
        pass
    sessions.close()
    sent = sum(c.up + c.down for c in sessions.player.transport.contacts.cohorts)
    counted = 8 * sessions.player.transport.ledger.total
    assert counted <= sent <= 1.1 * counted, (sent, counted)
