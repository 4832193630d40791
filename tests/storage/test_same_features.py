"""A run or a policy that is read back acts with the features that it was learned with, or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import fedlsvi
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.envs import ContinuousLinearMDP, RandomLinearMDP
from fedlsvi.errors import InvalidFeatures, StoreError
from fedlsvi.features import CallableFeatures, FeatureMap, FourierFeatures, HatFeatures
from fedlsvi.policy import Policy
from registering import named_features

ENV = ContinuousLinearMDP(dim=4, n_actions=2, horizon=3, cells=64)
STATES = np.linspace(0.0, 1.0, 101)[:, None]


class Waves(FeatureMap):
    """A class of one's own, without a name."""

    dim, n_actions = 4, 2

    def __init__(self, shift: float = 0.0) -> None:
        self.shift = shift

    def __call__(self, states: np.ndarray) -> np.ndarray:
        x = 3.0 * states[:, 0] + self.shift
        phi = np.zeros((len(x), 2, 4))
        phi[:, 0, :2] = phi[:, 1, 2:] = np.stack((np.cos(x), np.sin(x)), axis=1)
        return phi

    def bind(self, env: Any) -> FeatureMap:
        return self


def waves(states: np.ndarray) -> np.ndarray:
    return Waves()(states)


def swapped(states: np.ndarray) -> np.ndarray:
    return waves(states)[:, ::-1]


def learned(folder: Path, features: Any, env: Any = ENV) -> np.ndarray:
    """A run and its policy, in two folders; what it does at STATES."""
    run = FedLSVI(2, gamma=4.0, policy="explore").learn(env, 60, features=features, progress=False)
    run.save(folder / "run")
    run.policy.save(folder / "policy")
    return run.policy.actions(1, STATES)


@pytest.mark.parametrize(
    ("began", "same", "other"),
    [
        (waves, [waves, CallableFeatures(waves), Waves()], [swapped, Waves(0.1)]),
        (Waves(), [Waves(), waves], [swapped, Waves(0.1), FourierFeatures(1)]),
        (FourierFeatures(1), [None, FourierFeatures(1)], [FourierFeatures(1, seed=1), waves]),
    ],
    ids=["function", "class", "name"],
)
def test_other_features_are_refused(
    began: Any, same: list[Any], other: list[Any], tmp_path: Path
) -> None:
    """Though they have the same sizes."""
    actions = learned(tmp_path, began)
    assert len(set(actions.tolist())) == 2
    for phi in same:
        for policy in (
            fedlsvi.load(tmp_path / "run", features=phi).policy,
            Policy.load(tmp_path / "policy", features=phi),
        ):
            assert np.array_equal(policy.actions(1, STATES), actions)
    for phi in other:
        again = fedlsvi.load(tmp_path / "run", features=phi)
        with refused(StoreError, "other-features"):
            again.policy.actions(1, STATES)
        with refused(InvalidFeatures, "other-features"):
            Policy.load(tmp_path / "policy", features=phi)


def test_the_environments_own_may_be_given_again(tmp_path: Path) -> None:
    actions = learned(tmp_path, None)
    same = HatFeatures(4, 2)
    run = fedlsvi.load(tmp_path / "run", env=ENV, features=lambda states: same(states))
    assert np.array_equal(run.policy.actions(1, STATES), actions)


class Own(ContinuousLinearMDP):
    """An environment of one's own, with features of its own that a number shifts."""

    def __init__(self, shift: float = 0.0, **more: Any) -> None:
        super().__init__(**{"dim": 4, "n_actions": 2, "horizon": 3, "cells": 64, **more})
        self.phi: FeatureMap = CallableFeatures(Waves(shift))

    def default_features(self) -> FeatureMap:  # type: ignore[override]
        return self.phi.bind(self)


class Named(Own):
    """The same, with features that have a name."""

    def __init__(self, shift: float = 0.0, **more: Any) -> None:
        super().__init__(**more)
        self.phi = FourierFeatures(1, seed=int(10 * shift)).bind(self)

    def default_features(self) -> FeatureMap:  # type: ignore[override]
        return self.phi


@pytest.mark.parametrize("kind", [Own, Named])
def test_an_environment_with_other_features_of_its_own_is_refused(
    kind: type[Own], tmp_path: Path
) -> None:
    env = kind()
    actions = learned(tmp_path, None, env)
    for same in (env, kind(seed=3), kind(initial=0.9)):
        run = fedlsvi.load(tmp_path / "run", env=same)
        assert np.array_equal(run.policy.actions(1, STATES), actions)
    again = fedlsvi.load(tmp_path / "run", env=kind(0.1))
    with refused(StoreError, "other-features", "ContinuousLinearMDP"):
        again.policy.actions(1, STATES)


def test_a_table_of_actions_needs_no_features(tmp_path: Path) -> None:
    """Those of the environment may be others."""
    sizes = {"n_states": 6, "n_actions": 3, "dim": 4, "horizon": 3}
    run = FedLSVI(2).learn(RandomLinearMDP(**sizes), 20, folder=tmp_path / "x", progress=False)
    other = fedlsvi.load(tmp_path / "x", env=RandomLinearMDP(**sizes, seed=1))
    assert np.array_equal(other.policy.table, run.policy.table)


def test_another_table_is_refused(tmp_path: Path) -> None:
    env = RandomLinearMDP(n_states=6, n_actions=3, dim=4, horizon=3)
    FedLSVI(2).learn(env, 20, folder=tmp_path / "x", progress=False)
    assert fedlsvi.load(tmp_path / "x", features=env.phi).policy.table.shape == (3, 6)
    with refused(StoreError, "other-features"):
        _ = fedlsvi.load(tmp_path / "x", features=env.phi[:, ::-1]).policy.table


def test_in_another_environment_first_states_tell_nothing(tmp_path: Path) -> None:
    """A run may be asked there with features that are the same."""
    actions = learned(tmp_path, waves)
    elsewhere = ContinuousLinearMDP(dim=4, n_actions=2, horizon=3, cells=64, initial=0.9)
    run = fedlsvi.load(tmp_path / "run", env=elsewhere, features=waves)
    assert np.array_equal(run.policy.actions(1, STATES), actions)


def test_an_object_may_stand_in_for_an_unknown_name(tmp_path: Path) -> None:
    with named_features("mine", lambda: CallableFeatures(waves)):
        actions = learned(tmp_path, "mine")
        with refused(StoreError, "other-features"):
            _ = fedlsvi.load(tmp_path / "run", features=swapped).policy.values
    run = fedlsvi.load(tmp_path / "run", features=waves)
    assert np.array_equal(run.policy.actions(1, STATES), actions)
    with refused(StoreError, "other-features"):
        _ = fedlsvi.load(tmp_path / "run", features=FourierFeatures(1)).policy.values


def small(states: np.ndarray) -> np.ndarray:
    """Norms at most 1 at states of at most 0.1 only, as its environment has them."""
    return 10.0 * np.abs(states[:, :, None]) * np.eye(2)


class Small(ContinuousLinearMDP):
    """States in [0, 0.1]."""

    def reset(self, u: np.ndarray, agents: np.ndarray) -> np.ndarray:
        return super().reset(u, agents) / 10.0

    def step(
        self, h: int, x: np.ndarray, a: np.ndarray, u: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        reward, following = super().step(h, x, a, u)
        return reward, following / 10.0

    def policy_values_at(self, policy: Any, x: np.ndarray) -> np.ndarray:
        return np.zeros(len(x))


class SmallMap(FeatureMap):
    """The same, which has no values elsewhere."""

    def __call__(self, states: np.ndarray) -> np.ndarray:
        if (states > 0.1).any():
            raise KeyError("no such state")
        return small(states)

    def bind(self, env: Any) -> FeatureMap:
        self.dim = self.n_actions = 2
        return self


@pytest.mark.parametrize(
    ("features", "arrays", "error"),
    [
        (small, {"lower", "target", "states", "phi"}, InvalidFeatures),
        (SmallMap(), {"lower", "target"}, KeyError),  # as in files of earlier versions
    ],
)
def test_a_map_need_not_be_one_at_states_that_its_environment_never_shows(
    features: Any, arrays: set[str], error: type[Exception], tmp_path: Path
) -> None:
    env = Small(dim=4, n_actions=2, horizon=3, cells=64)
    run = FedLSVI(2, gamma=4.0).learn(env, 10, features=features, progress=False)
    run.policy.save(tmp_path)
    assert set(load_file(tmp_path / "policy.safetensors")) == arrays
    policy = Policy.load(tmp_path, features=features)
    near = STATES / 10.0
    assert np.array_equal(policy.actions(1, near), run.policy.actions(1, near))
    with pytest.raises(error, match=r"has norm 10 > 1|no such state"):
        policy.actions(1, STATES)
