"""The fast run is the literal run, on every kind of problem, M from 1 to 8, γ from 1 to never
(oracles 3, 10 and 12)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agreement import assert_close, compare
from literal import Greedy, World, feature_lookup, fires, follow, upper_bounds, worlds
from literal_lsvi import Sample, pooled_backup
from problems import (
    Problem,
    Setting,
    chain,
    continuous,
    continuous_linear,
    deterministic,
    finite_zoo,
    heterogeneous,
    one_hot,
    simplex,
    starts_per_agent,
)

MIXED = [(1, 7.0), (2, 1.0), (3, 1.7), (5, 6.0), (8, 25.0), (4, 1e12)]
BETAS = [1.0, 0.2, 5.0]  # by M modulo 3; the last reaches the clip at H


@pytest.mark.parametrize(("M", "gamma"), MIXED)
@pytest.mark.parametrize("problem", finite_zoo(), ids=lambda p: p.name)
def test_finite_run_is_the_literal_run(problem: Problem, M: int, gamma: float) -> None:
    """Oracle 12: blocks, galloping, bisection and b = u + N·V give the episode-by-episode run."""
    compare(problem, Setting(M=M, T=50, gamma=gamma, seed=M, beta=BETAS[M % 3]))


@pytest.mark.parametrize(("M", "gamma"), MIXED)
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_continuous_run_is_the_literal_run(noise: float, M: int, gamma: float) -> None:
    """Oracle 12 with real states, where the whole buffer is relabelled at every synchronisation."""
    s = Setting(M=M, T=25, gamma=gamma, seed=M, beta=BETAS[M % 3])
    _, literal = compare(continuous(noise), s)
    assert literal.near_ties == 0, "no table to advise here, so no decision may be a near-tie"


@pytest.mark.parametrize("gamma", [60.0, 350.0, 1e12])
@pytest.mark.parametrize(
    "problem", [simplex(6), chain(), starts_per_agent(6), continuous()], ids=lambda p: p.name
)
def test_long_run_is_the_literal_run(problem: Problem, gamma: float) -> None:
    """Rounds longer than any block of uniforms, histories longer than a block of relabelling."""
    compare(problem, Setting(M=2, T=400, gamma=gamma, seed=6))


@pytest.mark.parametrize(("M", "gamma"), [(2, 15.0), (3, 40.0)])
def test_continuous_regret_is_the_literal_regret(M: int, gamma: float) -> None:
    """Σ V*₁(x₁) − V^π₁(x₁) at the states that came, π being the reference's greedy policy."""
    problem, s = continuous_linear(), Setting(M=M, T=30, gamma=gamma, seed=M)
    run, literal = compare(problem, s)
    assert literal.near_ties == 0
    env, phi, regret = problem.one, feature_lookup(problem.phi), []
    force = models_in_force(run, s, problem.horizon, run.w.shape[1])
    for record, model in zip(run.records, force, strict=True):
        greedy = Greedy(phi, model, s.beta, literal)

        def policy(h: int, x: Any, greedy: Greedy = greedy) -> Any:
            return np.array([greedy(h, state) for state in x])

        rows = literal.trajectories[record.first - 1 : record.last]
        starts = np.array([[path[0][0] for path in row] for row in rows]).reshape(-1, 1)
        lost = env.optimal_values_at(starts) - env.policy_values_at(policy, starts)
        regret += list(lost.reshape(-1, M).sum(axis=1))
    assert_close(run.regret, np.cumsum(regret), "regret", 1e-7)


@pytest.mark.parametrize(("M", "gamma"), MIXED)
def test_heterogeneous_run_is_the_literal_run(M: int, gamma: float) -> None:
    """A list of environments, one per agent; one common model; regret against each one's V*."""
    compare(heterogeneous(M, M=M), Setting(M=M, T=40, gamma=gamma, seed=M, beta=BETAS[M % 3]))


@pytest.mark.parametrize("value_range", [None, 0.8])
@pytest.mark.parametrize("problem", [simplex(7), chain(), continuous()], ids=lambda p: p.name)
def test_practical_clip_is_the_literal_one(problem: Problem, value_range: float | None) -> None:
    """preset="practical" projects on [0, min(H − h + 1, value_range)] and changes nothing else."""
    H = problem.horizon
    clip = [min(H - h + 1.0, value_range or np.inf) for h in range(1, H + 1)]
    s = Setting(M=3, T=25, gamma=4.0, lam=0.1)
    own = {"preset": "practical", "value_range": value_range, "stationary": False}
    compare(problem, s, clip=clip, **own)


@given(
    st.sampled_from([simplex, deterministic]), st.integers(0, 10**6), st.integers(2, 7),
    st.integers(1, 4), st.integers(1, 6), st.integers(1, 4), st.integers(1, 8), st.integers(1, 40),
    st.one_of(st.just(1.0), st.floats(1.0, 60.0), st.sampled_from([2.0, 4.0, 1e15])),
    st.sampled_from([0.05, 0.5, 1.0, 3.0]), st.sampled_from([0.0, 0.3, 2.0, 50.0]),
)  # fmt: skip
def test_drawn_run_is_the_literal_run(
    kind: Any, seed: int, S: int, A: int, d: int, H: int, M: int, T: int,
    gamma: float, lam: float, beta: float,
) -> None:  # fmt: skip
    """Any size, any setting: λ, β (0 included), γ, one episode, one action, one dimension."""
    assume(not H == S == A)  # rewards (H, S, A) could then be (S, A, S), and are refused
    assume(kind is deterministic or d > 1)  # on a simplex of one point every action ties
    compare(kind(seed, S, A, d, H), Setting(M, T, gamma, seed, lam, beta))


def models_in_force(run: Any, s: Setting, H: int, d: int) -> list[Any]:
    """The model at the start of each round: λI and zero, then what each synchronisation left."""
    first = np.zeros((H, d)), np.stack([s.lam * np.eye(d)] * H)
    return [first, *run.models[:-1]]


@pytest.mark.parametrize("gamma", [1.5, 4.0, 12.0, 200.0])
@pytest.mark.parametrize(
    "problem", [simplex(8), one_hot(8), chain(), deterministic(8)], ids=lambda p: p.name
)
def test_nobody_fires_before_the_round_ends_and_somebody_then(
    problem: Problem, gamma: float
) -> None:
    """Oracle 10: replay each round under its frozen table, from the library's own models and τ's.
    At every n below Δt no (m, h) is above the threshold; at Δt exactly the signallers are."""
    s, H = Setting(M=4, T=60, gamma=gamma, seed=8), problem.horizon
    run = problem.learn(s)
    agents, phi, d = worlds(problem.envs, s.M, s.seed), feature_lookup(problem.phi), run.w.shape[1]
    for record, table, (_, gram) in zip(
        run.records, run.policies, models_in_force(run, s, H, d), strict=True
    ):
        local = np.zeros((s.M, H, d, d))
        for n in range(1, record.length + 1):
            t = record.first + n - 1
            for m in range(s.M):
                path = agents[m].play(t, follow(table), H)
                for i, (x, a, _, _) in enumerate(path):
                    local[m, i] += np.outer(phi(x)[a], phi(x)[a])
            above = {
                m for m in range(s.M) for i in range(H) if fires(gram[i], local[m, i], n, gamma)
            }
            if n < record.length:
                assert not above, f"round {record.k} should have ended after {n} episodes"
            elif t < s.T:
                assert len(above) == record.signals
                assert above == {int(m) for m, _ in record.triggers}


@pytest.mark.parametrize(
    "problem", [simplex(9), one_hot(9), chain(), continuous()], ids=lambda p: p.name
)
def test_every_synchronisation_is_pooled_ridge_regression(problem: Problem) -> None:
    """Oracle 3: after each round (w, Λ) is the ridge regression on all data so far, with labels
    from this synchronisation's own V chain; here by stacked least squares, no Gram matrix."""
    s, H = Setting(M=4, T=24, gamma=5.0, seed=9), problem.horizon
    run, literal = compare(problem, s)
    phi = feature_lookup(problem.phi)
    samples: list[list[Sample]] = [[] for _ in range(H)]
    for record, (w, gram) in zip(run.records, run.models, strict=True):
        for t in range(record.first, record.last + 1):
            for path in literal.trajectories[t - 1]:
                for i, (x, a, r, y) in enumerate(path):
                    samples[i].append((phi(x)[a], r, y))
        pooled = pooled_backup(
            samples, problem.phi, w.shape[1], s.lam, s.beta, upper_bounds(None, H)
        )
        assert_close(w, pooled[0], f"w after round {record.k}", 1e-8)
        assert_close(gram, pooled[1], f"Λ after round {record.k}", 1e-8)


def test_worlds_share_draws_only_when_told() -> None:
    """The reference's agents differ by their key alone."""
    env = simplex(0).one
    starts = [[World(env, 0, m, key).first(t) for t in range(1, 30)] for m, key in ((1, 0), (0, 0))]
    assert starts[0] == starts[1]
    assert starts[0] != [World(env, 0, 1).first(t) for t in range(1, 30)]
