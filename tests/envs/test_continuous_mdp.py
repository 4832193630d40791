"""The linear MDP on [0, 1]: exact values, exact sampling, and the accuracy that is claimed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betainc

from fedlsvi.envs import ContinuousLinearMDP
from fedlsvi.envs.quantiles import QuantileLaws, beta_laws

X = np.linspace(0.0, 1.0, 33)[:, None]


def quadrature(env: ContinuousLinearMDP, points: int) -> np.ndarray:
    """w*_h by midpoints in the uniform that is drawn: ∫V dμ_i = ∫₀¹ V(q_i(u)) du."""
    u = (np.arange(points) + 0.5) / points
    levels = np.linspace(0.0, 1.0, env.laws.cells + 1)
    states = np.stack([np.interp(u, levels, edges) for edges in env.laws.edges])
    phi = env.default_features()(states.reshape(-1, 1))
    w: np.ndarray = env.theta[-1]
    for h in range(env.horizon - 1, 0, -1):
        v = (phi @ w).max(axis=1).reshape(states.shape)
        w = env.theta[h - 1] + v.mean(axis=1)
    return w


def test_the_optimum_is_the_limit_of_refined_quadrature() -> None:
    """Midpoints that know nothing of the pieces converge to the values computed piece by piece."""
    env = ContinuousLinearMDP(dim=6, n_actions=3, horizon=4, seed=1)
    exact = env.optimal_weights[0]
    errors = [np.abs(quadrature(env, n) - exact).max() for n in (512, 4096, 32768)]
    assert errors[0] < 1e-3
    assert errors[1] < errors[0] / 10
    assert errors[2] < errors[1] / 10
    assert errors[2] < 1e-6


@given(st.integers(2, 9), st.integers(1, 4), st.integers(1, 4), st.integers(0, 1000))
def test_the_greedy_policy_attains_the_optimum(dim: int, A: int, H: int, seed: int) -> None:
    """V^π, by grid and bisection of a black box, meets V*, computed from crossings."""
    env = ContinuousLinearMDP(dim, A, H, seed, points=256)
    best = env.optimal_values_at(X)
    assert np.abs(env.policy_values_at(env.greedy_policy, X) - best).max() < 1e-8
    assert (env.uniform_values_at(X) <= best + 1e-12).all()


def test_policies_are_evaluated_to_the_accuracy_that_is_claimed() -> None:
    """A policy with changes off every grid: refining the grid by 64 changes less than 1e-8."""

    def policy(h: int, x: np.ndarray) -> np.ndarray:
        return (np.floor(7.3 * x[:, 0] + 0.1234 * h) % 3).astype(np.int64)

    coarse, fine = (
        ContinuousLinearMDP(dim=5, n_actions=3, horizon=4, seed=2, points=n).policy_weights(policy)
        for n in (64, 4096)
    )
    assert np.abs(coarse - fine).max() < 1e-8


def test_two_changes_of_action_between_neighbouring_places_are_both_found() -> None:
    """Actions 0, 1, 2 in turn around 0.4, within one cell of the coarse grid."""

    def policy(h: int, x: np.ndarray) -> np.ndarray:
        return np.searchsorted([0.4012, 0.4031], x[:, 0], side="right")

    coarse, fine = (
        ContinuousLinearMDP(dim=3, n_actions=3, horizon=3, seed=6, points=n).policy_weights(policy)
        for n in (8, 4096)
    )
    assert np.abs(coarse - fine).max() < 1e-8


def always_one(h: int, x: np.ndarray) -> np.ndarray:
    return np.ones(len(x), np.int64)


@pytest.mark.parametrize("kind", ["optimal", "uniform", "constant"])
def test_returns_of_simulated_episodes_average_to_the_value(kind: str) -> None:
    env = ContinuousLinearMDP(dim=6, n_actions=3, horizon=4, seed=3, initial=0.37)
    n = 40_000
    rng = np.random.default_rng(11)
    x = env.reset(rng.random((n, 1)), np.arange(n))
    start, total = x[:1], np.zeros(n)
    policy = env.greedy_policy if kind == "optimal" else always_one
    for h in range(1, env.horizon + 1):
        a = rng.integers(3, size=n) if kind == "uniform" else policy(h, x)
        r, x = env.step(h, x, a, rng.random((n, 2)))
        total += r
    if kind == "optimal":
        value = env.optimal_values_at(start)
    elif kind == "uniform":
        value = env.uniform_values_at(start)
    else:
        value = env.policy_values_at(always_one, start)
    assert abs(total.mean() - value[0]) < 4 * total.std() / np.sqrt(n)


def test_rewards_and_mixtures_are_linear_in_the_features() -> None:
    """r = ⟨φ, θ_h⟩, and x' lies in the cell of a knot that φ gives weight to."""
    env = ContinuousLinearMDP(dim=4, n_actions=2, horizon=2, seed=4, cells=1)
    rng = np.random.default_rng(0)
    x, a = rng.random((500, 1)), rng.integers(2, size=500)
    phi = env.default_features()(x)[np.arange(500), a]
    r, _ = env.step(2, x, a, rng.random((500, 2)))
    assert np.allclose(r, phi @ env.theta[1], atol=1e-12)


def test_the_mixture_draws_knots_with_the_probabilities_phi() -> None:
    """Fix x, a and u₁, sweep u₀: the share of each knot's quantile is φ_i(x,a)."""
    env = ContinuousLinearMDP(dim=4, n_actions=2, horizon=1, seed=4)
    n = 10_000
    u = np.column_stack([(np.arange(n) + 0.5) / n, np.full(n, 0.3)])
    _, y = env.step(1, np.full((n, 1), 0.2), np.ones(n, np.int64), u)
    quantiles = [np.interp(0.3, np.linspace(0, 1, 1025), edges) for edges in env.laws.edges]
    shares = [np.isclose(y[:, 0], q, atol=1e-12).mean() for q in quantiles]
    phi = env.default_features()(np.array([[0.2]]))[0, 1]
    assert np.abs(np.array(shares) - phi).max() <= 1.0 / n


def test_cutting_the_beta_into_cells_costs_little() -> None:
    """The simulated law meets Beta at k/1024, and its V* converges as the cells get finer."""
    laws = beta_laws(np.array([2.0, 1.0]), np.array([5.0, 1.0]))
    assert np.allclose(
        betainc([[2.0], [1.0]], [[5.0], [1.0]], laws.edges), np.linspace(0, 1, 1025), atol=1e-9
    )
    values = [
        ContinuousLinearMDP(dim=6, seed=5, cells=n).optimal_values_at(X) for n in (64, 1024, 4096)
    ]
    first, second = (np.abs(v - values[2]).max() for v in values[:2])
    assert second < first / 20
    assert second < 1e-4


@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 9))
def test_integrals_of_linear_pieces_are_exact(seed: int, cells: int, pieces: int) -> None:
    """Against the closed form ∫(α + βx) dμ with the mean of each cell, for a single line; and
    splitting a line into pieces changes nothing."""
    rng = np.random.default_rng(seed)
    inner = np.sort(rng.random((2, cells - 1)), axis=1)
    edges = np.concatenate([np.zeros((2, 1)), inner, np.ones((2, 1))], axis=1)
    laws = QuantileLaws(edges)
    mean = 0.5 * (edges[:, 1:] + edges[:, :-1]).mean(axis=1)
    z = np.concatenate([[0.0], np.sort(rng.random(pieces)), [1.0]])
    left, right = laws.weights(z)
    f = 0.3 + 2.0 * z
    assert np.allclose(left @ f[:-1] + right @ f[1:], 0.3 + 2.0 * mean, atol=1e-9)
    assert np.allclose((left + right).sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.parametrize(
    ("initial", "expected"),
    [("uniform", [0.1, 0.6, 0.9]), (0.25, [0.25] * 3), ([0.0, 0.5], [0.0, 0.5, 0.0])],
)
def test_initial_states_are_fixed_random_or_per_agent(
    initial: object, expected: list[float]
) -> None:
    env = ContinuousLinearMDP(initial=initial)
    states = env.reset(np.array([[0.1], [0.6], [0.9]]), np.arange(3))
    assert states[:, 0].tolist() == expected


def test_the_last_uniform_below_one_stays_in_the_interval() -> None:
    env = ContinuousLinearMDP(dim=3, n_actions=2, horizon=1)
    x = np.array([[0.0], [0.5], [1.0], [np.nextafter(1.0, 0.0)]])
    for u in (0.0, 1.0 - 2.0**-53):
        for a in (0, 1):
            r, y = env.step(1, x, np.full(4, a), np.full((4, 2), u))
            assert ((y >= 0.0) & (y <= 1.0)).all()
            assert ((r >= 0.0) & (r <= 1.0)).all()
