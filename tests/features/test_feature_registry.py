"""Feature maps by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi.envs import ContinuousLinearMDP, Garnet, RandomLinearMDP
from fedlsvi.errors import InvalidFeatures, UnknownName
from fedlsvi.features import (
    CallableFeatures,
    FeatureMap,
    TableFeatures,
    check_features,
    make,
    names,
    register,
    registry,
    resolve,
)
from fedlsvi.features.registry import entry


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr(registry.REGISTRY, "rows", dict(registry.REGISTRY.rows))


FINITE, CONTINUOUS = Garnet(5, 2, 2, 2), ContinuousLinearMDP(4, 2, 2)
TABLE = np.full((5, 2, 3), 0.5)


@pytest.mark.parametrize("name", names())
def test_every_registered_map_keeps_the_contract(name: str) -> None:
    params = {"table": {"table": TABLE}, "low-rank": {"dim": 3}}.get(name, {})
    env = FINITE if entry(name).summary.startswith(("finite", "the environment")) else CONTINUOUS
    check_features(make(name, **params), env)
    assert entry(name).summary


def test_own_is_whatever_the_environment_calls_its_own() -> None:
    linear = RandomLinearMDP(4, 2, 3, 2)
    assert make("own").bind(linear) is linear.default_features()
    assert make("own").bind(FINITE).one_hot
    with refused(InvalidFeatures, "unbound"):
        make("own")(np.arange(2))


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with refused(UnknownName, "unknown-features", "'onehot'", "'one-hot'"):
        make("onehot")
    with refused(UnknownName, "unknown-parameter", "'hat'", "'dims'", "'dim'"):
        make("hat", dims=3)
    with refused(InvalidFeatures, "no-parameters", "'own'", "'dim'"):
        make("own", dim=3)
    with refused(InvalidFeatures, "constructor-failed", "'table'"):
        make("table")


def test_a_third_party_map_is_made_by_its_name(known: None) -> None:
    def constant(dim: int = 2) -> FeatureMap:
        return TableFeatures(np.zeros((5, 2, dim)))

    register("constant", constant, "zero everywhere")
    assert make("constant", dim=4).bind(FINITE).dim == 4
    with refused(InvalidFeatures, "name-taken", "'constant'"):
        register("constant", constant, "again")
    with refused(InvalidFeatures, "constructor-failed", "{'dim': 'x'}"):
        make("constant", dim="x")
    with refused(InvalidFeatures, "constructor-failed", "{'dim': -1}"):
        make("constant", dim=-1)


def test_a_function_made_by_name_remembers_the_name(known: None) -> None:
    def level(height: float, what: Any = None) -> FeatureMap:
        return CallableFeatures(lambda x: np.full((len(x), 2, 1), height))

    register("level", level, "the same everywhere")
    bound = resolve(make("level", height=np.float32(0.5)), CONTINUOUS)
    assert bound.spec() == {"name": "level", "params": {"height": 0.5}}
    assert resolve(make("level", height=0.5, what=object()), CONTINUOUS).spec() is None
    assert resolve(lambda x: np.zeros((len(x), 2, 1)), CONTINUOUS).spec() is None
    own = CONTINUOUS.default_features()
    assert resolve("own", CONTINUOUS).spec() == own.spec()
