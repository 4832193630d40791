"""Environments that do not keep to Gymnasium's interface are refused with a sentence."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from worlds import Corridor, Tiny, walk_features

from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.envs import as_environment
from fedlsvi.envs.gym.play import evaluate_policy
from fedlsvi.errors import InvalidEnvironment
from fedlsvi.run import Run


def _learn(env: Any, horizon: int) -> Run:
    return FedLSVI(1).learn(env, 40, horizon=horizon, features=walk_features, progress=False)


class Four(Corridor):
    """`step` as it was in gym."""

    def step(self, action: Any) -> Any:
        state, reward, terminated, _, info = super().step(action)
        return state, reward, terminated, info


class Unseeded(Corridor):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class Bare(Corridor):
    """`reset` without an info."""

    def reset(self, **options: Any) -> Any:
        return super().reset(**options)[0]


class Boxed(Corridor):
    """Rewards of shape (1,), from the fourth step on."""

    def __init__(self, since: int = 0) -> None:
        super().__init__(ends=False)
        self.since, self.steps = since, 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        state, reward, *rest = super().step(action)
        return (state, np.array([reward]) if self.steps > self.since else reward, *rest)


class OldTable(Tiny):
    """Its table must not be asked before its interface is."""

    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (Four, ("bad-step",)),
        (Unseeded, ("bad-reset", "'seed'")),
        (Bare, ("bad-reset",)),
        (Boxed, ("bad-reward",)),
        (lambda: Boxed(9), ("bad-reward",)),
        (OldTable, ("bad-reset",)),
    ],
    ids=["step", "reset", "no info", "reward", "later", "table"],
)
def test_another_interface_is_refused(env: Any, sentence: tuple[str, ...]) -> None:
    with refused(InvalidEnvironment, *sentence):
        _learn(env, 12)


def test_a_wrapper_may_be_the_first_to_notice() -> None:
    gymnasium.register("Four-v0", Four)
    with refused(InvalidEnvironment, "bad-step"):
        as_environment("Four-v0", horizon=4)


@pytest.mark.parametrize(
    ("stated", "taken"),
    [
        ((-2.0, -1.0), (-2.0, 0.0)),
        ((1, 3), (0.0, 3.0)),
        ((0.0,), (0.0, 1.0)),
        ("wide", (0.0, 1.0)),
        (5.0, (0.0, 1.0)),
        ((3.0, -2.0), (0.0, 1.0)),
        ((np.nan, 2.0), (0.0, 1.0)),
        ((-np.inf, np.inf), (0.0, 1.0)),
    ],
    ids=str,
)
def test_a_range_that_an_environment_states_is_taken_where_it_is_one(
    stated: Any, taken: tuple[float, float]
) -> None:
    class Stated(Corridor):
        reward_range = stated

    assert as_environment(Stated, horizon=4).reward_range == taken


def test_a_time_limit_below_the_horizon_is_an_error() -> None:
    def limited() -> Any:
        return gymnasium.wrappers.TimeLimit(Corridor(ends=False), 4)

    with refused(InvalidEnvironment, "time-limit", "at step 4", "horizon=4"):
        _learn(limited, 6)
    with refused(InvalidEnvironment, "time-limit", "at step 4", "4 steps"):
        evaluate_policy("random", limited, 3, horizon=6)
    assert _learn(limited, 4).rounds >= 1


def test_truncation_by_anything_else_is_no_time_limit() -> None:
    class Cut(Corridor):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return *super().step(action)[:3], bool(self.np_random.random() < 0.3), {}

    for make in (Cut, lambda: gymnasium.wrappers.TimeLimit(Cut(), 6)):
        with refused(InvalidEnvironment, "truncated") as caught:
            _learn(make, 6)
        assert "time limit" not in str(caught.value)


@pytest.mark.parametrize("what", ["reward", "observation"])
def test_what_is_not_a_number_is_blamed_on_nothing_else(what: str) -> None:
    """No warning that reset(seed=...) does not repeat: NaN differs from itself."""

    class Blank(Corridor):
        def step(self, action: Any) -> Any:
            state, reward, *rest = super().step(action)
            if what == "reward":
                return state, float("nan"), *rest
            return state * np.nan, reward, *rest

    world = as_environment(Blank, horizon=4)  # a warning is an error here
    with refused(InvalidEnvironment, f"bad-{what}", "nan", "agent 0"):
        FedLSVI(1).learn(world, 5, features=walk_features, progress=False)
