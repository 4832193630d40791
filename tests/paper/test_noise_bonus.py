"""bonus="noise": min(β‖φ‖, 1.5σ̂‖φ‖ + .1v‖φ‖²); the literal loop, on every path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlsvi
from agreement import assert_agrees
from expecting import refused
from fedlsvi import algorithms
from fedlsvi.config import Settings
from fedlsvi.core.value import noise_level, step_bonuses
from fedlsvi.errors import MessageRefused
from fedlsvi.experience import kinds
from fedlsvi.groups import ProblemSize
from fedlsvi.policy import Policy
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.messages import NextStates, Stop, Upload
from literal import tapered
from literal_participation import there
from problems import (
    Problem,
    Setting,
    chain,
    continuous,
    deterministic,
    heterogeneous,
    one_hot,
    simplex,
)
from transports_over_frames import assert_same, over_frames

S = Setting(3, 40, 12.0, 5, 0.5)
LONG = Setting(3, 200, 60.0, 5, 0.5)
PROBLEMS = [simplex(3), one_hot(3), chain(), deterministic(0), heterogeneous(1, M=3), continuous()]
SHARED = [one_hot(3), chain(), deterministic(0)]
CASES = [(p, False) for p in PROBLEMS] + [(p, True) for p in SHARED]
IDS = [f"{p.name}-{pooled}" for p, pooled in CASES]
NOISY: dict[str, Any] = {
    "bonus": "noise", "taper": True, "policy": "explore", "stationary": False
}  # fmt: skip


def clip(problem: Problem) -> list[float]:
    return [problem.horizon - h + 1.0 for h in range(1, problem.horizon + 1)]


def check(problem: Problem, s: Setting = S, literal: Any = None, **own: Any) -> Any:
    run = problem.learn(s, "practical", **NOISY | own)
    expected = problem.literal(
        s, beta=tapered(s.beta, problem.horizon), clip=clip(problem), noisy=True,
        stationary=own.get("stationary", False), **(literal or {}),
        advice=run.policies if problem.finite else None,
    )  # fmt: skip
    assert_agrees(run, expected)
    assert run.bounds["scalars"].holds
    assert not run.bounds["theorem_1"].applies
    return run


@pytest.mark.parametrize("s", [S, LONG], ids=str)
@pytest.mark.parametrize(("problem", "stationary"), CASES, ids=IDS)
def test_it_is_the_literal_loop(problem: Problem, stationary: bool, s: Setting) -> None:
    run = check(problem, s, stationary=stationary)
    plain = problem.learn(s, "practical", **NOISY | {"bonus": "constant", "stationary": stationary})
    assert run.w.tobytes() != plain.w.tobytes()
    H, M, p = problem.horizon, s.M, run.parameters
    more = {"init": M * H, "up_stats": 2 * M * H * run.rounds, "down_model": M * H * run.rounds}
    for name, extra in more.items():
        each = plain.ledger.scalars[name] / (plain.rounds if name != "init" else 1)
        rounds = run.rounds if name != "init" else 1
        assert run.ledger.scalars[name] == each * rounds + extra
    assert p.noisy


@pytest.mark.parametrize("packing", ["dense", "packed"])
def test_every_packing_is_the_same(packing: str) -> None:
    check(one_hot(3), packing=packing)


@pytest.mark.parametrize("s", [S, LONG], ids=str)
@pytest.mark.parametrize("stationary", [False, True])
def test_many_states_are_kept_by_their_cells(
    monkeypatch: pytest.MonkeyPatch, s: Setting, stationary: bool
) -> None:
    monkeypatch.setattr(kinds, "DENSE_BYTES", 0)
    for problem in (one_hot(3), chain()):
        check(problem, s, stationary=stationary)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_nothing_depends_on_how_work_is_cut(problem: Problem) -> None:
    here = problem.learn(LONG, "practical", **NOISY)
    assert_same(here, problem.learn(LONG, "practical", cohorts=2, block=7, threads=1, **NOISY))


@pytest.mark.parametrize("stationary", [False, True])
def test_a_round_that_spills_into_counts_is_the_same(
    monkeypatch: pytest.MonkeyPatch, stationary: bool
) -> None:
    s, own = LONG.but(T=500, gamma=300.0), NOISY | {"stationary": stationary}
    here = one_hot(3).learn(s, "practical", **own)
    assert max(r.last - r.first for r in here.records) > 64
    monkeypatch.setattr("fedlsvi.experience.table_source.LOG_BYTES", 0)
    assert_same(here, one_hot(3).learn(s, "practical", **own))


@pytest.mark.parametrize("aggregation", ["float", "exact", "secure"])
@pytest.mark.parametrize(
    ("problem", "stationary"),
    [case for case in CASES if case[0].finite],
    ids=[name for name, case in zip(IDS, CASES, strict=True) if case[0].finite],
)
def test_one_trip_sends_what_sigma_needs(
    problem: Problem, stationary: bool, aggregation: str
) -> None:
    own = {"exchange": "one-trip", "aggregation": aggregation, "stationary": stationary}
    check(problem, **own)


def test_noise_level_by_hand() -> None:
    assert noise_level(0.0, 0.0, 0.0, 0.0, 2.0) == 1.0  # no data: half the range
    assert noise_level(10.0, 4.0, 9.0, 2.0, 2.0) == pytest.approx(np.sqrt(7.0 / 8.0))
    assert noise_level(10.0, 10.0 + 1e-9, 2.0, 5.0, 2.0) == 1.0  # rounding, and n < d
    rows = step_bonuses(np.array([2.0, 1.0]), np.array([0.5, 0.0]), np.array([4.0, 2.0]))
    assert rows.tolist() == [[2.0, 0.75, 0.4], [1.0, 0.0, 0.2]]


def test_where_it_would_take_something_else_for_noise_the_bonus_is_constant() -> None:
    size = (200, 3, 4, True)
    private = Settings(
        4, bonus="noise", aggregation="exact", privacy={"epsilon": 8.0, "delta": 1e-5}
    )
    assert not private.resolve(ProblemSize(*size)).noisy
    assert not Settings(4, bonus="noise").resolve(ProblemSize(*size, prior=1.0)).noisy
    assert Settings(4, bonus="noise").resolve(ProblemSize(*size)).noisy


def test_it_is_the_default_unless_a_width_was_asked_for() -> None:
    size = ProblemSize(200, 3, 4, True)
    assert Settings(4).resolve(size).noisy
    for given in ({"preset": "paper"}, {"beta": 0.5}, {"beta": "theory"}, {"xi": 0.01}):
        assert not Settings(4, **given).resolve(size).noisy
        assert Settings(4, bonus="noise", **given).resolve(size).noisy
    for name in ("centralised", "independent", "low-switching", "coop-lsvi", "async-coop"):
        assert algorithms.make(name, n_agents=4).settings.resolve(size).noisy
    assert not algorithms.make("pevi", n_agents=4).settings.resolve(size).noisy


@pytest.mark.parametrize("problem", [simplex(3), continuous()], ids=lambda p: p.name)
def test_the_policy_to_deploy_has_no_bonus(problem: Problem) -> None:
    run = problem.learn(S, "practical", **NOISY | {"policy": "exploit"})
    assert run.policy_w is not None
    assert run.policy.values.noise is None
    assert run.exploring_policy.values.noise is not None
    assert run.bounds["scalars"].holds


@pytest.mark.parametrize("own", [{}, {"aggregation": "secure"}], ids=["float", "secure"])
@pytest.mark.parametrize("trip", ["stepwise", "one-trip"])
@pytest.mark.parametrize(
    ("problem", "stationary"),
    [case for case in CASES if case[0].name != "heterogeneous"],
    ids=[name for name, case in zip(IDS, CASES, strict=True) if case[0].name != "heterogeneous"],
)
def test_the_same_bits_over_frames(
    problem: Problem, stationary: bool, trip: str, own: dict[str, Any]
) -> None:
    """Every honest message passes the guards of both sides."""
    if trip == "one-trip" and not problem.finite:
        return
    s = S.but(M=5, T=60, gamma=6.0)
    own = NOISY | own | {"exchange": trip, "stationary": stationary, "policy": "exploit"}
    over = {"secure": 5}.get(own.get("aggregation", ""), 2)
    here = problem.learn(s, "practical", cohorts=over, **own)
    assert_same(here, problem.learn(s, "practical", transport=over_frames(over), **own))


@pytest.mark.parametrize("own", [{"participation": 0.5}, {"present": [[0, 1, 12], [2, 9, 40]]}])
@pytest.mark.parametrize("problem", [simplex(3), chain(), continuous()], ids=lambda p: p.name)
def test_with_agents_away(problem: Problem, own: dict[str, Any]) -> None:
    """Who is away has the response, Σy² and n that were last sent."""
    s = S.but(M=4)
    run = problem.learn(s, "practical", **NOISY | own)
    literal = problem.literal(
        s, beta=tapered(s.beta, problem.horizon), clip=clip(problem), noisy=True,
        there=there(own, s.M, s.seed), advice=run.policies if problem.finite else None,
    )  # fmt: skip
    assert_agrees(run, literal)


@pytest.mark.parametrize("problem", [simplex(3), one_hot(3)], ids=lambda p: p.name)
def test_every_agent_and_episode_with_a_policy_of_its_own(problem: Problem) -> None:
    run = problem.learn(S, "practical", **NOISY | {"diversity": 0.3})
    literal = problem.literal(
        S, beta=tapered(S.beta, problem.horizon), clip=clip(problem), noisy=True, diversity=0.3
    )
    assert_agrees(run, literal)


@pytest.mark.parametrize(("problem", "stationary"), [(one_hot(3), False), (continuous(), False),
                                                     (chain(), True)])  # fmt: skip
def test_logs_count_too(problem: Problem, stationary: bool) -> None:
    from paper.test_warm_start import logs_of

    data, steps = logs_of(problem)
    own = NOISY | {"stationary": stationary}
    run = problem.learn(S, "practical", data=data, **own)
    literal = problem.literal(
        S, beta=tapered(S.beta, problem.horizon), clip=clip(problem), noisy=True, logs=steps,
        stationary=stationary, advice=run.policies if problem.finite else None,
    )  # fmt: skip
    assert_agrees(run, literal)
    assert run.bounds["scalars"].holds
    again = problem.learn(S, "practical", data=data, transport=over_frames(2), **own)
    assert_same(run, again)


class Killed(Exception):
    pass


def kill_in(rounds: int) -> Any:
    def observe(record: Any) -> None:
        if record.k == rounds:
            raise Killed

    return observe


@pytest.mark.parametrize("how", ["here", "one-trip", "frames"])
@pytest.mark.parametrize(
    "problem", [simplex(3), one_hot(3), chain(), continuous()], ids=lambda p: p.name
)
def test_a_killed_run_goes_on_to_the_same_end(problem: Problem, how: str, tmp_path: Path) -> None:
    if how == "one-trip" and not problem.finite:
        return
    own = NOISY | ({"exchange": "one-trip"} if how == "one-trip" else {})
    options: dict[str, Any] = {}
    if how == "frames":
        options["transport"] = over_frames(2, tmp_path / "journals")
    whole = problem.learn(S, "practical", **own)
    with pytest.raises(Killed):
        problem.learn(
            S, "practical", folder=tmp_path / "run", checkpoint_seconds=0.0,
            observers=[kill_in(4)], **own, **options,
        )  # fmt: skip
    given = {} if problem.finite else {"env": problem.one, "features": problem.features}
    resumed = fedlsvi.resume(tmp_path / "run", progress=False, **given, **options)
    assert_same(whole, resumed)
    loaded = fedlsvi.load(tmp_path / "run", **given)
    assert loaded.parameters.noisy
    assert np.array_equal(loaded.exploring_policy.values.noise, whole.exploring_policy.values.noise)


@pytest.mark.parametrize("problem", [simplex(3), continuous()], ids=lambda p: p.name)
def test_saved_runs_and_policies_act_alike(problem: Problem, tmp_path: Path) -> None:
    run = problem.learn(S, "practical", **NOISY)
    run.save(tmp_path / "run")
    given = {} if problem.finite else {"env": problem.one, "features": problem.features}
    run.exploring_policy.save(tmp_path / "policy")
    features = {} if problem.finite else {"features": problem.features}
    kept = Policy.load(tmp_path / "policy", **features)
    loaded = fedlsvi.load(tmp_path / "run", **given).exploring_policy
    states = np.arange(6) if problem.finite else np.random.default_rng(0).random((50, 1))
    for h in range(1, problem.horizon + 1):
        expected = run.exploring_policy.values.act(h, states)
        for other in (kept, loaded):
            assert np.array_equal(other.values.act(h, states), expected)


def doctored(problem: Problem, trip: bool, place: str, change: Callable[[np.ndarray], Any]) -> Any:
    """A run in which agent 1 alters an array of its upload of round 3 before it is sent."""

    class Lying(Cohort):
        stops = 0

        def receive(self, message: Any, until: Any = None) -> Any:
            reply = super().receive(message, until)
            self.stops += isinstance(message, Stop)
            if isinstance(reply, Upload) and self.stops == 3 and self.agents[0] == 1:
                if place == "b":
                    b = reply.b.copy()
                    change(b[..., -2:])
                    return replace(reply, b=b)
                table = reply.following[0]
                values = table.values.copy()
                change(values)
                return replace(reply, following=(NextStates(table.cells, values),))
            return reply

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedlsvi.protocol.cohorts.Cohort", Lying)
        own = NOISY | ({"exchange": "one-trip"} if trip else {})
        return problem.learn(S, "practical", transport=over_frames(3), **own)


def more_squares(behind: np.ndarray) -> None:
    behind[..., 0] = 9.0 * behind[..., 1] + 1.0


def no_squares(behind: np.ndarray) -> None:
    behind[..., 0] = 0.0


def more_targets(behind: np.ndarray) -> None:
    behind[..., 1] += 100.0


def not_finite(behind: np.ndarray) -> None:
    behind[..., 0] = np.nan


@pytest.mark.parametrize("change", [more_squares, no_squares, more_targets, not_finite])
@pytest.mark.parametrize("problem", [simplex(3), one_hot(3), continuous()], ids=lambda p: p.name)
def test_sums_that_nobody_can_have_are_refused(problem: Problem, change: Any) -> None:
    with refused(MessageRefused, "impossible-message"):
        doctored(problem, False, "b", change)


@pytest.mark.parametrize("change", [more_squares, more_targets, not_finite])
def test_in_one_trip_too(change: Any) -> None:
    with refused(MessageRefused, "impossible-message"):
        doctored(one_hot(3), True, "b", change)


def test_rewards_beyond_1_on_the_way_to_next_states_are_refused() -> None:
    def paid(values: np.ndarray) -> None:
        values[-8:] += 40.0

    with refused(MessageRefused, "impossible-message"):
        doctored(one_hot(3), True, "following", paid)


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize(
    ("name", "M", "own"),
    [
        ("centralised", 3, {}),
        ("independent", 1, {}),
        ("coop-lsvi", 3, {"threshold": -1.0}),
        ("async-coop", 1, {"alpha": -0.5}),
        ("periodic", 3, {"period": 1}),
    ],
)
@pytest.mark.parametrize("problem", [simplex(3), one_hot(3), chain()], ids=lambda p: p.name)
def test_algorithms_that_replan_after_every_episode_are_the_literal_loop(
    problem: Problem, name: str, M: int, own: dict[str, Any], stationary: bool
) -> None:
    if stationary and not problem.one.stationary:
        return
    s = S.but(M=M, gamma=1.0, T=25)
    given = {"bonus": "noise", "taper": True, "beta": s.beta, "lam": s.lam} | own
    learner = algorithms.make(name, n_agents=M, stationary=stationary, **given)
    run = learner.learn(problem.envs, s.T, s.seed, progress=False, keep_models=True)
    literal = problem.literal(
        s, beta=tapered(s.beta, problem.horizon), clip=clip(problem), noisy=True,
        stationary=stationary, advice=run.policies,
    )  # fmt: skip
    assert run.parameters.noisy
    assert np.allclose(run.w, literal.w, atol=1e-8)
    assert np.allclose(run.gram, literal.gram)
    assert np.allclose(run.regret, literal.regret)
    assert run.ledger.scalars == run.ledger.scalars | algorithms.entry(name).scalars(run)


@pytest.mark.parametrize("name", ["centralised", "independent", "low-switching", "stale"])
@pytest.mark.parametrize("problem", [one_hot(3), continuous()], ids=lambda p: p.name)
def test_they_go_on_after_a_kill(problem: Problem, name: str, tmp_path: Path) -> None:
    learner = algorithms.make(name, n_agents=2, bonus="noise", beta=1.0, taper=True, lam=0.5)
    own = {"features": problem.features, "progress": False}
    whole = learner.learn(problem.one, 40, 5, **own)
    with pytest.raises(Killed):
        learner.learn(
            problem.one, 40, 5, folder=tmp_path / "run", checkpoint_seconds=0.0,
            observers=[kill_in(2)], **own,
        )  # fmt: skip
    given = {} if problem.finite else {"env": problem.one, "features": problem.features}
    resumed = fedlsvi.resume(tmp_path / "run", progress=False, **given)
    assert whole.w.tobytes() == resumed.w.tobytes()
    assert np.array_equal(whole.regret, resumed.regret)
    constant = algorithms.make(name, n_agents=2, beta=1.0, taper=True, lam=0.5)
    assert constant.learn(problem.one, 40, 5, **own).w.tobytes() != whole.w.tobytes()
