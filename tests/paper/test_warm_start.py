"""A run that begins with logs, or with the model of another: the literal loop, on every path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlsvi
from agreement import assert_agrees
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.algorithms import registry
from fedlsvi.core import theory
from fedlsvi.core.statistics import packed_size
from fedlsvi.envs import RandomMDP, write_records
from fedlsvi.errors import InvalidInput, InvalidSetting, MessageRefused, StoreError
from fedlsvi.experience import kinds
from fedlsvi.logs.rows import InvalidRecord
from fedlsvi.protocol.cohorts import cohort_of
from fedlsvi.protocol.messages import Stop
from fedlsvi.protocol.plan import make_plan
from fedlsvi.remote.endpoint import RequestOrder
from fedlsvi.remote.endpoint_factory import endpoint_factories, guard_for
from fedlsvi.remote.guard import Refusal
from guarded import judge
from literal import Array
from problems import Drift, Problem, Setting, bumps, chain, continuous, deterministic, one_hot
from problems import simplex as simplex_problem
from recorded import recorded
from transports_over_frames import assert_same, over_frames

S = Setting(3, 24, 6.0, 5, 0.5)
EPISODES = [12, 0, 7]
"""Logged by each agent; the second has none."""


class Steady(Drift):
    """`Drift` whose pay does not depend on the step."""

    stationary = True

    def step(self, h: int, x: Array, a: Array, u: Array) -> tuple[Array, Array]:
        return super().step(1, x, a, u)


def steady() -> Problem:
    phi = bumps(3, 5)
    return Problem("steady", Steady(3, 0.1), phi, features=phi)


PER_STEP = [one_hot(3), simplex_problem(0), deterministic(0), continuous()]
POOLED = [one_hot(3), chain(), deterministic(0), steady()]


def logs_of(problem: Problem, episodes: list[int] | None = None) -> tuple[Any, Any]:
    one = problem.one
    return recorded(one, episodes or EPISODES, problem.horizon, one.n_actions)


def check(problem: Problem, s: Setting = S, **own: Any) -> Any:
    data, steps = logs_of(problem)
    run = problem.learn(s, data=data, **own)
    rules = {key: own[key] for key in ("min_round", "stationary") if key in own}
    advice = run.policies if problem.finite else None
    assert_agrees(run, problem.literal(s, logs=steps, advice=advice, **rules))
    return run


@pytest.mark.parametrize("problem", PER_STEP, ids=lambda p: p.name)
def test_logs_are_round_0_of_the_literal_loop(problem: Problem) -> None:
    run = check(problem)
    p = run.parameters
    M, H, d, P = p.n_agents, p.horizon, p.dim, packed_size(p.dim, p.packing)
    K, one = run.rounds, M * H * (P + d)
    sent = run.ledger.scalars
    assert sent["up_stats"] == sent["down_model"] == (K + 1) * one
    assert sent["init"] == one + 3 * M
    assert sent["signal"] == (K + 1) * M + 2 * sum(r.signals for r in run.records)
    assert run.bounds["scalars"].holds
    assert not run.bounds["theorem_1"].applies
    assert run.counts["logged_episodes"] == 19
    assert run.counts["logged_agents"] == 2


@pytest.mark.parametrize("problem", POOLED, ids=lambda p: p.name)
def test_where_steps_share_their_data(problem: Problem) -> None:
    assert check(problem, stationary=True).bounds["scalars"].holds


def test_many_states_are_kept_by_their_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "DENSE_BYTES", 0)
    check(one_hot(3))


def test_a_step_that_few_logged_episodes_reached_is_left_out() -> None:
    """Under a floor of 8 the third agent's 7 episodes say nothing, and late steps of the first
    neither; both play on."""
    check(one_hot(3), min_round=8)
    check(one_hot(3), min_round=8, exchange="one-trip", policy="explore")
    check(continuous(), min_round=8)


FINITE = [
    (problem, stationary)
    for stationary, kinds_ in ((False, PER_STEP), (True, POOLED))
    for problem in kinds_
    if problem.finite
]


@pytest.mark.parametrize(
    ("problem", "stationary"), FINITE, ids=lambda p: getattr(p, "name", str(p))
)
def test_in_one_trip_the_end_of_a_logged_episode_is_a_column(
    problem: Problem, stationary: bool
) -> None:
    """The literal loop once more; and the same bits over frames, with a policy to deploy."""
    own: dict[str, Any] = {"stationary": stationary, "exchange": "one-trip", "policy": "exploit"}
    run = check(problem, **own)
    assert run.bounds["scalars"].measured == run.bounds["scalars"].bound
    data, _ = logs_of(problem)
    by_step = problem.learn(S, data=data, **own | {"exchange": "stepwise"})
    assert np.abs(run.policy_w - by_step.policy_w).max() < 1e-8
    assert_same(run, problem.learn(S, data=data, transport=over_frames(2), **own))
    exact = problem.learn(S, data=data, aggregation="exact", **own)
    secure = problem.learn(S, data=data, aggregation="secure", transport=over_frames(3), **own)
    assert exact.w.tobytes() == secure.w.tobytes()
    assert exact.policy_w.tobytes() == secure.policy_w.tobytes()


@pytest.mark.parametrize("stationary", [False, True])
def test_what_follows_an_end_is_worth_the_same_in_one_trip(stationary: bool) -> None:
    """Rewards from −1 on: 0, which every step after an end pays, is inside their range."""
    problem, span = one_hot(3), (-1.0, 2.0)
    data, _ = recorded(env := problem.one, EPISODES, 3, 2, span)
    env.reward_range = span
    runs = [
        FedLSVI(3, exchange=exchange, stationary=stationary, policy="exploit").learn(
            env, 12, data=data, progress=False
        )
        for exchange in ("stepwise", "one-trip")
    ]
    assert runs[0].plan.logs[0].absorbing_reward == runs[1].parameters.after > 0.0
    assert runs[0].taus == runs[1].taus
    assert np.abs(runs[0].w - runs[1].w).max() < 1e-9
    assert np.abs(runs[0].policy_w - runs[1].policy_w).max() < 1e-9


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("problem", [one_hot(3), deterministic(0), steady()], ids=lambda p: p.name)
def test_who_has_only_a_log_answers_and_plays_nothing(problem: Problem, stationary: bool) -> None:
    data, steps = logs_of(problem)
    envs, own = [problem.one, problem.one, None], {"stationary": stationary}
    some = Problem(problem.name, envs, problem.phi, problem.features)
    run = some.learn(S, data=data, **own)
    literal = problem.literal(
        S, logs=steps, only_logged=[2], advice=run.policies if problem.finite else None, **own
    )
    assert_agrees(run, literal)
    assert run.agent_episodes == 2 * S.T
    for cohorts in (2, 3):
        assert_same(run, some.learn(S, data=data, transport=over_frames(cohorts), **own))


@pytest.mark.parametrize(("problem", "stationary"), [
    (one_hot(3), False), (simplex_problem(0), False), (continuous(), False), (chain(), True),
    (steady(), True),
], ids=lambda p: getattr(p, "name", str(p)))  # fmt: skip
def test_the_same_bits_however_it_runs(problem: Problem, stationary: bool) -> None:
    """Every honest message passes the guard, and nothing depends on cohorts or blocks."""
    data, _ = logs_of(problem)
    own = {"stationary": stationary, "policy": "exploit"}
    here = problem.learn(S, data=data, **own)
    for how in (
        {"transport": over_frames(2)}, {"cohorts": 3, "block": 7, "threads": 1}, {"threads": 2},
    ):  # fmt: skip
        there = problem.learn(S, data=data, **own, **how)
        assert_same(here, there)
        assert np.array_equal(here.policy_w, there.policy_w)
    exact = problem.learn(S, data=data, aggregation="exact", **own)
    secure = problem.learn(S, data=data, aggregation="secure", transport=over_frames(3), **own)
    assert exact.w.tobytes() == secure.w.tobytes()


class Killed(Exception):
    """Stands for a process that ends."""


def kill_in(rounds: int) -> Any:
    def observe(record: Any) -> None:
        if record.k == rounds:
            raise Killed

    return observe


@pytest.mark.parametrize("problem", [one_hot(3), continuous()], ids=lambda p: p.name)
@pytest.mark.parametrize("frames", [False, True])
def test_a_killed_run_goes_on_to_the_same_end(
    problem: Problem, frames: bool, tmp_path: Path
) -> None:
    data, _ = logs_of(problem)
    files = [None if log is None else tmp_path / f"{m}.parquet" for m, log in enumerate(data)]
    for log, path in zip(data, files, strict=True):
        if log is not None:
            write_records(log, path)
    envs = [problem.one, problem.one, None]
    some = Problem(problem.name, envs, problem.phi, problem.features)
    whole = some.learn(S, data=data)
    there = {"transport": over_frames(2, tmp_path / "journals")} if frames else {}
    folder = tmp_path / "run"
    with pytest.raises(Killed):
        some.learn(
            S, data=files, folder=folder, checkpoint_seconds=0.0, observers=[kill_in(3)], **there
        )
    given = {} if problem.finite else {"env": envs, "features": problem.features, "data": files}
    resumed = fedlsvi.resume(folder, progress=False, **given, **there)
    assert_same(whole, resumed)
    loaded = fedlsvi.load(folder, **{k: v for k, v in given.items() if k != "data"})
    assert loaded.parameters.logged == 12
    assert loaded.bounds["scalars"].holds
    if problem.finite:
        assert np.array_equal(loaded.policy.table, whole.policy.table)
        assert set(loaded.references()) > {"learned"}


def test_logs_that_changed_or_are_in_no_file_are_asked_for(tmp_path: Path) -> None:
    problem, folder = one_hot(3), tmp_path / "run"
    data, _ = logs_of(problem)
    with pytest.raises(Killed):
        problem.learn(S, data=data, folder=folder, checkpoint_seconds=0.0, observers=[kill_in(2)])
    with refused(InvalidInput, "data-was-given", "data="):
        fedlsvi.resume(folder, progress=False)
    other, _ = logs_of(problem, [12, 0, 6])
    with refused(StoreError, "other-environment"):
        fedlsvi.resume(folder, progress=False, data=other)
    assert_same(problem.learn(S, data=data), fedlsvi.resume(folder, progress=False, data=data))


def test_it_goes_on_and_exploits_with_its_logs() -> None:
    problem = one_hot(3)
    data, _ = logs_of(problem)
    learner = FedLSVI(3, gamma="anytime", cap="agents", preset="practical")
    half = learner.learn(problem.one, 17, data=data, progress=False)
    whole = learner.learn(problem.one, 40, data=data, progress=False)
    assert_same(whole, half.learn_more(23, progress=False))
    short = learner.learn(problem.one, 1, data=data, progress=False)  # its only round is cut
    assert_same(whole, short.learn_more(39, progress=False))
    again = whole.policy_at(0.5)
    assert again.table.shape == whole.policy.table.shape


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("problem", [one_hot(3), deterministic(0), steady()], ids=lambda p: p.name)
def test_an_earlier_model_is_a_prior(problem: Problem, stationary: bool, tmp_path: Path) -> None:
    """Its sums, weighted, are in Λ and b from the start; nothing more is sent."""
    own: dict[str, Any] = {"stationary": stationary}
    before = problem.learn(S.but(seed=1, T=20), folder=tmp_path / "before", **own)
    for weight in (1.0, 0.25) if problem.finite else (0.25,):
        start = {"warm_start": tmp_path / "before", "warm_weight": weight}
        if not problem.finite:  # its features are an object, in no folder
            start["warm_start"] = before
        run = problem.learn(S, **start, **own)
        seen = weight * (before.gram - S.lam * np.eye(before.parameters.dim))
        b = weight * np.einsum("hij,hj->hi", before.gram, before.w)
        advice = run.policies if problem.finite else None
        assert_agrees(run, problem.literal(S, prior=(seen, b), advice=advice, **own))
        assert run.bounds["scalars"].holds
        assert_same(run, problem.learn(S, transport=over_frames(2), **start, **own))
    same = np.abs(run.records[0].logdet[0] - np.linalg.slogdet(run.models[0][1][0])[1])
    assert same < 1e-9


def test_a_run_with_a_prior_is_resumed_from_its_own_folder(tmp_path: Path) -> None:
    problem = one_hot(3)
    problem.learn(S.but(T=20), folder=tmp_path / "before")
    start = {"warm_start": tmp_path / "before", "warm_weight": 0.5}
    whole = problem.learn(S, **start)
    with pytest.raises(Killed):
        problem.learn(
            S, folder=tmp_path / "run", checkpoint_seconds=0.0, observers=[kill_in(2)], **start
        )
    (tmp_path / "before").rename(tmp_path / "gone")
    assert_same(whole, fedlsvi.resume(tmp_path / "run", progress=False))
    assert fedlsvi.load(tmp_path / "run").parameters.prior == 0.5


def test_what_cannot_begin_warm_is_refused(tmp_path: Path) -> None:
    problem = one_hot(3)
    data, _ = logs_of(problem)
    env = problem.one
    with refused(InvalidRecord, "wrong-number-of-logs", "2", "3"):
        problem.learn(S, data=data[:2])
    with refused(InvalidRecord, "nothing-to-learn-from", "1"):
        FedLSVI(3).learn([env, None, env], 5, data=data, progress=False)
    with refused(InvalidRecord, "needs-world"):
        FedLSVI(2).learn([None, None], 5, data=[data[0], data[2]], progress=False)
    with refused(InvalidInput, "no-warm-start", "centralised"):
        registry.make("centralised", n_agents=3).learn(env, 5, data=data, progress=False)
    before = FedLSVI(2).learn(RandomMDP(5, 2, 3), 5, progress=False)
    with refused(InvalidSetting, "other-prior", "10", "8"):
        problem.learn(S, warm_start=before)
    with refused(InvalidInput, "other-features"):
        other = Problem("", env, problem.phi, problem.phi[:, :, ::-1].copy())
        other.learn(S, warm_start=problem.learn(S))
    with refused(InvalidInput, "bad-warm_start", "int"):
        problem.learn(S, warm_start=3)
    with refused(InvalidInput, "bad-warm_weight", "0"):
        problem.learn(S, warm_start=before, warm_weight=0)


def test_the_round_of_the_logs_comes_once_and_is_checked() -> None:
    """A site answers for its log once; a log that is longer than agreed is no log."""
    problem = one_hot(3)
    data, _ = logs_of(problem)
    plan = problem.learn(S, data=data).plan
    cohort = cohort_of(plan, 0, 3)
    order = RequestOrder(plan.parameters)
    server = FedLSVI(3, preset="paper", lam=S.lam).prepare(problem.one, S.T).player.server
    order.follow(start := server.parameters())
    cohort.start(start)
    with refused(MessageRefused, "logs-first"):
        order.check(Stop(4), cohort.experience)
    order.check(Stop(0), cohort.experience)
    upload = cohort.receive(Stop(0))
    order.follow(Stop(0))
    order.due = 0
    with refused(MessageRefused, "bad-stop"):
        order.check(Stop(0), cohort.experience)
    guard = guard_for(plan)
    guard.sends(start)
    guard.sends(Stop(0))
    judge(guard, 0, upload)
    longer, _ = logs_of(problem, [40, 0, 7])
    logs = problem.learn(S, data=longer).plan.logs
    more = cohort_of(make_plan(plan_settings(), problem.one, S.T, S.seed, logs=logs), 0, 3)
    more.start(start)
    with pytest.raises(Refusal):
        judge(guard, 0, more.receive(Stop(0)))


def plan_settings() -> Any:
    return FedLSVI(3, preset="paper", gamma=S.gamma, beta=S.beta, lam=S.lam).settings


def test_what_it_will_send_counts_the_logs() -> None:
    from fedlsvi.observers.traffic import Traffic

    problem = one_hot(3)
    data, _ = logs_of(problem)
    p = problem.learn(S, data=data).parameters
    cold = problem.learn(S).parameters
    one = theory.scalars_per_round(p.dim, p.horizon, 3, p.packing, 0)
    assert Traffic.of(p, 3).scalars[0] == Traffic.of(cold, 3).scalars[0] + one
    budget = Traffic.of(cold, 3).scalars[0] + 6 * one
    own = {"scalars": budget, "policy": "explore"}
    assert problem.learn(S, data=data, **own).ledger.total <= budget
    assert len(endpoint_factories(problem.learn(S, data=data).plan, 2)) == 2
