"""Runs in black boxes are written, read and resumed like all others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlsvi
from fedlsvi import FedLSVI
from fedlsvi.envs import gymnasium
from fedlsvi.features import FourierFeatures
from fedlsvi.records import RoundRecord


class Unplugged(Exception):
    """The machine went away."""


def _unplug(record: RoundRecord) -> None:
    if record.k == 3:
        raise Unplugged


@pytest.mark.parametrize(
    ("env", "features"),
    [
        (gymnasium("CartPole-v1", horizon=12), FourierFeatures(3, [1.5, 1.5, 0.15, 1.5])),
        (gymnasium("FrozenLake-v1", horizon=12, tables=False), None),
        (gymnasium("FrozenLake-v1", horizon=12), None),
    ],
    ids=["numbers", "numbered", "table"],
)
def test_a_run_is_resumed_to_the_same_bits(env: Any, features: Any, tmp_path: Path) -> None:
    def learn(name: str, *observers: Any) -> fedlsvi.Run:
        return FedLSVI(2, gamma=6.0, value_range=6).learn(
            env, 14, features=features, folder=tmp_path / name, progress=False,
            checkpoint_seconds=0, observers=observers,
        )  # fmt: skip

    whole = learn("whole")
    with pytest.raises(Unplugged):
        learn("cut", _unplug)
    rest = fedlsvi.resume(tmp_path / "cut", progress=False)
    assert rest.taus == whole.taus
    assert np.array_equal(rest.w, whole.w)
    loaded = fedlsvi.load(tmp_path / "whole")
    assert loaded.environment == whole.environment
    if whole.mean_returns is not None:
        assert loaded.mean_returns is not None
        assert np.array_equal(loaded.mean_returns, whole.mean_returns)
    state = 0 if features is None else [0.0, 0.1, 0.0, -0.1]
    assert [loaded.policy.action(state, h) for h in range(1, 13)] == [
        whole.policy.action(state, h) for h in range(1, 13)
    ]
