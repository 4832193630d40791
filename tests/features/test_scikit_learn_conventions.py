"""Learners and feature maps can be cloned, and coordinates have names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi import PEVI, FedLSVI
from fedlsvi.envs import ContinuousLinearMDP, RiverSwim
from fedlsvi.errors import InvalidFeatures
from fedlsvi.features import (
    AggregateFeatures,
    EmbeddingFeatures,
    FeatureMap,
    FourierBasis,
    FourierFeatures,
    HatFeatures,
    LowRankFeatures,
    OneHot,
    PolynomialFeatures,
    RBFFeatures,
    TileFeatures,
)

clone = pytest.importorskip("sklearn.base").clone
PRIVACY = {"epsilon": 1.0, "delta": 1e-6}
ENV = ContinuousLinearMDP(dim=5, n_actions=2, horizon=3, cells=64)


class Plane:
    """Two numbers in [0, 1], two actions."""

    name, state_dim, n_actions, low, high = "plane", 2, 2, 0.0, 1.0

    def default_features(self) -> FeatureMap:
        raise NotImplementedError


@pytest.mark.parametrize(
    "settings",
    [{}, {"privacy": PRIVACY, "aggregation": "exact"}, {"present": [(0, 1, 5)]},
     {"gamma": np.float64(2.0), "rounds": 40}],
    ids=["defaults", "privacy", "present", "numbers"],
)  # fmt: skip
def test_a_learner_can_be_cloned(settings: dict[str, Any]) -> None:
    learner = FedLSVI(4, **settings)
    other = clone(clone(learner))
    assert other.get_params() == learner.get_params()
    assert other.settings == learner.settings
    assert repr(other) == repr(learner)


def test_privacy_stays_as_it_was_given() -> None:
    """What is left out is filled in where a run begins, not in what the user gave."""
    learner = FedLSVI(4, privacy=PRIVACY, aggregation="exact")
    assert learner.get_params()["privacy"] is PRIVACY
    run = learner.learn(RiverSwim(), 400, progress=False)
    assert set(PRIVACY) < set(run.parameters.privacy or {})
    again = clone(learner).learn(RiverSwim(), 400, progress=False)
    assert again.parameters.privacy == run.parameters.privacy
    assert clone(PEVI()).settings == PEVI().settings


MAPS: list[tuple[FeatureMap, Any]] = [
    (FourierFeatures(4), ENV), (FourierFeatures(4, bandwidth=[0.5], seed=3, scales=2), ENV),
    (RBFFeatures(3), ENV), (RBFFeatures([[0.1], [0.9]], bandwidth=0.2), ENV),
    (FourierBasis(2, coupled=1), ENV), (TileFeatures(2, [3], low=[0.0], high=[1.0]), ENV),
    (PolynomialFeatures(2), ENV), (HatFeatures(5), ENV), (EmbeddingFeatures(np.cos), ENV),
    (OneHot(), RiverSwim()), (AggregateFeatures([0, 0, 1, 1, 2, 2]), RiverSwim()),
    (LowRankFeatures(4), RiverSwim()),
]  # fmt: skip


@pytest.mark.parametrize(("phi", "env"), MAPS, ids=[type(phi).__name__ for phi, _ in MAPS])
def test_a_map_can_be_cloned(phi: FeatureMap, env: Any) -> None:
    """The clone of a map, bound or not, is what the map was before it knew its environment."""
    bound, states = phi.bind(env), np.array([[0.2], [0.7]]) if env is ENV else np.array([0, 3])
    again = clone(phi).bind(env)
    np.testing.assert_array_equal(again(states), bound(states))
    names = bound.get_feature_names_out()
    assert len(set(names)) == len(names) == bound.dim
    if type(bound) is type(phi) and not isinstance(phi, OneHot | HatFeatures):
        assert bound.get_params().keys() == phi.get_params().keys()
        np.testing.assert_array_equal(clone(bound).bind(env)(states), bound(states))


def test_names_say_what_a_coordinate_is() -> None:
    """The named number is there: 1 at the only state of its name, for the action of its name."""
    table = OneHot().bind(RiverSwim())
    at = list(table.get_feature_names_out()).index("state 3, action 1")
    assert table(np.array([3]))[0, 1, at] == 1.0
    own = ["position", "speed"]
    x = np.array([[0.3, 0.8]])
    basis = FourierBasis(2).bind(Plane())
    at = list(basis.get_feature_names_out(own)).index("cos(π(2·position + 1·speed)), action 1")
    assert basis(x)[0, 1, at] == pytest.approx(np.cos(np.pi * (2 * 0.3 + 0.8)) / 3)
    powers = PolynomialFeatures(2).bind(Plane())
    names = list(powers.get_feature_names_out(own))
    assert powers(x)[0, 0, names.index("position·speed, action 0")] * 6**0.5 == pytest.approx(
        -0.4 * 0.6
    )
    tiles = TileFeatures(2, 3).bind(Plane())
    named = [n for n in tiles.get_feature_names_out() if n.endswith("action 0")]
    (one,) = [
        named[i] for i in np.flatnonzero(tiles(x)[0, 0]) if named[i].endswith("grid 0, action 0")
    ]
    assert one == "tile x0:0, x1:2 of grid 0, action 0"
    rbf = RBFFeatures(2, bandwidth=0.1).bind(Plane())
    assert rbf.get_feature_names_out(own)[rbf(np.array([[1.0, 0.0]]))[0, 0].argmax()] == (
        "near position=1, speed=0, action 0"
    )
    waves = FourierFeatures(1, bandwidth=1.0).bind(Plane())
    assert [n.split("(")[0] for n in waves.get_feature_names_out()] == ["cos", "sin"] * 2


def test_wrong_names_are_refused() -> None:
    with refused(InvalidFeatures, "unbound"):
        FourierFeatures(4).get_feature_names_out()
    with refused(InvalidFeatures, "bad-input_features", "2 numbers"):
        FourierFeatures(4).bind(Plane()).get_feature_names_out(["x"])
