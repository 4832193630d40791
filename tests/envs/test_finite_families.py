"""Chains, GARNET and Fed-UCBVI's instance have the values that are known of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlsvi.envs import DeepSea, Garnet, NChain, RandomMDP, RiverSwim


def test_river_swim_has_the_reference_values() -> None:
    env = RiverSwim(6, 20)
    assert env.optimal_values()[0, 0] == pytest.approx(3.397, abs=5e-4)
    assert env.uniform_values()[0, 0] == pytest.approx(0.044, abs=5e-4)


@given(st.integers(2, 12))
def test_river_swim_flows_left(n_states: int) -> None:
    env = RiverSwim(n_states, 4)
    right = env.transition(1)[:, 1]
    assert right[0, 1] == 0.6
    assert right[-1, -1] == 0.6
    for x in range(1, n_states - 1):
        assert right[x, x - 1 : x + 2].tolist() == [0.05, 0.6, 0.35]
    assert (env.transition(1)[:, 0].argmax(axis=1) == np.maximum(np.arange(n_states) - 1, 0)).all()


@given(st.integers(3, 30))
def test_walking_right_on_the_n_chain_is_worth_ten(n_states: int) -> None:
    """N − 2 moves from the second state, then 1 at each of the remaining 10 of N + 8 steps."""
    env = NChain(n_states)
    assert env.horizon == n_states + 8
    assert env.initial_law(0).argmax() == 1
    assert env.optimal_values()[0, 1] == pytest.approx(10.0, abs=1e-12)
    always_left = np.zeros((env.horizon, n_states), int)
    assert env.policy_values(always_left)[0, 1] == pytest.approx(0.001 * (env.horizon - 1))


@given(st.integers(2, 20))
def test_the_deep_sea_pays_for_rights_alone(size: int) -> None:
    env = DeepSea(size)
    assert (env.horizon, env.default_features().dim) == (size, 2 * size)
    assert env.optimal_values()[0, 0] == pytest.approx(1.0, abs=1e-12)
    one_left = np.ones((size, size), int)
    one_left[size // 2] = 0
    assert env.policy_values(one_left)[0, 0] <= 0.01


@given(st.integers(1, 8), st.integers(1, 3), st.integers(1, 8), st.integers(0, 1000))
def test_garnet_rows_have_b_successors(S: int, A: int, b: int, seed: int) -> None:
    env = Garnet(S, A, min(b, S), 2, seed)
    assert ((env.P > 0.0).sum(axis=-1) == min(b, S)).all()
    assert len(env.P) == 1


def test_agents_of_the_random_mdp_share_rewards_and_differ_by_epsilon_in_their_laws() -> None:
    """(1−ε)P + εP^m is within ε of P in total variation, and so are two agents of each other."""
    common = RandomMDP(seed=3)
    agents = [RandomMDP(seed=3, epsilon=0.316, agent=m) for m in range(3)]
    for env in agents:
        distance = 0.5 * np.abs(env.P - common.P).sum(axis=-1)
        assert 0.0 < distance.max() <= 0.316 + 1e-12
        assert np.array_equal(env.r, common.r)
    assert not np.array_equal(agents[0].P, agents[1].P)
    assert np.array_equal(RandomMDP(seed=3, epsilon=0.0, agent=5).P, common.P)
    assert np.allclose(common.initial_law(0), 0.2)
