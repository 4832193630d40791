"""Fed-LSVI becomes what it must become at the ends of its range (oracles 1, 2, 4, 5, 6, 9).

Oracle 14 equates the comparators (Coop-LSVI, Async-Coop, CoopTS-PHE) with oracles 1 and 2; its
tests stand with the comparators.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agreement import assert_agrees, assert_close, assert_few_near_ties, compare
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

CONTINUOUS = [continuous(0.1), continuous(0.0)]


def advice(problem: Problem, run: Any) -> Any:
    return run.policies if problem.finite else None


def assert_is(run: Any, literal: Any) -> None:
    """Models, τ's, policies and regret of a code that knows no rounds and no signals."""
    literal.signals = [set(range(record.signals)) for record in run.records]
    literal.firing = [set() for _ in run.records]
    assert_agrees(run, literal)
    assert_few_near_ties(literal)


@pytest.mark.parametrize("problem", [*finite_zoo(), *CONTINUOUS], ids=lambda p: p.name)
def test_gamma_one_single_agent_is_lsvi_ucb(problem: Problem) -> None:
    """Oracle 1: M = 1, γ = 1 synchronises after every episode, which is LSVI-UCB: K = T and every
    (w, Λ) on the way."""
    s = Setting(M=1, T=40, gamma=1.0, seed=1)
    run = problem.learn(s)
    assert len(run.records) == s.T
    literal = literal_lsvi_ucb(
        problem.one, problem.phi, s.T, problem.horizon, s.seed, s.lam, s.beta,
        advice=advice(problem, run),
    )  # fmt: skip
    assert_is(run, literal)


@pytest.mark.parametrize("M", [2, 5, 8])
@pytest.mark.parametrize(
    "kind", [simplex, one_hot, heterogeneous, continuous], ids=lambda k: k.__name__
)
def test_gamma_one_is_pooled_lsvi_ucb(kind: Any, M: int) -> None:
    """Oracle 2: at γ = 1 any number of agents is LSVI-UCB on their pooled data, that is, periodic
    synchronisation with period 1. The pooled code regresses by stacked least squares."""
    problem = kind(M=M) if kind is heterogeneous else kind()
    s = Setting(M=M, T=12, gamma=1.0, seed=2)
    run = problem.learn(s)
    literal = literal_pooled_lsvi_ucb(
        problem.envs, problem.phi, M, s.T, problem.horizon, s.seed, s.lam, s.beta,
        advice=advice(problem, run),
    )  # fmt: skip
    assert_is(run, literal)


@pytest.mark.parametrize("problem", [*finite_zoo(), *CONTINUOUS], ids=lambda p: p.name)
def test_gamma_beyond_reach_is_one_round(problem: Problem) -> None:
    """Oracle 4: Δt·det ratio ≤ T(1 + T/(λd))^d, so a larger γ never fires and K = 1."""
    s = Setting(M=3, T=20)
    d = problem.literal(s.but(T=1)).w.shape[1]
    s = s.but(gamma=1.01 * s.T * (1.0 + s.T / (s.lam * d)) ** d)
    run, _ = compare(problem, s)
    assert list(run.taus) == [1, s.T + 1]
    assert run.records[0].signals == s.M


@pytest.mark.parametrize("gamma", [1.0, 3.0, 1e9])
@pytest.mark.parametrize(
    "problem", [simplex(5, H=1), one_hot(5, H=1), continuous(0.1, H=1)], ids=lambda p: p.name
)
def test_one_step_problems_have_no_stale_values(problem: Problem, gamma: float) -> None:
    """Oracle 5: with H = 1 uploading everything at once (stale) is the stepwise protocol."""
    s = Setting(M=3, T=25, gamma=gamma, seed=3)
    run = problem.learn(s)
    assert_agrees(run, problem.literal(s, stale=True, advice=advice(problem, run)))


@pytest.mark.parametrize("problem", [simplex(5), continuous(0.1)], ids=lambda p: p.name)
def test_stepwise_labels_are_fresh(problem: Problem) -> None:
    """Oracle 5: with H ≥ 2 the stale protocol gives another model already after round 1."""
    s = Setting(M=2, T=20, gamma=3.0, seed=3)
    run, stale = problem.learn(s), problem.literal(s, stale=True)
    H = problem.horizon
    assert_close(run.models[0][0][H - 1], stale.models[0][0][H - 1], "w of the last step")
    assert np.abs(run.models[0][0][: H - 1] - stale.models[0][0][: H - 1]).max() > 1e-3


@pytest.mark.parametrize("packing", ["auto", "diagonal", "packed", "dense"])
@pytest.mark.parametrize("gamma", [1.0, 2.0, 5.0, 40.0, 1e9])
@pytest.mark.parametrize(
    "problem", [one_hot(6), chain(), transition_rewards(6)], ids=lambda p: p.name
)
def test_one_hot_is_counting(problem: Problem, gamma: float, packing: str) -> None:
    """Oracle 6: Λ = diag(λ + N), w = Σ(r + V)/(λ + N), bonus β/√(λ + N), ratio Π(1 + n/(λ + N)),
    against a code that holds integers; whatever way the Gram matrix travels."""
    s = Setting(M=3, T=40, gamma=gamma, seed=4, lam=0.5)
    run = problem.learn(s, packing=packing)
    counted = literal_counting(
        problem.envs, s.M, s.T, s.seed, s.lam, s.beta, gamma, advice=run.policies
    )
    assert_agrees(run, counted)
    assert_few_near_ties(counted)


@pytest.mark.parametrize("gamma", [1.0, 3.0, 10.0, 1e9])
@pytest.mark.parametrize("problem", [chain(), deterministic(6)], ids=lambda p: p.name)
def test_identical_agents_are_one_agent_with_weight(problem: Problem, gamma: float) -> None:
    """Oracle 9: where nothing is random, M agents are one agent whose samples count M times at the
    server; the trigger goes on using the unweighted Λloc."""
    s = Setting(M=6, T=40, gamma=gamma)
    run = problem.learn(s)
    alone = problem.literal(s.but(M=1), weight=s.M, advice=run.policies)
    assert list(run.taus) == alone.taus
    for k, (w, gram) in enumerate(alone.models):
        assert_close(run.models[k][0], w, "w")
        assert_close(run.models[k][1], gram, "Λ")
        assert np.array_equal(run.policies[k], alone.policies[k])
