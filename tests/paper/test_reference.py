"""The reference itself: independent literal codes agree with each other, without the library."""

from __future__ import annotations

import numpy as np
import pytest

from agreement import assert_close
from fedlsvi.core.random import uniforms
from literal import LiteralRun, philox_4x32, uniform
from literal_lsvi import literal_counting, literal_lsvi_ucb, literal_pooled_lsvi_ucb
from problems import (
    Problem,
    Setting,
    chain,
    continuous,
    deterministic,
    finite_zoo,
    heterogeneous,
    one_hot,
    simplex,
    transition_rewards,
)

ZOO = [*finite_zoo(), heterogeneous(0), continuous(0.1), continuous(0.0)]


def assert_same(one: LiteralRun, other: LiteralRun, factor: float = 1.0) -> None:
    assert one.taus == other.taus
    assert np.array_equal(one.actions, other.actions)
    for mine, theirs in zip(one.models, other.models, strict=True):
        assert_close(mine[0], factor * theirs[0], "w")
        assert_close(mine[1], theirs[1], "Λ")


def test_literal_philox_gives_the_known_answers() -> None:
    """The vectors that its authors publish."""
    assert philox_4x32((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    pi = 0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344
    known = 0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1
    assert philox_4x32(pi, (0xA4093822, 0x299F31D0)) == known


@pytest.mark.parametrize("seed", [0, 7, 2**40 + 3])
def test_library_draws_are_the_literal_draws(seed: int) -> None:
    """`core.random.uniforms` is Philox under the documented key and counter, odd counts too."""
    for n in (1, 2, 9):
        drawn = uniforms(seed, [0, 3], 5, 2, n)
        agents, episodes = (0, 3), (5, 6)
        expected = [[[uniform(seed, m, t, j) for j in range(n)] for t in episodes] for m in agents]
        assert np.array_equal(drawn, np.array(expected))


@pytest.mark.parametrize("problem", ZOO, ids=lambda p: p.name)
def test_one_literal_agent_at_gamma_one_is_literal_lsvi_ucb(problem: Problem) -> None:
    s = Setting(M=1, T=25, gamma=1.0, seed=3)
    fed = problem.literal(s)
    advice = fed.policies if problem.finite else None
    alone = literal_lsvi_ucb(
        problem.one, problem.phi, s.T, problem.horizon, s.seed, s.lam, s.beta, advice=advice
    )
    assert_same(fed, alone)


@pytest.mark.parametrize("problem", ZOO, ids=lambda p: p.name)
def test_literal_agents_at_gamma_one_pool_their_data(problem: Problem) -> None:
    s = Setting(M=3, T=15, gamma=1.0, seed=4)
    fed = problem.literal(s)
    advice = fed.policies if problem.finite else None
    pooled = literal_pooled_lsvi_ucb(
        problem.envs, problem.phi, s.M, s.T, problem.horizon, s.seed, s.lam, s.beta, advice=advice
    )
    assert_same(fed, pooled)


@pytest.mark.parametrize("gamma", [1.0, 2.0, 3.0, 8.0, 50.0, 1e9])
@pytest.mark.parametrize(
    "problem", [one_hot(1), chain(), transition_rewards(1)], ids=lambda p: p.name
)
def test_literal_one_hot_is_literal_counting(problem: Problem, gamma: float) -> None:
    s = Setting(M=3, T=40, gamma=gamma, seed=5, lam=0.7)
    fed = problem.literal(s)
    counted = literal_counting(
        problem.envs, s.M, s.T, s.seed, s.lam, s.beta, gamma, advice=fed.policies
    )
    assert_same(fed, counted)
    assert fed.firing == counted.firing
    assert fed.signals == counted.signals


@pytest.mark.parametrize("problem", [simplex(2), one_hot(2)], ids=lambda p: p.name)
def test_literal_twins_are_one_agent_with_weight(problem: Problem) -> None:
    """Oracle 9 with random transitions: all agents replay the draws of agent 0."""
    s = Setting(M=4, T=30, gamma=6.0, seed=6)
    twins = problem.literal(s, keys=[0] * s.M)
    alone = problem.literal(s.but(M=1), weight=s.M, advice=twins.policies)
    assert twins.taus == alone.taus
    assert np.array_equal(twins.actions[:, :1], alone.actions)
    assert_close(twins.w, alone.w, "w")
    assert_close(twins.gram, alone.gram, "Λ")


def test_literal_agents_may_come_in_any_order() -> None:
    """Oracle 3, second half, with random transitions: permuting agents permutes nothing else."""
    problem, s = simplex(3), Setting(M=5, T=30, gamma=6.0, seed=7)
    order = [3, 0, 4, 1, 2]
    plain = problem.literal(s)
    shuffled = problem.literal(s, keys=order, advice=plain.policies)
    assert_close(shuffled.w, plain.w, "w")
    assert shuffled.taus == plain.taus
    assert np.array_equal(shuffled.actions, plain.actions[:, order])


@pytest.mark.parametrize("problem", [simplex(4, H=3), continuous(0.1, H=2)], ids=lambda p: p.name)
def test_literal_stale_differs_from_fresh_beyond_one_step(problem: Problem) -> None:
    """Oracle 5: with H ≥ 2 a one-shot upload labels with old values, and the models part ways."""
    s = Setting(M=2, T=20, gamma=3.0)
    fresh, stale = problem.literal(s), problem.literal(s, stale=True)
    assert np.abs(fresh.models[0][0] - stale.models[0][0]).max() > 1e-3


def test_literal_stale_is_fresh_with_one_step() -> None:
    """Oracle 5: with H = 1 the only label is the reward."""
    problem, s = deterministic(4, H=1), Setting(M=2, T=20, gamma=3.0)
    assert_same(problem.literal(s), problem.literal(s, stale=True))
