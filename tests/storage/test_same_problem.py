"""A run goes on with the environment and the features that it began with, and with no others."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlsvi
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.envs import ContinuousLinearMDP, RandomLinearMDP, gymnasium
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.errors import FedLSVIError, InvalidInput, StoreError
from fedlsvi.features import CallableFeatures, FeatureMap, HatFeatures
from fedlsvi.protocol.plan import make_plan
from fedlsvi.storage.run_header import features_fingerprint, fingerprints
from registering import named_features


class Stop(Exception):
    """What an observer raises to break a run off."""


def stop(record: fedlsvi.protocol.records.RoundRecord) -> None:
    if record.k == 2:
        raise Stop


def finite(**more: Any) -> RandomLinearMDP:
    return RandomLinearMDP(**{"n_states": 6, "n_actions": 3, "dim": 4, "horizon": 3, **more})


def continuous(**more: Any) -> ContinuousLinearMDP:
    return ContinuousLinearMDP(**{"dim": 4, "n_actions": 2, "horizon": 3, "cells": 64, **more})


class Mine(ContinuousLinearMDP):
    """Without a name of its own."""


def hat(states: np.ndarray) -> np.ndarray:
    return HatFeatures(4, 2)(states)


def swapped(states: np.ndarray) -> np.ndarray:
    return hat(states)[:, ::-1]


def flat(states: np.ndarray) -> np.ndarray:
    return np.full((len(states), 2, 1), 0.5)


class Own(ContinuousLinearMDP):
    """With a function as its own features."""

    def __init__(self, fn: Any) -> None:
        super().__init__(4, 2, 3, cells=64)
        self.fn = fn

    def default_features(self) -> FeatureMap:  # type: ignore[override]
        return CallableFeatures(self.fn).bind(self)


def broken_off(folder: Path, env: Any, features: Any = None) -> None:
    with pytest.raises(Stop):
        FedLSVI(2, gamma=4.0).learn(
            env, 24, seed=3, features=features, folder=folder, checkpoint_seconds=0,
            progress=False, observers=[stop],
        )  # fmt: skip


@pytest.mark.parametrize(
    ("began", "other", "code", "values"),
    [
        ((finite(), None), {"features": finite().phi[:, ::-1]}, "other-features", []),
        ((finite(), None), {"features": "one-hot"}, "other-problem", ["18", "4"]),
        ((finite(), None), {"env": finite(horizon=2)}, "other-problem", ["2", "3"]),
        ((finite(), None), {"env": finite(n_states=7)}, "other-problem", ["7", "6"]),
        ((finite(), None), {"env": finite(seed=4)}, "other-environment", []),
        ((continuous(), None), {"features": swapped}, "other-features", []),
        ((continuous(), None), {"env": continuous(seed=4)}, "other-environment", []),
        ((continuous(), None), {"env": continuous(initial=0.5)}, "other-environment", []),
        ((continuous(), None), {"env": continuous(n_actions=3)}, "other-environment", []),
        ((Mine(4, 2, 3, cells=64), None), {"env": Mine(4, 3, 3, cells=64)},
         "other-problem", ["3", "2"]),
        ((continuous(), flat), {"env": gymnasium("CartPole-v1", horizon=3), "features": flat},
         "other-problem", ["4", "CartPole-v1", "1"]),
        ((continuous(), None), {"env": continuous(horizon=4)}, "other-problem", ["4", "3"]),
        ((continuous(), hat), {"features": swapped}, "other-features", []),
        ((Own(hat), None), {"env": Own(swapped)}, "other-features", ["ContinuousLinearMDP"]),
        ((gymnasium("FrozenLake-v1", horizon=4, tables=False), None),
         {"env": gymnasium("FrozenLake-v1", horizon=4, tables=False,
                           kwargs={"is_slippery": False})}, "other-environment", []),
    ],
)  # fmt: skip
def test_another_problem_is_refused(
    tmp_path: Path, began: tuple[Any, Any], other: dict[str, Any], code: str, values: list[str]
) -> None:
    """In a sentence, whether or not its arrays have the same sizes."""
    broken_off(tmp_path / "x", *began)
    with refused(FedLSVIError, code, *values):
        fedlsvi.resume(tmp_path / "x", **other, progress=False)


def test_the_same_problem_may_be_given_again(tmp_path: Path) -> None:
    broken_off(tmp_path / "x", continuous())
    run = fedlsvi.resume(
        tmp_path / "x", env=continuous(), features=HatFeatures(4, 2), progress=False
    )
    assert run.played == 24


def test_a_refused_run_lets_go_of_its_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_off(tmp_path / "x", finite())
    closed: list[bool] = []
    monkeypatch.setattr(
        fedlsvi.protocol.session.Session, "close", lambda session: closed.append(True)
    )
    with pytest.raises(FedLSVIError):
        fedlsvi.resume(tmp_path / "x", env=finite(seed=4), progress=False)
    assert closed


def test_an_object_may_stand_in_for_a_name_that_is_not_known(tmp_path: Path) -> None:
    with named_features("mine", lambda: CallableFeatures(hat)):
        broken_off(tmp_path / "x", continuous(), "mine")
        with refused(StoreError, "other-features"):
            fedlsvi.resume(tmp_path / "x", features=swapped, progress=False)
    with refused(InvalidInput, "unknown-features", "mine"):
        fedlsvi.resume(tmp_path / "x", progress=False)
    assert fedlsvi.resume(tmp_path / "x", features=hat, progress=False).played == 24


def test_a_table_is_read_as_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its numbers are not made into lists first; −0 is 0."""
    monkeypatch.setattr(fedlsvi.storage.run_header, "_parameters", lambda phi: pytest.fail("asked"))
    env, settings = finite(), FedLSVI(2).settings
    table = np.where(env.phi == env.phi.max(), 0.5, 0.0)
    signed = np.where(table == 0.0, -0.0, table)
    plans = [make_plan(settings, env, 5, 0, phi) for phi in (table, signed)]
    assert len({features_fingerprint(plan) for plan in plans}) == 1
    said = f"{env.phi.shape[2]}".encode() + table.tobytes()
    assert features_fingerprint(plans[0]) == hashlib.sha256(said).hexdigest()


class Still(ContinuousLinearMDP):
    """Without chance: every step leads to the middle."""

    draws_per_step = 0
    steps = 0

    def step(
        self, h: int, x: np.ndarray, a: np.ndarray, u: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        self.steps += 1
        assert u.shape == (len(x), 0)
        return np.zeros(len(x)), np.full_like(x, 0.5)


def test_agents_that_share_a_world_share_its_trial() -> None:
    world = Still(4, 2, 3, cells=64)
    assert len(fingerprints(make_plan(FedLSVI(50).settings, world, 5, 0))) == 1
    assert world.steps == 3


def test_what_cannot_be_told_apart_has_no_fingerprint() -> None:
    """A black box from a function has no name; environments that do the same are the same."""
    made = gymnasium("FrozenLake-v1", horizon=4, tables=False)
    assert isinstance(made, GymWorld)
    nameless = GymWorld(made.maker, made.make(), "box", 4, (0.0, 1.0))
    settings = FedLSVI(2).settings
    assert fingerprints(make_plan(settings, nameless, 5, 0)) == [None]
    assert len(fingerprints(make_plan(settings, [continuous(), continuous()], 5, 0))) == 1
    several = make_plan(settings, [continuous(), continuous(seed=4)], 5, 0)
    assert len(set(fingerprints(several))) == 2


def test_features_that_differ_every_time_cannot_be_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where no map has a name and resets of a black box do not repeat."""
    broken_off(tmp_path / "x", continuous(), hat)
    seen = iter(range(9))
    monkeypatch.setattr(
        fedlsvi.storage.run_reader, "features_fingerprint", lambda plan, by_name: next(seen)
    )
    assert fedlsvi.resume(tmp_path / "x", features=hat, progress=False).played == 24
