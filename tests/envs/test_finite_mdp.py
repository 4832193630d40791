"""Finite MDPs from arrays: values, sampling, initial states, shapes."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expecting import refused
from fedlsvi.core import random
from fedlsvi.envs import FiniteMDP, RandomLinearMDP, RandomMDP, RiverSwim
from fedlsvi.errors import InvalidInput


@st.composite
def mdps(draw: st.DrawFn) -> FiniteMDP:
    """Random MDPs, with P and r stationary or per step, rewards per pair or per transition."""
    S, A, H = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    P = rng.dirichlet(np.full(S, 0.4), size=(H if draw(st.booleans()) else 1, S, A))
    r = rng.random((H if draw(st.booleans()) else 1, S, A, S)[: draw(st.integers(3, 4))])
    return FiniteMDP(P, r, horizon=H)


def test_two_states_two_steps_by_hand() -> None:
    """Action 0 stays, action 1 moves to state 1 with probability ½; state 1 pays 1, state 0 pays 0.

    V₂ = (0, 1). Q₁(0,0) = 0, Q₁(0,1) = ½·0 + ½·1 = ½, and Q₁(1,·) = 1 + 1 = 2, so V₁ = (½, 2).
    Uniform: V₁(0) = ¼·1 = ¼, V₁(1) = 1 + 1 = 2.
    """
    P = [[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.0, 1.0]]]
    env = FiniteMDP(P, [[0.0, 0.0], [1.0, 1.0]], horizon=2)
    assert env.optimal_values().tolist() == [[0.5, 2.0], [0.0, 1.0], [0.0, 0.0]]
    assert env.greedy_policy().tolist() == [[1, 0], [0, 0]]
    assert env.uniform_values().tolist() == [[0.25, 2.0], [0.0, 1.0], [0.0, 0.0]]


@given(mdps())
def test_the_optimum_is_the_best_of_all_policies(env: FiniteMDP) -> None:
    """Brute force over the policies of the first two states' worth of decisions."""
    best = np.full((env.horizon + 1, env.n_states), -np.inf)
    choices = list(itertools.product(range(env.n_actions), repeat=env.horizon * env.n_states))
    for flat in choices[:: max(1, len(choices) // 200)]:
        policy = np.reshape(flat, (env.horizon, env.n_states))
        best = np.maximum(best, env.policy_values(policy))
    assert (best <= env.optimal_values() + 1e-12).all()
    assert np.allclose(env.policy_values(env.greedy_policy()), env.optimal_values())


@given(mdps(), st.integers(0, 10_000))
def test_a_deterministic_policy_is_a_stochastic_one_of_zeros_and_ones(
    env: FiniteMDP, seed: int
) -> None:
    policy = np.random.default_rng(seed).integers(env.n_actions, size=(env.horizon, env.n_states))
    stochastic = np.eye(env.n_actions)[policy]
    assert np.allclose(env.policy_values(policy), env.policy_values(stochastic), atol=1e-12)
    assert np.allclose(env.policy_values(policy.astype(np.int8)), env.policy_values(stochastic))


@given(mdps(), st.integers(0, 10_000))
def test_values_solve_the_bellman_equation_of_their_policy(env: FiniteMDP, seed: int) -> None:
    """V_h(x) = r_h(x,π) + Σ P_h(y|x,π) V_{h+1}(y), written out state by state."""
    policy = np.random.default_rng(seed).integers(env.n_actions, size=(env.horizon, env.n_states))
    values = env.policy_values(policy)
    for h, x in itertools.product(range(1, env.horizon + 1), range(env.n_states)):
        a = policy[h - 1, x]
        right = env.reward(h)[x, a] + env.transition(h)[x, a] @ values[h]
        assert values[h - 1, x] == pytest.approx(right, abs=1e-12)


@given(mdps())
def test_the_mean_of_a_reward_on_transitions_is_its_expectation(env: FiniteMDP) -> None:
    if env.reward_on_transition is None:
        assert env.step(1, 0, 0, 0.5)[0] == env.reward(1)[0, 0]
        return
    assert len(env.reward_on_transition) == len(env.r)
    mean = (env.P * env.reward_on_transition).sum(axis=-1)
    assert np.allclose(mean, env.r, atol=1e-12)
    reward, y = env.step(1, 0, 0, 0.5)
    assert reward == env.reward_on_transition[0, 0, 0, y]


def test_returns_of_simulated_episodes_average_to_the_value_of_the_policy() -> None:
    env = RandomMDP(3, 2, 3, seed=1, initial=[2])
    policy = np.array([[0, 1, 0], [1, 1, 0], [0, 0, 1]])
    n = 4000
    u = random.uniforms(5, [0], 1, n, env.draws_at_reset + env.horizon * env.draws_per_step)[0]
    returns = np.zeros(n)
    for e in range(n):
        x = env.first_state(0, u[e, 0])
        for h in range(1, env.horizon + 1):
            reward, x = env.step(h, x, policy[h - 1, x], u[e, h])
            returns[e] += reward
    error = returns.std() / np.sqrt(n)
    assert abs(returns.mean() - env.policy_values(policy)[0, 2]) < 4 * error


@pytest.mark.parametrize(
    ("initial", "laws"),
    [
        (2, [[0, 0, 1]] * 3),
        ([0.5, 0.5, 0.0], [[0.5, 0.5, 0]] * 3),
        ([1, 2], [[0, 1, 0], [0, 0, 1], [0, 1, 0]]),
        ([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], [[0.5, 0.5, 0], [0, 0, 1], [0.5, 0.5, 0]]),
        ("uniform", [[1 / 3] * 3] * 3),
        (np.int64(1), [[0, 1, 0]] * 3),
    ],
)
def test_initial_states_are_fixed_random_or_per_agent(
    initial: object, laws: list[list[float]]
) -> None:
    env = FiniteMDP(np.full((3, 1, 3), 1 / 3), np.zeros((3, 1)), horizon=1, initial=initial)
    for agent, law in enumerate(laws):
        assert np.allclose(env.initial_law(agent), law)
        drawn = {env.first_state(agent, u) for u in np.linspace(0.0, 0.999, 50)}
        assert drawn == set(np.flatnonzero(law))


def test_arrays_are_copied_read_only_and_keep_their_stationarity() -> None:
    P, r = np.full((2, 1, 2), 0.5), np.zeros((3, 2, 1))
    env = FiniteMDP(P, r)
    assert (env.horizon, env.P.shape, env.r.shape) == (3, (1, 2, 1, 2), (3, 2, 1))
    P[0, 0] = 7.0
    assert env.P.max() == 0.5
    for array in (env.P, env.r, env.optimal_values(), env.initial_law(0)):
        assert not array.flags.writeable
    assert env.optimal_values() is env.optimal_values()


def test_rewards_beyond_the_interval_by_rounding_are_put_on_its_border() -> None:
    env = FiniteMDP(np.ones((1, 3, 1)), [[0.1 * 3 / 0.3, -1e-12, 0.5]], horizon=1)
    assert env.r.tolist() == [[[1.0, 0.0, 0.5]]]


def test_rows_within_rounding_of_one_are_left_as_they_are() -> None:
    P = np.array([[[0.5, 0.5 + 5e-10]], [[0.5, 0.5]]])
    assert np.array_equal(FiniteMDP(P, np.zeros((2, 1)), horizon=1).P[0], P)


@given(mdps())
def test_its_own_arrays_rebuild_the_same_problem(env: FiniteMDP) -> None:
    r = env.r if env.reward_on_transition is None else env.reward_on_transition
    again = FiniteMDP(env.P, r, horizon=env.horizon, initial=env.initial_laws, phi=env.phi)
    assert again.fingerprint == env.fingerprint
    assert again.describe()["fingerprint"] == env.fingerprint


def test_the_fingerprint_sees_every_field() -> None:
    P, r = np.full((2, 2, 2), 0.5), np.full((2, 2), 0.5)
    phi = np.zeros((2, 2, 1))
    variants = [
        FiniteMDP(P, r, horizon=2),
        FiniteMDP(P, r, horizon=3),
        FiniteMDP(P, 0.9 * r, horizon=2),
        FiniteMDP(P[:, :, ::-1] * [0.5, 1.5], r, horizon=2),
        FiniteMDP(P, r, horizon=2, initial=1),
        FiniteMDP(P, r, horizon=2, phi=phi),
    ]
    assert len({env.fingerprint for env in variants}) == len(variants)


def test_features_are_its_own_table_or_one_hot() -> None:
    P, r = np.full((2, 2, 2), 0.5), np.zeros((2, 2))
    assert FiniteMDP(P, r, horizon=1).default_features().dim == 4
    assert FiniteMDP(P, r, horizon=1).phi is None
    phi = np.full((2, 2, 3), 0.5)
    own = FiniteMDP(P, r, horizon=1, phi=phi)
    assert own.default_features().dim == 3
    assert np.array_equal(own.phi, phi)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (np.zeros((2, 6), int), ("bad-policy", "(2, 6)", "(3, 6)")),
        (np.full((3, 6), 2), ("bad-policy",)),
        (np.full((3, 6), -1), ("bad-policy", "-1")),
        (
            np.full((3, 6), 0.5),
            ("bad-policy", "64", "(3, 6)", "(3, 6, 2)"),
        ),
        (np.full((3, 6, 2), 0.6), ("bad-policy",)),
        (np.full((3, 6, 2), np.nan), ("bad-policy",)),
    ],
)
def test_bad_policies_are_refused(policy: np.ndarray, message: tuple[str, ...]) -> None:
    with refused(InvalidInput, *message):
        RiverSwim(6, 3).policy_values(policy)


@pytest.mark.parametrize("h", [0, 4, -1])
def test_steps_are_one_based(h: int) -> None:
    env = RandomMDP(2, 2, 3)
    for call in (env.transition, env.reward, lambda h: env.step(h, 0, 0, 0.5)):
        with refused(InvalidInput, "bad-step", f"{h}"):
            call(h)


def test_arrays_stay_read_only_in_another_process() -> None:
    """Else kernels would be compiled there once more, for another type."""
    env = RandomLinearMDP(n_states=6, n_actions=2, dim=3, horizon=4, seed=0)
    assert len(env.tables) == 4
    assert len(env.optimal_values()) == 5
    for other in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env)):
        arrays = [other.P, other.r, other.phi, other.initial_laws, other.optimal_values()]
        assert not any(array.flags.writeable for array in [*arrays, *other.tables])
