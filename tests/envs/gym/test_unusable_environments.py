"""What is given in place of an environment, or goes wrong inside one, is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from worlds import Corridor, walk_features

import fedlsvi
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.envs import FiniteMDP, RiverSwim, as_environment, check_env
from fedlsvi.envs.gym.play import evaluate_policy
from fedlsvi.errors import InvalidEnvironment, InvalidFeatures, InvalidInput, InvalidSetting
from fedlsvi.features import FourierFeatures, OneHot, check_features


class OldGym:
    """Seen from outside, an environment of the old gym package."""

    spec = None

    @property
    def unwrapped(self) -> OldGym:
        return self

    def step(self, action: Any) -> Any: ...


OldGym.__module__ = "gym.envs.classic"


class Zoo:
    """Seen from outside, an environment of PettingZoo."""

    possible_agents = ("one", "two")

    @property
    def unwrapped(self) -> Zoo:
        return self

    def action_space(self, agent: str) -> Any: ...

    def step(self, actions: Any) -> Any: ...


class NoSpaces(gymnasium.Env[Any, Any]):
    """Sets neither space."""


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (3, ("bad-env", "3")),
        (lambda: 3, ("bad-env", "3")),
        (OldGym(), ("old-gym", "OldGym")),
        (OldGym, ("old-gym", "OldGym")),
        (Zoo(), ("multi-agent-environment", "Zoo")),
        (Zoo, ("multi-agent-environment", "Zoo")),
        (NoSpaces, ("missing-space", "NoSpaces", "action_space")),
        (lambda size: Corridor(), ("factory-raised", "TypeError", "'size'")),
        (lambda: 1 / 0, ("factory-raised", "ZeroDivisionError")),
    ],
    ids=["int", "makes int", "gym", "makes gym", "zoo", "makes zoo", "spaces", "args", "raises"],
)
def test_what_is_no_environment_is_named(env: Any, said: tuple[str, ...]) -> None:
    with refused(InvalidEnvironment, *said):
        as_environment(env, horizon=4)


def test_a_vector_of_environments_is_named() -> None:
    env = gymnasium.make_vec("CartPole-v1", 4)
    with refused(InvalidEnvironment, "vector-environment", "4"):
        as_environment(env)
    env.close()


class Faulty(Corridor):
    """Pays `fault`, or raises it, at step 4 of its third episode on."""

    def __init__(self, fault: Any) -> None:
        super().__init__(ends=False)
        self.fault, self.episodes, self.h = fault, 0, 0

    def reset(self, **options: Any) -> Any:
        self.episodes, self.h = self.episodes + 1, 0
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        self.h += 1
        state, reward, *rest = super().step(action)
        if self.episodes > 2 and self.h == 4:
            if isinstance(self.fault, Exception):
                raise self.fault
            reward = self.fault
        return state, reward, *rest


@pytest.mark.parametrize(
    ("fault", "shown"),
    [(float("nan"), "nan"), (float("inf"), "inf"), (None, "None"), ("0.5", "'0.5'")],
    ids=str,
)
def test_a_reward_that_is_no_number_is_named(fault: Any, shown: str) -> None:
    world = as_environment(lambda: Faulty(fault), horizon=6)
    with refused(InvalidEnvironment, "bad-reward", shown, "of agent", "step 4") as caught:
        FedLSVI(1).learn(world, 80, features=walk_features, block=1, progress=False)
    assert "reward_range" not in str(caught.value)
    with refused(InvalidEnvironment, "bad-reward", shown, "step 4"):
        evaluate_policy("random", lambda: Faulty(fault), 100, horizon=6)


def test_an_environment_that_raises_is_named_with_the_place(tmp_path: Path) -> None:
    """Agent, episode, step, what it raised, and that the run can be resumed."""
    fault = RuntimeError("sensor off")
    with refused(InvalidEnvironment, "environment-raised", "RuntimeError: sensor off") as caught:
        FedLSVI(1).learn(
            lambda: Faulty(fault), 80, horizon=6, features=walk_features, block=1, progress=False
        )
    for part in ("Faulty", "episode 3 of agent 0 at step 4", "fedlsvi resume"):
        assert part in str(caught.value)
    assert caught.value.__cause__ is fault


class Broken(fedlsvi.envs.ContinuousLinearMDP):
    """Raises at step 2."""

    def step(self, h: int, x: np.ndarray, a: np.ndarray, u: np.ndarray) -> Any:
        if h == 2:
            raise LookupError("no such dose")
        return super().step(h, x, a, u)


def test_a_continuous_environment_that_raises_is_named_with_the_place() -> None:
    with refused(
        InvalidEnvironment, "environment-raised", "LookupError: no such dose", "step 2", "agents 0"
    ):
        FedLSVI(2).learn(Broken(), 8, progress=False)


@pytest.mark.parametrize("observers", [[3], print, 3], ids=["number", "function", "no list"])
def test_observers_that_are_no_functions_are_refused(observers: Any) -> None:
    with refused(InvalidSetting, "bad-observers", "observers"):
        FedLSVI(1).learn(RiverSwim(), 5, observers=observers, progress=False)


def test_a_function_is_no_policy() -> None:
    with refused(InvalidInput, "bad-policy", "function"):
        evaluate_policy(lambda state, step: 0, "CartPole-v1")  # type: ignore[arg-type]


def test_a_table_of_another_shape_is_told_about_its_shape() -> None:
    with refused(InvalidFeatures, "bad-shape", "(4, 3, 2)", "(6, 2, d)"):
        FedLSVI(1).learn(RiverSwim(), 5, features=np.ones((4, 3, 2)), progress=False)


def test_check_features_takes_worlds_and_ids() -> None:
    check_features(FourierFeatures(4), as_environment("CartPole-v1", horizon=5))
    check_features(FourierFeatures(4), "CartPole-v1", horizon=5)
    check_features(OneHot(), "river-swim")
    with refused(InvalidFeatures, "norm-above-1"):
        check_features(lambda x: np.ones((len(x), 2, 3)), "CartPole-v1", horizon=5)


def test_check_env_takes_ids_specs_and_functions() -> None:
    for env in ("CartPole-v1", gymnasium.spec("FrozenLake-v1"), "river-swim"):
        check_env(env)
    check_env(Corridor, horizon=4)
    with refused(InvalidEnvironment, "missing-horizon", "Corridor"):
        check_env(Corridor)


def test_arrays_keep_the_name_they_are_given(tmp_path: Path) -> None:
    P, r = np.full((2, 2, 2), 0.5), np.zeros((2, 2))
    env = FiniteMDP(P, r, horizon=2, name="Sepsis, fluids only")
    run = FedLSVI(1).learn(env, 5, progress=False, folder=tmp_path / "run")
    assert run.environment_name == "Sepsis, fluids only"
    assert fedlsvi.load(tmp_path / "run").environment_name == "Sepsis, fluids only"
    plain = FedLSVI(1).learn(FiniteMDP(P, r, horizon=2), 5, progress=False)
    assert plain.environment_name == "arrays"
