"""Environments that know their own table become finite MDPs with the published values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from worlds import Tiny

from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.envs import FiniteMDP, GymMDP, GymWorld, as_environment, check_env
from fedlsvi.envs.gym.play import evaluate_policy
from fedlsvi.envs.gym.tables import from_dictionary
from fedlsvi.errors import FedLSVIWarning, InvalidEnvironment

PUBLISHED = {  # H, V*, uniform policy, in the environment's own units
    "FrozenLake-v1": (100, 0.744, 0.014),
    "FrozenLake8x8-v1": (100, 0.641, 0.002),
    "Taxi-v4": (20, 7.93, -78.8),
    "CliffWalking-v1": (20, -13.0, -273.6),
}


@pytest.mark.parametrize("id", PUBLISHED)
def test_values_are_the_published_ones(id: str) -> None:
    horizon, best, uniform = PUBLISHED[id]
    env = as_environment(id, horizon=horizon)
    assert isinstance(env, GymMDP)
    law = env.initial_law(0)
    assert env.original(law @ env.optimal_values()[0]) == pytest.approx(best, abs=6e-2, rel=1e-3)
    assert env.original(law @ env.uniform_values()[0]) == pytest.approx(uniform, abs=6e-2)


def test_the_table_is_that_of_the_environment() -> None:
    env = as_environment("FrozenLake-v1", horizon=10)
    assert isinstance(env, FiniteMDP)
    check_env(env)
    inner = gymnasium.make("FrozenLake-v1").unwrapped
    for x, a in [(0, 0), (14, 2), (6, 1)]:
        law = np.zeros(16)
        for p, y, _, _ in inner.P[x][a]:  # type: ignore[attr-defined]
            law[y] += p
        assert np.allclose(env.P[0, x, a], law)


def test_ends_absorb_and_pay_the_image_of_nothing() -> None:
    env = as_environment("CliffWalking-v1", horizon=20)
    goal = 47
    assert (env.P[0, goal, :, goal] == 1.0).all()
    assert np.allclose(env.r[0, goal], 1.0)  # 0 is the largest reward
    assert np.allclose(env.r[0, 36, 0], 0.99)  # −1
    taxi = as_environment("Taxi-v4", horizon=20)
    assert taxi.n_states == 500
    at_home = [x for x in range(500) if (taxi.P[0, x, :, x] == 1.0).all()]
    assert len(at_home) == 4  # delivered, at each of the four places
    assert np.allclose(taxi.r[0, at_home[0]], 10.0 / 30.0)


def test_a_state_that_ends_some_episodes_and_not_others_gets_a_twin() -> None:
    """From 0, action 0 goes on to 1 and action 1 ends in 1; from 1 everything stays and pays 2."""
    P = {
        0: {0: [(1.0, 1, 0.0, False)], 1: [(1.0, 1, 1.0, True)]},
        1: {0: [(1.0, 1, 2.0, False)], 1: [(1.0, 1, 2.0, False)]},
    }
    tables = from_dictionary(P, 2, np.array([1.0, 0.0]))
    assert tables.P.shape == (3, 2, 3)
    assert tables.P[0, 0, 1] == 1.0
    assert tables.P[0, 1, 2] == 1.0
    assert tables.reward_range == (0.0, 2.0)
    env = GymMDP(tables, 3, (0.0, 2.0), "twin")
    assert env.original(env.optimal_values()[0, 0]) == pytest.approx(4.0)
    assert env.original(env.policy_values(np.ones((3, 3), int))[0, 0]) == pytest.approx(1.0)
    assert (evaluate_policy("random", env, 20).returns >= 1.0).all()  # in its own units too


@pytest.mark.parametrize(("state", "action"), [(1, 0), (0, 3), (4, 2)])
def test_the_numbers_of_a_table_may_begin_anywhere(state: int, action: int) -> None:
    plain = as_environment(Tiny, horizon=4)
    moved = as_environment(lambda: Tiny(state, action), horizon=4)
    assert isinstance(moved, GymMDP)
    assert moved.fingerprint == plain.fingerprint
    assert (moved.first_observation, moved.first_action) == (state, action)


def test_a_table_with_holes_is_refused_and_another_mapping_is_none() -> None:
    def holed(x: Any, a: Any, outcomes: Any = None) -> Any:
        env = Tiny()
        env.P[x][a] = outcomes
        if outcomes is None:
            del env.P[x][a]
        return env

    with refused(InvalidEnvironment, "bad-table", "P[1]", "'missing'"):
        as_environment(lambda: holed(1, 1), horizon=4)
    for bad in ([(1.0, 2, 0.0, False)], [(1.0, 0)], 3):
        with refused(InvalidEnvironment, "bad-table", "P[0]"):
            as_environment(lambda bad=bad: holed(0, 1, bad), horizon=4)

    class Powered(Tiny):
        def __init__(self) -> None:
            super().__init__()
            self.moves, self.P = self.P, {"power": 3.0}

        def step(self, action: Any) -> Any:
            return self.x, 0.0, False, False, {}

    assert isinstance(as_environment(Powered, horizon=4), GymWorld)


def _shifted() -> Any:
    env = gymnasium.make("FrozenLake-v1")
    return gymnasium.wrappers.TransformReward(env, lambda reward: reward / 2.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: as_environment(_shifted, horizon=10),
        lambda: as_environment("Taxi-v4", horizon=10, kwargs={"fickle_passenger": True},
                               reward_range=(-10, 20)),
        lambda: as_environment("FrozenLake-v1", horizon=10, tables=False),
    ],
    ids=["wrapped", "fickle", "asked"],
)  # fmt: skip
def test_a_table_that_does_not_tell_the_whole_story_is_not_used(make: Callable[[], Any]) -> None:
    assert isinstance(make(), GymWorld)


@pytest.mark.parametrize("id", ["FrozenLake-v1", "CliffWalking-v1"])
def test_a_table_whose_episodes_begin_elsewhere_is_not_used(id: str) -> None:
    """Also where a random walk never comes to an end and begins again."""
    known = type(gymnasium.make(id).unwrapped)

    class Elsewhere(known):  # type: ignore[misc, valid-type]
        def reset(self, **options: Any) -> tuple[int, dict[str, Any]]:
            state, info = super().reset(**options)
            if self.np_random.random() < 0.1:
                self.s = state = int(self.np_random.choice([1, 2, 3, 13, 14]))
            return state, info

    assert isinstance(as_environment(known, horizon=10), GymMDP)
    with pytest.warns(FedLSVIWarning, match="Elsewhere.*reward_range"):
        assert isinstance(as_environment(Elsewhere, horizon=10), GymWorld)


def backward(P: Any, horizon: int, choose: Callable[[list[float]], float]) -> list[float]:
    """V₁ of P[x][a] = [(p, x', reward, terminated)], outcome by outcome."""
    v = [0.0] * len(P)
    for _ in range(horizon):
        v = [
            choose([sum(p * (r + (not over) * v[y]) for p, y, r, over in row[a]) for a in row])
            for row in P.values()
        ]
    return v


def test_two_rewards_on_one_transition_become_their_mean() -> None:
    """A slippery CliffWalking: from 37, "up" leads to 36 with −1 and, over the cliff, with −100."""
    slippery: dict[str, Any] = {"kwargs": {"is_slippery": True}, "horizon": 20}
    with pytest.warns(FedLSVIWarning, match="6 transitions .* mean"):
        env = as_environment("CliffWalking-v1", **slippery)
    with pytest.warns(FedLSVIWarning, match="6 transitions .* mean"):
        check_env(env)  # makes it again
    assert isinstance(env, GymMDP)
    assert env.reward_range == (-100.0, 0.0)
    paid = env.reward_on_transition[0, 37, 0, 36]
    assert env.original(20 * paid) == pytest.approx(20 * -50.5)  # as often −1 as −100
    inner: Any = gymnasium.make("CliffWalking-v1", is_slippery=True).unwrapped
    best, uniform = (backward(inner.P, 20, choose)[36] for choose in (max, np.mean))
    assert env.original(env.optimal_values()[0, 36]) == pytest.approx(best)
    assert env.original(env.uniform_values()[0, 36]) == pytest.approx(uniform)


def test_a_mean_lies_within_the_range_of_what_is_paid() -> None:
    """Ends in 0 and in 1, which others pass through, are one transition to the added state."""
    P = {
        0: {0: [(0.5, 1, 0.0, False), (0.25, 0, 4.0, True), (0.25, 1, -2.0, True)]},
        1: {0: [(1.0, 0, 0.0, False)]},
    }
    tables = from_dictionary(P, 1, np.array([1.0, 0.0]))
    assert tables.averaged == 1
    assert tables.P[0, 0].tolist() == [0.0, 0.5, 0.5]
    assert tables.rewards[0, 0].tolist() == [0.0, 0.0, 1.0]
    assert tables.reward_range == (-2.0, 4.0)


def test_a_run_on_a_slippery_cliff_learns_and_knows_its_regret() -> None:
    with pytest.warns(FedLSVIWarning, match="one of several rewards"):
        run = FedLSVI(2, value_range=20).learn(
            "CliffWalking-v1", 50, horizon=20, env_kwargs={"is_slippery": True}, progress=False
        )
    assert run.regret is not None
    assert run.references()["learned"] > run.references()["uniform"]


def test_a_range_that_is_too_small_is_refused() -> None:
    with refused(InvalidEnvironment, "reward-out-of-range", "-10", "20"):
        as_environment("Taxi-v4", reward_range=(-10, 10))
    with refused(InvalidEnvironment, "bad-reward_range"):
        as_environment("Taxi-v4", reward_range=(1, 20))
    with refused(InvalidEnvironment, "bad-reward_range"):
        as_environment("Taxi-v4", reward_range=3)  # type: ignore[arg-type]


def test_sepsis_has_the_published_values_and_its_own_arrays() -> None:
    pytest.importorskip("icu_sepsis")
    env = as_environment("Sepsis/ICU-Sepsis-v2", horizon=5)
    assert isinstance(env, GymMDP)
    assert (env.n_states, env.n_actions) == (716, 25)
    law = env.initial_law(0)
    assert law @ env.optimal_values()[0] == pytest.approx(0.4389, abs=1e-4)
    assert law @ env.uniform_values()[0] == pytest.approx(0.3554, abs=1e-4)


def test_values_of_a_sparse_table_are_those_of_the_dense_one() -> None:
    from fedlsvi.envs.finite import evaluate

    env = as_environment("Taxi-v4", horizon=20)
    assert env._cells is not None
    rng = np.random.default_rng(0)
    for policy in (env.greedy_policy(), rng.integers(6, size=(20, 500))):
        dense = evaluate(env.P, env.r, 20, policy)
        assert np.allclose(env.policy_values(policy), dense, rtol=0.0, atol=1e-12)
    stepped = FiniteMDP(np.stack([env.P[0]] * 3), env.r[0], horizon=3)
    policy = rng.integers(6, size=(3, 500))
    dense = evaluate(stepped.P, stepped.r, 3, policy)
    assert np.allclose(stepped.policy_values(policy), dense, rtol=0.0, atol=1e-12)
