"""A cap, a floor, a budget and a growing γ: each is the literal loop with the same rule."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agreement import assert_agrees, assert_ledger_is_the_formula
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.algorithms.shared.thompson_kernels import best_sample
from fedlsvi.core import theory
from fedlsvi.core.statistics import packed_size
from fedlsvi.core.trigger import Trigger, schedule
from fedlsvi.core.value import EVERY, UNKEPT, backup, backup_diagonal, choose
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.errors import InvalidSetting
from literal import greedy_index
from problems import Problem, Setting, chain, continuous, one_hot, simplex
from repeats import repeats
from transports_over_frames import over_frames
from variants import VARIANTS, assert_kept, literal_options, paid


@pytest.mark.parametrize("own", VARIANTS, ids=str)
@pytest.mark.parametrize(
    "problem", [simplex(3), one_hot(3), chain(), continuous()], ids=lambda p: p.name
)
def test_a_variant_is_the_literal_one(problem: Problem, own: dict[str, Any]) -> None:
    s = Setting(M=3, T=40, gamma=12.0, seed=5, lam=0.5)
    p = FedLSVI(s.M).prepare(problem.envs, s.T, features=problem.features).plan.parameters
    size = packed_size(p.dim, p.packing)
    run = problem.learn(s, **paid(own, s.M, p.horizon, size + p.dim))
    options = literal_options(s, p.dim, own)
    advice = run.policies if problem.finite else None
    assert_agrees(run, problem.literal(s, advice=advice, **options))
    assert_kept(run, own)
    assert all(bound.holds for name, bound in run.bounds.items() if name != "theorem_1")
    assert_ledger_is_the_formula(run, s.M, p.horizon, p.dim, size)


@pytest.mark.parametrize("own", [*VARIANTS, {"min_round": 7, "overshoot": "keep"}], ids=str)
def test_a_variant_over_frames_is_the_same(own: dict[str, Any]) -> None:
    """Signals, guard and endpoints know the rule: every honest message passes."""
    env = RandomLinearMDP(n_states=6, n_actions=3, dim=3, horizon=3, seed=2)
    learner = FedLSVI(n_agents=3, **{"gamma": 12.0} | paid(own, 3, 3, 9))
    here = learner.learn(env, 60, 1, progress=False)
    if own.get("overshoot") != "keep":  # what is kept depends on how often the server asks
        there = learner.learn(env, 60, 1, progress=False, transport=over_frames(2))
        assert there.taus == here.taus
        assert np.array_equal(there.w, here.w)
        assert_kept(there, own)
    assert_kept(here, own)


@given(st.integers(1, 10**6), st.integers(1, 500), st.integers(1, 50))
def test_a_schedule_ends_at_the_last_episode(episodes: int, rounds: int, first: int) -> None:
    """Rising by at least `first`, no more points than rounds, the last is T; with lengths that do
    not shrink but for what rounding up leaves to the end."""
    first = min(first, episodes)
    points = schedule(episodes, rounds, first)
    lengths = np.diff(points, prepend=0)
    assert 1 <= len(points) <= rounds
    assert points[-1] == episodes
    assert lengths.min() >= first
    assert points[0] <= max(first, math.ceil(episodes / len(points)))


@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 30), st.data())
def test_no_sequence_of_rounds_breaks_a_floor_or_a_budget(
    episodes: int, rounds: int, first: int, data: st.DataObject
) -> None:
    """Whatever length each round takes within its limits."""
    first = min(first, episodes)
    trigger = Trigger(50.0, episodes, min_round=first, rounds=rounds)
    t, k = 0, 0
    while t < episodes:
        ends = [t + n for n in range(1, trigger.longest(t) + 1) if trigger.ends(t, t + n)]
        assert ends, "a round can always end"
        last = data.draw(st.sampled_from(ends))
        assert last - t >= first
        t, k = last, k + 1
    assert k <= rounds


def test_a_cap_of_two_is_theorem_3() -> None:
    size = (4, 3, 5, 1000, 20.0, 0.1)
    assert theory.rounds_bound(*size, cap=2.0) == theory.rounds_bound(*size)
    assert theory.rounds_bound(*size, cap=3.0) == theory.rounds_bound(*size)
    assert theory.rounds_bound(*size, cap=1.1) > theory.rounds_bound(*size)


@pytest.mark.parametrize("seed", range(repeats(3, 20)))
def test_rounds_never_exceed_the_bounds(seed: int) -> None:
    """K ≤ 1 + 2T/γ + dH·log(1 + MT/(λd))/log min(2, c), and its anytime form."""
    env = RandomLinearMDP(n_states=8, n_actions=3, dim=3, horizon=3, seed=seed)
    for own in ({"cap": 1.2, "gamma": 200.0}, {"cap": 1.5, "gamma": "anytime"}):
        run = FedLSVI(n_agents=1, lam=1.0, **own).learn(env, 20_000, seed, progress=False)
        bound = run.bounds["theorem_3"]
        assert bound.bound < 20_000, "the bound says something"
        assert bound.holds


def test_scalars_are_a_budget() -> None:
    env = RandomLinearMDP(seed=1)
    for most in (60_000, 100_000):
        run = FedLSVI(n_agents=4, scalars=most, cap=1.01).learn(env, 2_000, 0, progress=False)
        assert 0.8 * most < run.ledger.total <= most


@pytest.mark.parametrize(
    ("own", "code"),
    [
        ({"cap": 1.0}, "bad-cap"),
        ({"cap": "agent"}, "bad-cap"),
        ({"min_round": 0}, "bad-min_round"),
        ({"min_round": 31}, "bad-min_round"),
        ({"rounds": 0}, "bad-rounds"),
        ({"scalars": 10}, "bad-scalars"),
        ({"gamma": "anytime", "rounds": 5}, "bad-gamma"),
    ],
)
def test_settings_out_of_range_are_refused(own: dict[str, Any], code: str) -> None:
    with refused(InvalidSetting, code):
        FedLSVI(n_agents=2, **own).learn(RandomLinearMDP(), 30, progress=False)


def test_ties_go_to_the_lowest_index_on_every_backend() -> None:
    """Equal norms and w = 0: rounding must not choose."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=(500, 6, 11))
    y /= np.linalg.norm(y, axis=2, keepdims=True)
    values, greedy, norms = np.empty(500), np.empty(500, np.int32), np.empty(500)
    bonus = np.array([1.0, 0.0, 0.0])
    backup(y, np.zeros(11), bonus, 5.0, values, greedy, norms, EVERY, UNKEPT)
    assert (greedy == 0).all()
    index = np.arange(3000).reshape(500, 6)
    gram = 1.0 + 1e-12 * rng.random(3000)
    backup_diagonal(index, np.zeros(3000), gram, bonus, 5.0, values, greedy, EVERY, UNKEPT)
    assert (greedy == 0).all()
    assert np.allclose(values, 1.0)
    score = 1.0 + 1e-12 * rng.random((500, 6, 3))
    choose(score[..., 0].copy(), greedy)
    assert (greedy == 0).all()
    best_sample(score, 5.0, values, greedy)
    assert (greedy == 0).all()
    assert np.array_equal(values, score.max(axis=(1, 2)))
    score = rng.normal(size=(500, 6))
    choose(score, greedy)
    assert greedy.tolist() == score.argmax(axis=1).tolist()
    assert [greedy_index(row) for row in score] == score.argmax(axis=1).tolist()


def test_lengths_in_a_run_are_the_rounds_of_its_records() -> None:
    run = FedLSVI(n_agents=2, min_round=9).learn(RandomLinearMDP(), 100, 0, progress=False)
    assert [b - a for a, b in pairwise(run.taus)] == [record.length for record in run.records]
    assert min(record.smallest for record in run.records) >= 9


@pytest.mark.parametrize(
    ("own", "applies"),
    [({"cap": 1.1}, True), ({"gamma": "anytime"}, True), ({"rounds": 9}, False),
     ({"min_round": 2}, False)],
)  # fmt: skip
def test_what_lengthens_rounds_voids_the_guarantee_on_regret(
    own: dict[str, Any], applies: bool
) -> None:
    run = FedLSVI(n_agents=2, preset="paper", **own).learn(one_hot(0).envs, 30, 0, progress=False)
    bound, p = run.bounds["theorem_1"], run.parameters
    assert bound.applies is applies
    gamma = 8.0 * 30 / (2 * p.dim) if own.get("gamma") else p.gamma
    assert bound.bound == theory.regret_bound(p.dim, p.horizon, 2, 30, gamma, p.beta)
