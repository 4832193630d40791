"""A message is a read-only value: whoever keeps one finds later what was sent."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from fedlsvi import FedLSVI
from fedlsvi.envs import ContinuousLinearMDP, Garnet, RandomLinearMDP, gymnasium
from fedlsvi.protocol.messages import Model, Signal, Start, Upload

SMALL = RandomLinearMDP(6, 3, 4, horizon=3, seed=1, initial="uniform")


def arrays(message: Any) -> list[np.ndarray]:
    held = [getattr(message, own.name) for own in fields(message)]
    return [value for value in held if isinstance(value, np.ndarray)]


@pytest.mark.parametrize(
    ("env", "features", "packing"),
    [
        (SMALL, None, "packed"),
        (SMALL, None, "dense"),
        (SMALL, "one-hot", "diagonal"),
        (Garnet(200, 2, 2, 3), None, "diagonal"),  # so sparse that it is kept so
        (ContinuousLinearMDP(4, 2, 3, cells=64), None, "dense"),
        (gymnasium("FrozenLake-v1", horizon=3, tables=False), None, "diagonal"),
        (gymnasium("FrozenLake-v1", horizon=3, tables=False), None, "dense"),
    ],
)
def test_no_message_changes_after_it_was_sent(env: Any, features: Any, packing: Any) -> None:
    session = FedLSVI(2, gamma=6.0, packing=packing).prepare(env, 40, features=features, cohorts=2)
    deliver = session.player.transport.deliver
    sent: list[tuple[Any, list[np.ndarray]]] = []

    def listen(message: Any) -> Any:
        replies = deliver(message)
        for one in (message, *replies):
            if one is not None:
                sent.append((one, [array.copy() for array in arrays(one)]))
        return replies

    session.player.transport.deliver = listen  # type: ignore[method-assign]
    assert len(list(session.rounds())) > 1
    session.close()
    kinds = {type(message) for message, _ in sent}
    assert {Start, Model, Signal, Upload} <= kinds
    for message, then in sent:
        for array, copy in zip(arrays(message), then, strict=True):
            assert np.array_equal(array, copy), message
            assert not array.flags.writeable, message
