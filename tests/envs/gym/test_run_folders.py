"""Runs in black boxes are written, read and resumed like all others."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from worlds import Coin, Corridor, Tiny, walk_features

import fedlsvi
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.envs import as_environment, gymnasium, make
from fedlsvi.envs.gym.play import evaluate_policy
from fedlsvi.errors import InvalidEnvironment, InvalidInput
from fedlsvi.features import FourierFeatures
from fedlsvi.policy import Policy
from fedlsvi.protocol.records import RoundRecord


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


def test_units_and_numbers_of_a_table_come_back(tmp_path: Path) -> None:
    """Two states and two actions, numbered from 1, and rewards up to 3."""
    run = FedLSVI(1).learn(
        lambda: Tiny(1, 1), 40, horizon=4, folder=tmp_path / "run", progress=False
    )
    loaded = fedlsvi.load(tmp_path / "run")
    assert loaded.original_value(1.0) == run.original_value(1.0) == 3.0
    assert loaded.references() == run.references()
    loaded.policy.save(tmp_path / "policy")
    for policy in (loaded.policy, Policy.load(tmp_path / "policy")):
        for h in range(1, 5):
            assert [policy.action(x, h) for x in (1, 2)] == [
                run.policy.action(x, h) for x in (1, 2)
            ]
        with refused(InvalidInput, "bad-state"):
            policy.action(3, 1)  # the state after the end
        assert loaded.world is not None
        earned = [evaluate_policy(policy, env, 50) for env in (Tiny, loaded.world())]
        assert max(earned[1].returns) <= 12.0  # 3 at each of 4 steps
        assert earned[0].mean == pytest.approx(earned[1].mean, abs=1.0)


def test_units_of_a_black_box_come_back(tmp_path: Path) -> None:
    env = as_environment(lambda: Corridor(pay=-1.0), horizon=4, reward_range=(-1, 0))
    run = FedLSVI(1).learn(env, 9, features=walk_features, folder=tmp_path / "run", progress=False)
    loaded = fedlsvi.load(tmp_path / "run")
    assert loaded.original_value(0.0) == run.original_value(0.0) == -4.0
    with refused(InvalidEnvironment, "env-was-given", "env="):
        loaded.references()
    again = fedlsvi.load(tmp_path / "run", env=env, features=walk_features)
    assert again.references(5) == run.references(5)


@pytest.mark.parametrize("kwargs", [{"map_name": None}, {"desc": ("SF", "FG")}])
def test_arguments_that_no_file_gives_back_are_not_written(
    kwargs: dict[str, Any], tmp_path: Path
) -> None:
    """None would be left out, which here is another map, and a tuple become a list."""
    run = FedLSVI(1).learn(
        "FrozenLake-v1", 9, horizon=6, env_kwargs=kwargs, folder=tmp_path / "run", progress=False
    )
    assert run.environment[0]["name"] is None
    loaded = fedlsvi.load(tmp_path / "run")
    assert np.array_equal(loaded.policy.table, run.policy.table)
    assert make("FrozenLake-v1", kwargs=kwargs).spec()["name"] is None
    for inside in ({"desc": [None]}, {"desc": {0: "SF"}}, {"desc": np.zeros(2)}):
        assert not fedlsvi.envs.base.comes_back(inside)


def test_an_environment_of_another_size_gets_a_sentence(tmp_path: Path) -> None:
    FedLSVI(1).learn(Coin, 9, horizon=4, folder=tmp_path / "run", progress=False)
    for env, sentence in (
        (gymnasium("FrozenLake-v1", horizon=4), ("other-problem", "16")),
        (as_environment(Coin, horizon=5), ("other-problem", "horizon is 5")),
    ):
        with refused(InvalidInput, *sentence):
            fedlsvi.load(tmp_path / "run", env=env).policy.action(0, 1)


class Toll(Tiny):
    """Where one step costs 2."""

    def __init__(self) -> None:
        super().__init__()
        self.P[0][0] = [(1.0, 0, -2.0, False)]


def test_agents_that_share_a_range_are_given_again_together(tmp_path: Path) -> None:
    """The first alone would have another, (0, 3)."""
    both = [EnvSpec(cls.__name__, cls, max_episode_steps=4) for cls in (Tiny, Toll)]
    run = FedLSVI(2).learn(both, 9, folder=tmp_path / "run", progress=False)
    assert run.reward_range == (-2.0, 3.0)
    assert fedlsvi.load(tmp_path / "run", env=both).references() == run.references()
    with refused(InvalidInput, "other-problem", "(0.0, 3.0)", "-2"):
        fedlsvi.load(tmp_path / "run", env=both[:1]).references()


def test_actions_and_numbers_of_a_black_box_are_counted(tmp_path: Path) -> None:
    """Its features may have as many dimensions whatever it shows and takes."""

    def flat(states: np.ndarray, n_actions: int = 2) -> np.ndarray:
        return np.full((len(states), n_actions, 1), 0.5)

    env = as_environment(lambda: Coin(vector=True), horizon=4)
    FedLSVI(1).learn(env, 9, features=flat, folder=tmp_path / "run", progress=False)
    car, pole = (gymnasium(name, horizon=4) for name in ("MountainCar-v0", "CartPole-v1"))
    three = make("continuous-linear", n_actions=3, horizon=4)
    for other, phi, sentence in (
        (car, partial(flat, n_actions=3), ("other-problem", "MountainCar-v0")),
        (pole, flat, ("other-problem", "CartPole-v1")),
        (three, partial(flat, n_actions=3), ("other-problem", "actions is 3")),
    ):
        with refused(InvalidInput, *sentence):
            fedlsvi.load(tmp_path / "run", env=other, features=phi).policy.action([0.5], 1)
