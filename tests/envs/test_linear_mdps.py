"""Linear MDPs satisfy Definition 1, and the hard ones have the values that the formulas give."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlsvi.envs import CombinationLock, FiniteMDP, HardChain, LinearMDP, RandomLinearMDP


@st.composite
def linear_mdps(draw: st.DrawFn) -> LinearMDP:
    seed, H = draw(st.integers(0, 1000)), draw(st.integers(2, 5))
    kind = draw(st.sampled_from(["random", "hard", "lock"]))
    if kind == "hard":
        return HardChain(draw(st.integers(2, 5)), H, draw(st.floats(0.01, 1.0)), seed)
    if kind == "lock":
        return CombinationLock(H, draw(st.integers(2, 5)), draw(st.integers(2, 6)), seed)
    S, A = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    return RandomLinearMDP(S, A, draw(st.integers(1, S * A)), H, seed)


@given(linear_mdps())
def test_every_construction_satisfies_the_definition(env: LinearMDP) -> None:
    root = np.sqrt(env.dim) + 1e-9
    assert np.linalg.norm(env.phi, axis=-1).max() <= 1.0 + 1e-9
    assert np.linalg.norm(env.theta, axis=-1).max() <= root
    assert np.linalg.norm(env.mu.sum(axis=-1), axis=-1).max() <= root
    for h in range(1, env.horizon + 1):
        mu, theta = (v[min(h, len(v)) - 1] for v in (env.mu, env.theta))
        assert np.abs(env.phi @ mu - env.transition(h)).max() <= 1e-12
        assert np.abs(env.phi @ theta - env.reward(h)).max() <= 1e-12


@given(linear_mdps(), st.integers(0, 1000))
def test_q_functions_of_every_policy_are_linear_in_phi(env: LinearMDP, seed: int) -> None:
    """Q^π_h = ⟨φ, w⟩ with w = θ_h + Σ_x V^π_{h+1}(x) μ_h(x): the reason for the definition."""
    policy = np.random.default_rng(seed).integers(env.n_actions, size=(env.horizon, env.n_states))
    values = env.policy_values(policy)
    for h in range(1, env.horizon + 1):
        mu, theta = (v[min(h, len(v)) - 1] for v in (env.mu, env.theta))
        q = env.phi @ (theta + mu @ values[h])
        assert np.allclose(q[np.arange(env.n_states), policy[h - 1]], values[h - 1], atol=1e-9)


@given(st.integers(0, 1000))
def test_random_features_span_every_direction_through_their_anchors(seed: int) -> None:
    env = RandomLinearMDP(4, 3, 6, 2, seed)
    rows = env.phi.reshape(-1, 6)
    assert env.default_features().simplex
    for i in range(6):
        assert (rows == np.eye(6)[i]).all(axis=1).any()


def test_stationary_parameters_may_come_without_their_leading_axis() -> None:
    phi, mu, theta = np.eye(2)[:, None], np.eye(2), np.array([0.0, 1.0])
    short = LinearMDP(phi, mu, theta, horizon=3)
    full = LinearMDP(phi, np.stack([mu] * 3), np.stack([theta] * 3))
    assert (len(short.P), len(full.P)) == (1, 3)
    assert np.array_equal(short.optimal_values(), full.optimal_values())


@given(st.integers(2, 5), st.integers(2, 6), st.floats(0.01, 1.0), st.integers(0, 100))
def test_the_hard_chain_has_the_value_of_always_taking_the_hidden_signs(
    dim: int, horizon: int, gap: float, seed: int
) -> None:
    """The best action reaches the absorbing state with δ(1 + gap) at every step, the uniform one
    with δ on average: V = Σ_{h=2}^{H} (1 − (1 − p)^{h−1})."""
    env = HardChain(dim, horizon, gap, seed)
    assert (env.dim, env.n_actions, env.n_states) == (dim + 1, 2 ** (dim - 1), horizon + 2)
    later = np.arange(1, horizon)
    for value, p in (
        (env.optimal_values()[0, 0], (1.0 + gap) / horizon),
        (env.uniform_values()[0, 0], 1.0 / horizon),
    ):
        assert value == pytest.approx((1.0 - (1.0 - p) ** later).sum(), abs=1e-9)


def test_the_combination_lock_has_the_reference_values() -> None:
    for seed in range(5):
        env = CombinationLock(horizon=10, seed=seed)
        assert env.optimal_values()[0, 0] == pytest.approx(0.916, abs=1e-3)
        assert env.uniform_values()[0, 0] == pytest.approx(0.058, abs=4e-3)


def test_the_combination_lock_opens_only_for_the_first_action() -> None:
    env = CombinationLock(horizon=4, n_actions=3, dim=5, seed=2)
    for h, a in itertools.product(range(1, 5), range(3)):
        assert env.transition(h)[0, a, 0] == (0.99 if a == 0 else 0.0)
        assert (env.transition(h)[1:, :, 0] == 0.0).all()
    assert env.reward(4)[0].tolist() == [1.0, 0.0, 0.0]
    assert env.reward(1)[0, 0] == 0.0
    assert 0.005 <= env.reward(1)[1:].min() <= env.reward(1)[1:].max() <= 0.008
    assert (env.phi.sum(axis=(0, 1)) >= 1.0).all()


def test_a_linear_mdp_equals_the_finite_mdp_of_its_arrays() -> None:
    env = RandomLinearMDP(5, 3, 4, 3, seed=7, initial="uniform")
    same = FiniteMDP(env.P, env.r, initial="uniform", phi=env.phi)
    assert same.fingerprint == env.fingerprint
