"""check_env over every registered environment, and the breaches it must find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi.envs import (
    ContinuousLinearMDP,
    FiniteMDP,
    RiverSwim,
    check_env,
    from_spec,
    make,
    names,
)
from fedlsvi.envs.registry import entry
from fedlsvi.errors import InvalidEnvironment


@pytest.mark.parametrize("name", names())
def test_every_registered_environment_keeps_the_contract(name: str) -> None:
    env = make(name)
    check_env(env)
    assert env.spec()["name"] == name
    assert entry(name).summary


@pytest.mark.parametrize("name", names())
def test_the_record_holds_every_parameter(name: str) -> None:
    unused = (
        {"repeat", "clip_rewards", "allowed", "actions"} if name == "gymnasium" else set()
    )  # recorded where used
    assert set(make(name).describe()) | unused == set(entry(name).parameters())


@pytest.mark.parametrize("name", [n for n in names() if "seed" in entry(n).parameters()])
def test_another_seed_gives_another_problem_and_the_same_seed_the_same(name: str) -> None:
    def values(seed: int) -> np.ndarray:
        env = make(name, seed=seed)
        if isinstance(env, FiniteMDP):
            return np.concatenate([env.P.ravel(), env.r.ravel()])
        assert isinstance(env, ContinuousLinearMDP)
        return np.concatenate([env.a, env.b, env.theta.ravel()])

    assert np.array_equal(values(3), values(3))
    assert not np.array_equal(values(3), values(4))


def test_check_env_runs_over_a_problem_of_arrays_too() -> None:
    env = FiniteMDP(np.ones((1, 2, 1)), np.array([[0.0, 1.0]]), horizon=3)
    check_env(env)
    assert env.spec()["name"] is None
    with refused(InvalidEnvironment, "unnamed-environment"):
        from_spec(env.spec())


class WrongOptimum(FiniteMDP):
    def optimal_values(self) -> np.ndarray:
        return super().optimal_values() * 0.5


class WrongGreedy(FiniteMDP):
    def greedy_policy(self) -> np.ndarray:
        return np.zeros((self.horizon, self.n_states), np.int64)


class WrongTables(FiniteMDP):
    @property
    def tables(self) -> Any:
        return RiverSwim(2, self.horizon).tables


class WrongSpec(FiniteMDP):
    def describe(self) -> dict[str, Any]:
        return {"P": self.P}


class NotPlain(FiniteMDP):
    def describe(self) -> dict[str, Any]:
        return {"sizes": (1, 2)}


class Named(FiniteMDP):
    registry_name = "river-swim"

    def describe(self) -> dict[str, Any]:
        return {"n_states": 2}


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (WrongOptimum, ("bad-optimal_values", "optimal_values")),
        (WrongGreedy, ("bad-greedy_policy", "greedy_policy")),
        (WrongTables, ("bad-tables",)),
        (WrongSpec, ("bad-spec",)),
        (NotPlain, ("bad-spec",)),
        (Named, ("bad-spec",)),
    ],
)
def test_check_env_finds_the_breach(cls: type[FiniteMDP], message: tuple[str, ...]) -> None:
    P = np.full((2, 2, 2), 0.5)
    with refused(InvalidEnvironment, *message):
        check_env(cls(P, np.array([[0.1, 0.9], [0.2, 0.4]]), horizon=4))


class Impure(ContinuousLinearMDP):
    """Its next states depend on the position in the batch."""

    def step(
        self, h: int, x: np.ndarray, a: np.ndarray, u: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        r, y = super().step(h, x, a, u)
        return r, y * np.linspace(0.5, 1.0, len(y))[:, None]


class Meddling(ContinuousLinearMDP):
    """It writes into the states it was given."""

    def step(
        self, h: int, x: np.ndarray, a: np.ndarray, u: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        result = super().step(h, x, a, u)
        x[...] = 0.0
        return result


class Boastful(ContinuousLinearMDP):
    def policy_values_at(self, policy: Any, x: np.ndarray) -> np.ndarray:
        return super().policy_values_at(policy, x) + self.horizon


@pytest.mark.parametrize(
    ("cls", "message"),
    [(Impure, ("bad-step",)), (Meddling, ("bad-step",)), (Boastful, ("bad-policy_values_at",))],
)
def test_check_env_finds_the_breach_on_continuous_states(
    cls: type[ContinuousLinearMDP], message: tuple[str, ...]
) -> None:
    with refused(InvalidEnvironment, *message):
        check_env(cls(4, 2, 3))


def test_check_env_wants_an_environment() -> None:
    with refused(InvalidEnvironment, "bad-env"):
        check_env(object())


def test_a_subclass_of_a_registered_class_does_not_borrow_its_name() -> None:
    class Faster(RiverSwim):
        pass

    assert RiverSwim(4).spec() == {
        "name": "river-swim",
        "params": {"n_states": 4, "horizon": 20, "initial": 0},
    }
    assert Faster(4).spec()["name"] is None
