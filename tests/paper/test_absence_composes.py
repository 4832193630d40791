"""Agents that come and go, together with everything else: the literal loop, or the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlsvi
from agreement import assert_agrees, assert_close
from fedlsvi import FedLSVI
from fedlsvi.core.model_fit import FIT
from fedlsvi.core.statistics import packed_size
from literal import Array, LiteralRun, feature_lookup, response, values_after
from literal_participation import assert_ledger_counts_who_was_there, there
from problems import (
    Problem,
    Setting,
    chain,
    continuous,
    heterogeneous,
    masks_of_their_own,
    one_hot,
    simplex,
)
from recorded import recorded
from transports_over_frames import assert_same, dying, over_frames

S = Setting(M=4, T=40, gamma=9.0, seed=5, lam=0.5)
AWAY: list[dict[str, Any]] = [
    {"participation": 0.5},
    {"participation": 3},
    {"participation": 0.7, "present": [[0, 1, 12], [2, 9, 40], [3, 1, 5], [3, 20, 30]]},
]
PROBLEMS = [simplex(3), chain(), heterogeneous(1, M=4), continuous()]


def names(problem: Problem) -> str:
    return problem.name


def advised(run: Any, problem: Problem) -> Any:
    return run.policies if problem.finite else None


# the pass after the last round


def literal_pass(
    problem: Problem, run: LiteralRun, who: Any, beta: float, clip: list[float], T: int
) -> Array:
    """w of one more pass: fresh responses of those that played the last round, of the others those
    of the last round that they played, with the values of that time."""
    phi, H, gram, M = feature_lookup(problem.phi), problem.horizon, run.gram, S.M
    rounds = list(zip(run.taus[:-1], run.taus[1:], run.models, strict=True))
    last: dict[int, int] = {}
    for k, (first, _, _) in enumerate(rounds, start=1):
        last |= dict.fromkeys(who(k, first - 1), k)
    w = np.zeros_like(run.w)
    for i in reversed(range(H)):
        b = np.zeros(w.shape[1])
        for m in (m for m in range(M) if m in last):
            _, stop, model = rounds[last[m] - 1]
            data = [path[m][i] for path in run.trajectories[: stop - 1] if path[m]]
            fresh = last[m] == len(rounds)
            values = (w, gram, beta) if fresh else (*model, S.beta)
            ahead = values_after(i + 1, phi, values[:2], values[2], clip)
            b += response(data, phi, ahead)
        w[i] = np.linalg.solve(gram[i], b)
    return w


@pytest.mark.parametrize("own", AWAY, ids=str)
@pytest.mark.parametrize("problem", PROBLEMS, ids=names)
def test_the_last_pass_carries_who_is_away(problem: Problem, own: dict[str, Any]) -> None:
    """Also where it is carried out after the run, from what is remembered."""
    run = problem.learn(S, policy="exploit", pessimism=0.3, stationary=False, **own)
    who = there(own, S.M, S.seed)
    found = problem.literal(S, advice=advised(run, problem), there=who)
    assert_agrees(run, found)
    clip = [float(problem.horizon)] * problem.horizon
    expected = literal_pass(problem, found, who, -0.3, clip, S.T)
    assert_close(run.policy_w, expected, "w of the last pass", 1e-8)
    answered = len(who(run.rounds, run.records[-1].first - 1))
    assert answered < S.M or "present" not in own
    explore = problem.learn(S, policy="explore", stationary=False, **own)
    p = run.parameters
    each = 2 * p.horizon * p.dim + 1 + FIT * p.horizon
    assert run.ledger.total - explore.ledger.total == answered * each
    later = explore.policy_at(0.3)
    if problem.finite:
        assert np.array_equal(later.table, run.policy.table)


# what was known before


@pytest.mark.parametrize("own", AWAY, ids=str)
@pytest.mark.parametrize(
    ("problem", "stationary"), [(one_hot(3), False), (one_hot(3), True), (continuous(), False)]
)
def test_logs_are_there_before_anybody_leaves(
    problem: Problem, stationary: bool, own: dict[str, Any]
) -> None:
    data, steps = recorded(problem.one, [12, 0, 7, 5], problem.horizon, problem.one.n_actions)
    run = problem.learn(S, data=data, stationary=stationary, **own)
    who = there(own, S.M, S.seed)
    literal = problem.literal(
        S, logs=steps, there=who, stationary=stationary, advice=advised(run, problem)
    )
    assert_agrees(run, literal)
    assert_same(
        run, problem.learn(S, data=data, stationary=stationary, transport=over_frames(3), **own)
    )
    # all of them in the round of the logs, then whoever comes
    p, arrivals, present, before = run.parameters, 0, 0, set(range(S.M))
    for record in run.records:
        now = set(who(record.k, record.first - 1))
        arrivals, present, before = arrivals + len(now - before), present + len(now), now
    model = p.matrices * packed_size(p.dim, p.packing) + p.horizon * p.dim
    assert run.ledger.scalars["init"] == (S.M + arrivals) * (model + 3)
    assert run.ledger.scalars["up_stats"] == (S.M + present) * model


def test_who_has_only_a_log_is_carried_while_it_is_away() -> None:
    problem, own = one_hot(3), AWAY[0]
    data, steps = recorded(problem.one, [12, 0, 7, 5], problem.horizon, problem.one.n_actions)
    some = Problem(problem.name, [problem.one] * 3 + [None], problem.phi)
    run, who = some.learn(S, data=data, stationary=False, **own), there(own, S.M, S.seed)
    literal = problem.literal(S, logs=steps, only_logged=[3], there=who, advice=run.policies)
    assert_agrees(run, literal)
    played = sum(len([m for m in who(r.k, r.first - 1) if m != 3]) * r.length for r in run.records)
    assert run.agent_episodes == played


@pytest.mark.parametrize("problem", [simplex(3), continuous()], ids=names)
def test_an_earlier_model_is_a_prior_for_whoever_comes(problem: Problem) -> None:
    own, who = AWAY[1], there(AWAY[1], S.M, S.seed)
    before = problem.learn(S.but(seed=1, T=20))
    run = problem.learn(S, warm_start=before, warm_weight=0.25, **own)
    seen = 0.25 * (before.gram - S.lam * np.eye(before.parameters.dim))
    b = 0.25 * np.einsum("hij,hj->hi", before.gram, before.w)
    literal = problem.literal(S, prior=(seen, b), there=who, advice=advised(run, problem))
    assert_agrees(run, literal)
    assert_ledger_counts_who_was_there(run, who)


# how responses are asked for and added


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("aggregation", ["float", "exact"])
@pytest.mark.parametrize("own", AWAY, ids=str)
def test_in_one_trip_no_response_is_old(
    own: dict[str, Any], aggregation: str, stationary: bool
) -> None:
    """The server has the sums of those that are away, and applies the new values to them itself.
    Exact sums are those of a memory that adds the agents, and over frames of agents one by one."""
    problem, who = one_hot(3), there(own, S.M, S.seed)
    own = own | {"aggregation": aggregation}
    run = problem.learn(S, exchange="one-trip", stationary=stationary, **own)
    literal = problem.literal(
        S, there=who, advice=run.policies, stationary=stationary, relabels=True
    )
    assert_agrees(run, literal)
    assert "scalars" not in run.bounds  # the closed formula is of agents that all stay
    assert_same(
        run,
        problem.learn(
            S, exchange="one-trip", stationary=stationary, transport=over_frames(3), **own
        ),
    )


def test_logs_are_read_in_one_trip_too() -> None:
    problem, own = one_hot(3), AWAY[0]
    data, steps = recorded(problem.one, [12, 0, 7, 5], problem.horizon, problem.one.n_actions)
    some = Problem(problem.name, [problem.one] * 3 + [None], problem.phi)
    run = some.learn(S, data=data, exchange="one-trip", stationary=False, **own)
    who = there(own, S.M, S.seed)
    literal = problem.literal(
        S, logs=steps, only_logged=[3], there=who, advice=run.policies, relabels=True
    )
    assert_agrees(run, literal)


@pytest.mark.parametrize("problem", [simplex(3), one_hot(0)], ids=names)
def test_sums_in_fixed_point_are_the_literal_ones(problem: Problem) -> None:
    own, who = AWAY[0], there(AWAY[0], S.M, S.seed)
    run = problem.learn(S, aggregation="exact", **own)
    assert_agrees(run, problem.literal(S, there=who, advice=run.policies))
    same = problem.learn(S, aggregation="exact", transport=over_frames(2), **own)
    assert_same(run, same)


@pytest.mark.parametrize("exchange", ["stepwise", "one-trip"])
def test_a_bonus_that_knows_the_noise_has_the_old_scatter_of_who_is_away(exchange: str) -> None:
    problem, own, who = one_hot(3), AWAY[0], there(AWAY[0], S.M, S.seed)
    run = problem.learn(S, bonus="noise", exchange=exchange, stationary=False, **own)
    literal = problem.literal(
        S, there=who, advice=run.policies, noisy=True, relabels=exchange == "one-trip"
    )
    assert_agrees(run, literal)
    same = problem.learn(
        S, bonus="noise", exchange=exchange, stationary=False, transport=over_frames(2), **own
    )
    assert_same(run, same)


def test_agents_may_be_allowed_different_actions() -> None:
    problem, tables = masks_of_their_own()
    own, s = {"participation": 0.5}, Setting(M=3, T=24, gamma=6.0, seed=4, lam=0.7, beta=0.6)
    allowed = [
        lambda h, x, steps=table if table.ndim == 3 else table[None]: np.flatnonzero(
            steps[(h - 1) % len(steps), x]
        ).tolist()
        for table in tables
    ]
    run = problem.learn(s, **own)
    literal = problem.literal(s, allowed=allowed, there=there(own, 3, s.seed))
    assert_agrees(run, literal)
    assert_same(run, problem.learn(s, transport=over_frames(3), **own))


# where the agents are


@pytest.mark.parametrize("own", AWAY, ids=str)
@pytest.mark.parametrize("problem", PROBLEMS, ids=names)
def test_the_same_bits_however_agents_are_cut(problem: Problem, own: dict[str, Any]) -> None:
    """Over frames every honest message passes the guard, and who is away pays for nothing."""
    rule = own | {"policy": "exploit", "cap": 1.3, "min_round": 2}
    here = problem.learn(S, **rule)
    for how in ({"cohorts": 3, "block": 7}, {"transport": over_frames(3)}):
        run = problem.learn(S, **rule, **how)
        assert_same(here, run)
        assert run.policy_w.tobytes() == here.policy_w.tobytes()
        assert [r.present for r in run.records] == [r.present for r in here.records]


@pytest.mark.parametrize("after", [9, 21, 33])
@pytest.mark.parametrize("problem", [simplex(3), continuous()], ids=names)
def test_a_killed_server_finds_the_same_agents(
    problem: Problem, after: int, tmp_path: Path
) -> None:
    learner, own = FedLSVI(4, gamma=9.0, participation=0.5), {"features": problem.features}
    whole = learner.learn(problem.envs, 40, 3, progress=False, **own)
    journals = tmp_path / "journals"
    with pytest.raises(KeyboardInterrupt):
        learner.learn(
            problem.envs, 40, 3, folder=tmp_path / "run", checkpoint_seconds=0.0, progress=False,
            transport=dying(over_frames(2, journals), after), **own,
        )  # fmt: skip
    done = fedlsvi.resume(
        tmp_path / "run", env=problem.envs, transport=over_frames(2, journals), progress=False,
        **own,
    )  # fmt: skip
    assert_same(whole, done)
    assert [r.present for r in done.records] == [r.present for r in whole.records]
