"""The numbers of the environment families, from the formulas in their docstrings: arrays written
out where nothing is random, and laws where something is."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from fedlsvi.envs import (
    CombinationLock,
    DeepSea,
    FiniteMDP,
    Garnet,
    RandomLinearMDP,
    RandomMDP,
    RiverSwim,
    XiCloseMDP,
)

UNLIKELY = 1e-3
"""Seeds are fixed, so a correct law always stays above this."""


def concentration(alpha: float, n: int) -> float:
    """E Σp² for p ~ Dirichlet(α·1_n): (α + 1)/(nα + 1)."""
    return (alpha + 1.0) / (n * alpha + 1.0)


def kernels(envs: list[FiniteMDP]) -> int:
    """How many different kernels there are."""
    return len({env.P.tobytes() for env in envs})


def test_the_deep_sea_of_four_columns() -> None:
    """r(left) = .01/4 at every step and column, 1 for right at the last step in the last column:
    four lefts are worth .01 together, N − 1 rights and a left .0025."""
    env = DeepSea(4)
    right = np.zeros((4, 4))
    right[3, 3] = 1.0
    assert np.array_equal(env.r[:, :, 0], np.full((4, 4), 0.0025))
    assert np.array_equal(env.r[:, :, 1], right)
    assert env.policy_values(np.zeros((4, 4), int))[0, 0] == pytest.approx(0.01)
    late_left = np.array([[1], [1], [1], [0]]).repeat(4, axis=1)
    assert env.policy_values(late_left)[0, 0] == pytest.approx(0.0025)


def test_the_river_of_three_states() -> None:
    """Staying at the left end for H = 20 steps is worth 20·.005."""
    env = RiverSwim(3)
    assert env.r.tolist() == [[[0.005, 0.0], [0.0, 0.0], [0.0, 1.0]]]
    right = [[0.4, 0.6, 0.0], [0.05, 0.6, 0.35], [0.0, 0.4, 0.6]]
    assert env.P[0, :, 1].tolist() == right
    assert env.P[0, :, 0].tolist() == [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert env.policy_values(np.zeros((20, 3), int))[0, 0] == pytest.approx(0.1)


@pytest.mark.parametrize("b", [2, 3, 5])
def test_garnet_cuts_the_stick_uniformly(b: int) -> None:
    """b − 1 uniform cuts leave b pieces that are Dirichlet(1) together: each is Beta(1, b − 1), and
    E Σp² = 2/(b + 1). Successors and rewards are uniform."""
    env = Garnet(40, 25, b, seed=7)
    rows = env.P.reshape(-1, 40)
    x = np.nonzero(rows)[1].reshape(len(rows), b)
    pieces = np.take_along_axis(rows, x, axis=1)
    for i in range(b):
        assert stats.kstest(pieces[:, i], "beta", (1, b - 1)).pvalue > UNLIKELY
    assert (pieces**2).sum(axis=1).mean() == pytest.approx(concentration(1.0, b), rel=0.05)
    assert stats.chisquare(np.bincount(x.ravel(), minlength=40)).pvalue > UNLIKELY
    assert stats.kstest(env.r.ravel(), "uniform").pvalue > UNLIKELY


def test_garnet_draws_everything_from_its_seed() -> None:
    one, two, again = Garnet(seed=1), Garnet(seed=2), Garnet(seed=1)
    assert np.array_equal(one.P, again.P)
    assert np.array_equal(one.r, again.r)
    assert not np.any(one.r == two.r)
    assert not np.array_equal(one.P > 0.0, two.P > 0.0)


def test_the_lock_draws_the_order_of_its_bad_states_per_step() -> None:
    """Every latent but 0 leads to s₁, s₂ with .8/.2 or .2/.8, each order half of the time, and one
    step says nothing about the next."""
    env = CombinationLock(horizon=400, n_actions=4, dim=9, seed=3)
    assert set(map(tuple, env.mu[:, 1:].reshape(-1, 3))) == {(0.0, 0.8, 0.2), (0.0, 0.2, 0.8)}
    first = env.mu[:, 1:, 1] == 0.8  # (H, d − 1), 3,200 fair coins
    assert stats.binomtest(int(first.sum()), first.size).pvalue > UNLIKELY
    for latent in range(8):
        assert stats.binomtest(int(first[:, latent].sum()), 400).pvalue > UNLIKELY
    assert (first[1:] != first[:-1]).mean() == pytest.approx(0.5, abs=0.05)
    assert not np.array_equal(env.mu, CombinationLock(400, 4, 9, seed=4).mu)


def test_an_own_law_of_the_random_mdp_is_drawn_from_seed_and_agent() -> None:
    """At ε = 1 agent m meets P^m itself: Dirichlet(1), another one for every (seed, agent), and
    never the common law. In between P is the mixture."""
    pairs = list(product(range(4), range(4)))
    own = [RandomMDP(seed=seed, agent=m, epsilon=1.0) for seed, m in pairs]
    common = [RandomMDP(seed=seed) for seed in range(4)]
    assert kernels([*own, *common]) == 20
    for (seed, _), env in zip(pairs, own, strict=True):
        assert np.array_equal(env.r, common[seed].r)
    mixed = RandomMDP(seed=2, agent=3, epsilon=0.25)
    assert np.allclose(mixed.P, 0.75 * common[2].P + 0.25 * own[11].P, atol=1e-15)
    for envs in (own, common):
        p = np.stack([env.P for env in envs])
        squares = (p**2).sum(axis=-1)
        assert squares.mean() == pytest.approx(concentration(1.0, 5), rel=0.05)


@pytest.mark.parametrize("noise", ["linear", "point"])
def test_xi_close_noise_is_drawn_from_seed_and_agent(noise: str) -> None:
    """Agent 1 of seed 0 is not agent 0 of seed 1."""
    reference = RandomLinearMDP(6, 3, 4, 3, seed=1)
    pairs = product(range(4), range(4))
    agents = [XiCloseMDP(reference, m, 0.2, "mix", noise, seed) for seed, m in pairs]
    assert kernels(list(agents)) == 16


def test_xi_close_noise_does_not_follow_what_its_reference_was_drawn_with() -> None:
    """For NumPy the seeds [7, 0] and 7 are one: no agent may be given the former."""
    reference = RandomLinearMDP(6, 3, 4, 3, seed=7)
    agent = XiCloseMDP(reference, 0, 1.0, noise="point", seed=7)
    drawn = np.random.default_rng(7).integers(6, size=agent.P.shape[:-1])
    assert not np.array_equal(agent.P.argmax(axis=-1), drawn)


def test_linear_noise_is_dirichlet_of_a_tenth() -> None:
    """With ξ = 1 an agent is its noise, and with an anchor per pair (d = SA) the rows of its P are
    the ν_i: E Σν² = 1.1/(.1·10 + 1) = .55. (Dirichlet(1) would have 2/11.) Rewards are uniform."""
    reference = RandomLinearMDP(10, 4, 40, 10, seed=5)
    agent = XiCloseMDP(reference, agent=2, xi=1.0, seed=6)
    assert concentration(0.1, 10) == pytest.approx(0.55)
    assert (agent.P**2).sum(axis=-1).mean() == pytest.approx(0.55, abs=0.04)
    assert stats.kstest(agent.r.ravel(), "uniform").pvalue > UNLIKELY


def test_point_noise_is_a_state_and_a_coin() -> None:
    """With ξ = 1: uniform point masses, and rewards of 0 or 1 with equal odds."""
    reference = RandomLinearMDP(10, 4, 40, 10, seed=5)
    agent = XiCloseMDP(reference, 2, 1.0, noise="point", seed=6)
    assert np.isin(agent.P, (0.0, 1.0)).all()
    assert stats.chisquare(agent.P.sum(axis=(0, 1, 2))).pvalue > UNLIKELY
    assert np.isin(agent.r, (0.0, 1.0)).all()
    assert stats.binomtest(int(agent.r.sum()), agent.r.size).pvalue > UNLIKELY


def test_the_random_linear_mdp_has_its_two_dirichlet_laws() -> None:
    """φ off the anchors: E Σφ² = 1.3/(.3·8 + 1) = .382; μ over 10 states: .55; θ uniform."""
    env = RandomLinearMDP(10, 40, 8, 50, seed=2)
    squares = (env.phi**2).sum(axis=-1)
    assert (squares == 1.0).sum() == 8
    assert squares[squares < 1.0].mean() == pytest.approx(1.3 / 3.4, abs=0.03)
    assert (env.mu**2).sum(axis=-1).mean() == pytest.approx(0.55, abs=0.04)
    assert stats.kstest(env.theta.ravel(), "uniform").pvalue > UNLIKELY
