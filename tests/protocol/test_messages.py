"""A message is a read-only value: whoever keeps one finds later what was sent. Each request has one
kind of answer."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from fedlsvi import FedLSVI
from fedlsvi.envs import ContinuousLinearMDP, Garnet, RandomLinearMDP, gymnasium
from fedlsvi.protocol.messages import (
    Exploit,
    Explore,
    Keep,
    KeyRequest,
    Layout,
    MaskedUpload,
    Model,
    Models,
    Roster,
    Signal,
    SiteKey,
    Start,
    Stop,
    Upload,
)

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


@pytest.mark.parametrize(
    ("layout", "upload"),
    [
        (Layout(2, 3, 1, "packed"), Upload),
        (Layout(2, 3, 1, "packed", states=4), Upload),
        (Layout(2, 3, 1, "packed", secure=True), MaskedUpload),
        (Layout(2, 3, 1, "packed", secure=True, states=4), MaskedUpload),
    ],
)
def test_each_request_has_one_kind_of_answer(layout: Layout, upload: type) -> None:
    w, gram, nothing = np.zeros((3, 1)), np.ones((3, 1)), type(None)
    expected = [
        (Start(w, gram, 1.0, 1.0, 9), nothing), (KeyRequest(), SiteKey), (Roster(()), nothing),
        (Explore(4), Signal), (Stop(4), upload), (Model(3, w[2], gram[2]), upload),
        (Model(2, w[1], gram[1]), upload), (Model(1, w[0], gram[0]), nothing),
        (Models(w, gram), nothing), (Keep(4), nothing),
        (Exploit(0.0), nothing if layout.states else upload),
    ]  # fmt: skip
    assert [layout.reply_to(request) for request, _ in expected] == [kind for _, kind in expected]
    steps = [layout.step_after(request) for request, kind in expected if kind is upload]
    assert steps == ([1] * 3 if layout.states else [3, 2, 1, 3])
