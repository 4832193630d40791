"""Rounds within Theorem 3, scalars to the last one, and goldens worked by hand (oracles 11, 13)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agreement import (
    assert_close,
    assert_ledger_is_the_formula,
    assert_rounds_are_lawful,
    compare,
    theorem_3,
)
from fedlsvi.envs.finite import FiniteMDP
from literal import Greedy, feature_lookup
from problems import Problem, Setting, chain, continuous, one_hot, one_hot_table, simplex


@given(
    st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 300),
    st.floats(1.0, 400.0), st.sampled_from([0.1, 1.0, 2.0]), st.booleans(),
)  # fmt: skip
def test_rounds_never_exceed_theorem_3(
    seed: int, M: int, T: int, gamma: float, lam: float, counting: bool
) -> None:
    """Oracle 11: ⌈T/⌈γ⌉⌉ ≤ K ≤ 1 + 2T/γ + dH/log 2 · log(1 + MT/(λd)), and Δt ≤ ⌈γ⌉."""
    problem = one_hot(seed) if counting else simplex(seed)
    s = Setting(M, T, gamma, seed, lam)
    run = problem.learn(s)
    assert_rounds_are_lawful(run, s, problem.horizon, run.w.shape[1])


@pytest.mark.parametrize("T", [7, 100, 1000])
@pytest.mark.parametrize("M", [1, 4])
def test_automatic_gamma_is_the_papers(M: int, T: int) -> None:
    """gamma="auto" is max(T/(Md), 1), a real number: the run is the one with that number."""
    problem = simplex(16, d=4)
    s = Setting(M=M, T=T, seed=16)
    auto = problem.learn(s.but(gamma="auto"))
    given_ = problem.learn(s.but(gamma=max(T / (M * 4), 1.0)))
    assert list(auto.taus) == list(given_.taus)
    assert auto.w.tobytes() == given_.w.tobytes()


@pytest.mark.parametrize(("M", "gamma"), [(1, 1.0), (3, 4.0), (8, 15.0), (5, 1e9)])
@pytest.mark.parametrize("packing", ["packed", "dense"])
@pytest.mark.parametrize("problem", [simplex(17), one_hot(17), continuous()], ids=lambda p: p.name)
def test_ledger_is_the_closed_formula(problem: Problem, packing: str, M: int, gamma: float) -> None:
    """Oracle 11: P = d(d + 1)/2 packed and d² dense, to the scalar, category by category."""
    run = problem.learn(Setting(M=M, T=40, gamma=gamma, seed=17), packing=packing)
    H, d = run.w.shape
    P = d * d if packing == "dense" else d * (d + 1) // 2
    assert_ledger_is_the_formula(run, M, H, d, P)


@pytest.mark.parametrize("packing", ["auto", "diagonal"])
@pytest.mark.parametrize("problem", [one_hot(18), chain()], ids=lambda p: p.name)
def test_one_hot_ledger_counts_diagonals(problem: Problem, packing: str) -> None:
    """With one-hot features the Gram matrix is diagonal and P = d: a round costs 4MHd + signals."""
    run = problem.learn(Setting(M=3, T=40, gamma=5.0, seed=18), packing=packing)
    H, d = run.w.shape
    assert_ledger_is_the_formula(run, 3, H, d, d)
    stats = run.ledger.scalars["up_stats"] + run.ledger.scalars["down_model"]
    assert stats == len(run.records) * 4 * 3 * H * d


def test_automatic_packing_is_packed_for_dense_features() -> None:
    """auto: the diagonal only where the feature map says one-hot."""
    run = simplex(19).learn(Setting(M=2, T=20), packing="auto")
    H, d = run.w.shape
    assert_ledger_is_the_formula(run, 2, H, d, d * (d + 1) // 2)


@pytest.mark.parametrize("problem", [simplex(20), one_hot(20), chain()], ids=lambda p: p.name)
def test_the_exploring_policy_is_greedy_in_the_final_model(problem: Problem) -> None:
    """It is what the last synchronisation left; steps count from 1, also in `action`."""
    s = Setting(M=3, T=40, gamma=5.0, seed=20)
    run, literal = compare(problem, s)
    model, table = run.models[-1], np.asarray(run.exploring_policy.table)
    greedy = Greedy(feature_lookup(problem.phi), model, s.beta, literal, table)
    for h in range(1, problem.horizon + 1):
        for x in range(problem.one.n_states):
            assert run.exploring_policy.action(x, h) == table[h - 1, x] == greedy(h, x)


def test_bounds_stand_beside_what_was_measured() -> None:
    """The library's Theorem 3 and count of scalars are the formulas used here."""
    problem, s = simplex(21), Setting(M=4, T=200, gamma=9.0, lam=0.5, seed=21)
    run = problem.learn(s)
    H, d = run.w.shape
    rounds, scalars = run.bounds["theorem_3"], run.bounds["scalars"]
    assert math.isclose(rounds.bound, min(theorem_3(s, H, d), s.T))
    assert rounds.measured == len(run.records)
    assert scalars.bound == scalars.measured == run.ledger.total


def two_states() -> Problem:
    """States 0, 1; action a leads to state a; r(0,0) = 1/4, r(1,1) = 1, else nothing; H = 2."""
    P = np.zeros((2, 2, 2))
    P[:, 0, 0] = P[:, 1, 1] = 1.0
    env = FiniteMDP(P, np.array([[0.25, 0.0], [0.0, 1.0]]), horizon=2, initial=0)
    return Problem("two states", env, one_hot_table(2, 2))


def test_two_states_two_steps_by_hand() -> None:
    """M = 3, λ = β = 1, γ = 1, T = 2; coordinates (x,a) = 00, 01, 10, 11. All agents do the same.

    Episode 1. w = 0, every bonus is 1: ties, so action 0 twice, through (0,0) and (0,0).
      h = 2: N₀₀ = 3, Λ₀₀ = 4, b₀₀ = 3·¼ = ¾, w₀₀ = 3/16. Q₂(0,·) = (3/16 + ½, 1) = (11/16, 1),
             so V₂(0) = 1; V₂(1) = 1.
      h = 1: Λ₀₀ = 4, b₀₀ = 3(¼ + 1) = 15/4, w₀₀ = 15/16. Q₁(0,·) = (23/16, 1).
    Episode 2. At h = 1 action 0 (23/16 > 1), at h = 2 action 1 (1 > 11/16), which pays nothing.
      h = 2: N₀₀ = N₀₁ = 3, w = (3/16, 0, 0, 0). Q₂(0,·) = (11/16, ½), V₂(0) = 11/16.
      h = 1: Λ₀₀ = 7, b₀₀ = 6(¼ + 11/16) = 45/8, w₀₀ = 45/56.
    Regret. V*₁(0) = 0 + 1 (right, right). Policy 1 earns ½, policy 2 earns ¼:
      3(1 − ½) = 3/2, then 3(1 − ¼) = 9/4 more.
    Scalars, diagonal, P = d = 4: init 3(2·8 + 3) = 57; a round 3·2·8 = 48 up, 48 down, and
      3 + 2·3 = 9 for signals; two rounds: 57 + 2·105 = 267.
    """
    run, _ = compare(two_states(), Setting(M=3, T=2, gamma=1.0))
    assert list(run.taus) == [1, 2, 3]
    (w_1, gram_1), (w_2, gram_2) = run.models
    assert_close(w_1, np.array([[15 / 16, 0, 0, 0], [3 / 16, 0, 0, 0]]), "w after round 1", 1e-15)
    assert_close(w_2, np.array([[45 / 56, 0, 0, 0], [3 / 16, 0, 0, 0]]), "w after round 2", 1e-15)
    assert np.array_equal(gram_1, [np.diag([4, 1, 1, 1])] * 2)
    assert np.array_equal(gram_2, [np.diag([7, 1, 1, 1]), np.diag([4, 4, 1, 1])])
    assert np.array_equal(run.policies[0], [[0, 0], [0, 0]])
    assert np.array_equal(run.policies[1], [[0, 0], [1, 0]])
    assert_close(run.regret, np.array([1.5, 3.75]), "regret", 1e-15)
    assert run.ledger.scalars["init"] == 57
    assert run.ledger.total == 267


@pytest.mark.parametrize(("gamma", "taus"), [(2.0, [1, 2, 3]), (2.5, [1, 3])])
def test_two_states_trigger_by_hand(gamma: float, taus: list[int]) -> None:
    """The same problem. After episode 1 each agent's ratio is (1 + 1)/1 = 2 at both steps: γ = 2 is
    met exactly and the round ends (again after episode 2, unseen (0,1) at h = 2, and T anyway);
    γ = 5/2 is not met, and T = 2 ends the round."""
    run, _ = compare(two_states(), Setting(M=3, T=2, gamma=gamma))
    assert list(run.taus) == taus
    assert [record.signals for record in run.records] == [3] * (len(taus) - 1)


@pytest.mark.parametrize("seed", range(4))
def test_vanishing_ridge_on_a_covered_deterministic_problem_is_planning(seed: int) -> None:
    """Oracle 13: λ → 0 on a deterministic one-hot MDP with full coverage gives w = Q*.

    β → 0 with it, such that β/√λ = 2H: an unseen pair is worth the clip H, a seen one its value up
    to 2H√λ. Rewards stay below 1, so optimism visits every pair that can be reached.
    """
    rng = np.random.default_rng(seed)
    S, A, H, root = 3, 2, 3, 1e-7
    P = np.eye(S)[rng.integers(S, size=(S, A))]
    env = FiniteMDP(P, 0.9 * rng.random((S, A)), horizon=H, initial=0)
    s = Setting(M=2, T=40, gamma=1.0, lam=root**2, beta=2 * H * root)
    run, _ = compare(Problem("deterministic", env, one_hot_table(S, A)), s)
    assert_close(*covered_values(env, run), "Q on what can be reached", 50 * H * root)


def covered_values(env: Any, run: Any) -> tuple[Any, Any]:
    """w and Q* at the pairs that can be reached; each must have been visited."""
    S, A, H = env.n_states, env.n_actions, env.horizon
    V, w = env.optimal_values(), run.w.reshape(H, S, A)
    counts = np.stack([np.diag(g).reshape(S, A) for g in run.gram])
    reachable: set[Any] = {0}
    learned, optimal = [], []
    for h in range(1, H + 1):
        q = env.reward(h) + env.transition(h) @ V[h]
        for x in reachable:
            assert (counts[h - 1, x] >= 1).all(), "not covered: more episodes needed"
            learned += list(w[h - 1, x])
            optimal += list(q[x])
        reachable = {y for x in reachable for y in np.flatnonzero(env.transition(h)[x].sum(axis=0))}
    return np.array(learned), np.array(optimal)


def test_no_bonus_and_no_choice_is_policy_evaluation() -> None:
    """Oracle 13 with β = 0 exactly: one action, starts everywhere, w = V* to the size of λ."""
    S, H = 4, 3
    rng = np.random.default_rng(0)
    P = np.eye(S)[rng.integers(S, size=(S, 1))]
    env = FiniteMDP(P, rng.random((S, 1)), horizon=H, initial=np.full(S, 1 / S))
    s = Setting(M=4, T=30, gamma=3.0, lam=1e-12, beta=0.0)
    run = Problem("one action", env, one_hot_table(S, 1)).learn(s)
    seen = np.stack([np.diag(gram) for gram in run.gram]) >= 1.0
    assert seen[0].all()
    assert math.isclose(run.regret[-1], 0.0, abs_tol=1e-12)
    assert_close(run.w[seen], env.optimal_values()[:H][seen], "V")
