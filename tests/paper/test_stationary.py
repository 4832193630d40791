"""stationary=True: one Λ and every step's data for every step; the literal loop, on every path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlsvi
from agreement import assert_agrees
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.config import Settings
from fedlsvi.core import theory
from fedlsvi.core.statistics import packed_size
from fedlsvi.envs import FiniteMDP, RandomLinearMDP, RiverSwim
from fedlsvi.errors import InvalidSetting, MessageRefused
from fedlsvi.experience import kinds, pooled_history
from fedlsvi.features import RBFFeatures
from fedlsvi.groups import ProblemSize
from fedlsvi.protocol.plan import make_plan
from fedlsvi.protocol.session import FederatedPlayer, Session
from fedlsvi.remote.contribution import Contribution
from fedlsvi.remote.endpoint_factory import guard_for
from fedlsvi.remote.federation import Federation
from guarded import judge
from literal import Array
from problems import Drift, Problem, Setting, bumps, chain, deterministic, one_hot, simplex
from transports_over_frames import assert_same, over_frames


class Steady(Drift):
    """`Drift` whose pay does not depend on the step."""

    stationary = True

    def step(self, h: int, x: Array, a: Array, u: Array) -> tuple[Array, Array]:
        return super().step(1, x, a, u)


def steady(noise: float = 0.1) -> Problem:
    phi = bumps(3, 5)
    return Problem("steady", Steady(3, noise), phi, features=phi)


def steady_shared() -> Problem:
    """Actions share ψ, which is then kept once per state (`shared_transitions`)."""
    env = Steady(3, 0.1)
    phi = RBFFeatures(4, low=0.0, high=1.0).bind(env)
    return Problem("steady shared", env, phi, features=phi)


PROBLEMS = [one_hot(3), chain(), deterministic(0), steady(), steady_shared()]


def check(problem: Problem, s: Setting, **own: Any) -> Any:
    run = problem.learn(s, stationary=True, **own)
    advice = run.policies if problem.finite else None
    assert_agrees(run, problem.literal(s, stationary=True, advice=advice))
    return run


@pytest.mark.parametrize(
    "s", [Setting(3, 40, 12.0, 5, 0.5), Setting(2, 200, 60.0, 5, 0.5)], ids=str
)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_it_is_the_literal_loop(problem: Problem, s: Setting) -> None:
    """Short rounds, folded transition by transition, and long ones, from tables of counts."""
    run = check(problem, s)
    p = run.parameters
    M, H, d, P = s.M, p.horizon, p.dim, packed_size(p.dim, p.packing)
    one = M * (P + H * d)
    assert run.ledger.scalars["up_stats"] == run.ledger.scalars["down_model"] == run.rounds * one
    assert run.ledger.scalars["init"] == one + 3 * M
    assert run.bounds["scalars"].holds
    assert run.bounds["theorem_3"].holds
    assert not run.bounds["theorem_1"].applies


@pytest.mark.parametrize("packing", ["dense", "packed"])
def test_every_packing_is_the_same(packing: str) -> None:
    check(one_hot(3), Setting(3, 40, 12.0, 5, 0.5), packing=packing)


def test_many_states_are_kept_by_their_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "DENSE_BYTES", 0)
    for problem in (one_hot(3), chain()):
        check(problem, Setting(3, 40, 12.0, 5, 0.5))


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_the_same_bits_over_frames(problem: Problem) -> None:
    """Every honest message passes the guard, and nothing depends on cohorts."""
    s = Setting(5, 60, 6.0, 3, 0.5)
    here = problem.learn(s, stationary=True)
    assert_same(here, problem.learn(s, stationary=True, transport=over_frames(2)))
    assert_same(here, problem.learn(s, stationary=True, cohorts=3, block=7, threads=1))


@pytest.mark.parametrize("problem", [steady(), steady_shared()], ids=lambda p: p.name)
def test_memory_changes_nothing(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features of later transitions are computed again when there is no room to keep them."""
    s = Setting(2, 150, 30.0, 3, 0.5)
    here = problem.learn(s, stationary=True)
    for kept in (0, 10_000, 100_000):
        monkeypatch.setattr(pooled_history, "KEPT_BYTES", kept)
        assert_same(here, problem.learn(s, stationary=True))


def test_shared_features_give_what_features_of_every_action_give() -> None:
    """The two ways to keep a history, on one problem."""
    problem, s = steady_shared(), Setting(3, 120, 20.0, 5, 0.5)
    apart = Problem("apart", problem.one, problem.phi, features=lambda x: problem.features(x))
    one, other = (own.learn(s, stationary=True) for own in (problem, apart))
    assert [r.last for r in one.records] == [r.last for r in other.records]
    for (w, gram), (w_too, gram_too) in zip(one.models, other.models, strict=True):
        assert np.allclose(gram, gram_too, rtol=1e-12)
        assert np.allclose(w, w_too, rtol=1e-8, atol=1e-10)


class Killed(Exception):
    """Stands for a process that ends."""


def kill_in(rounds: int) -> Any:
    def observe(record: Any) -> None:
        if record.k == rounds:
            raise Killed

    return observe


@pytest.mark.parametrize("problem", [chain(), deterministic(0), steady()], ids=lambda p: p.name)
def test_a_killed_run_goes_on_to_the_same_end(problem: Problem, tmp_path: Path) -> None:
    s = Setting(3, 60, 8.0, 3, 0.5)
    whole = problem.learn(s, stationary=True)
    with pytest.raises(Killed):
        problem.learn(
            s, stationary=True, folder=tmp_path / "run", checkpoint_seconds=0.0,
            observers=[kill_in(4)],
        )  # fmt: skip
    given = {} if problem.finite else {"env": problem.one, "features": problem.features}
    resumed = fedlsvi.resume(tmp_path / "run", progress=False, **given)
    assert_same(whole, resumed)
    loaded = fedlsvi.load(tmp_path / "run", **given)
    assert np.array_equal(loaded.gram, whole.gram)
    if problem.finite:
        assert np.array_equal(loaded.policy.table, whole.policy.table)


def test_restarted_agents_over_frames(tmp_path: Path) -> None:
    """Journals hold models of one Λ and give them back."""
    s = Setting(3, 60, 8.0, 3, 0.5)
    problem, folder = chain(), tmp_path / "run"
    there = over_frames(2, tmp_path / "journals")
    with pytest.raises(Killed):
        problem.learn(
            s, stationary=True, folder=folder, checkpoint_seconds=0.0, observers=[kill_in(4)],
            transport=there,
        )  # fmt: skip
    resumed = fedlsvi.resume(folder, progress=False, transport=there)
    assert_same(problem.learn(s, stationary=True), resumed)


def test_where_steps_differ_it_is_refused() -> None:
    changing = simplex(3)
    with refused(InvalidSetting, "not-stationary", "stationary"):
        changing.learn(Setting(), stationary=True)
    with refused(InvalidSetting, "not-stationary", "stationary"):
        alike = simplex(3, H=1).one
        FedLSVI(2, stationary=True).learn(
            [FiniteMDP(alike.P, alike.r, horizon=3, phi=changing.phi), changing.one], 10,
            progress=False,
        )  # fmt: skip
    with refused(InvalidSetting, "bad-stationary", "often"):
        FedLSVI(2, stationary="often")  # type: ignore[arg-type]


def test_auto_asks_the_environment_and_the_preset() -> None:
    def resolved(env: Any, **own: Any) -> bool:
        return make_plan(Settings(2, **own), env, 10, 0).parameters.stationary

    assert resolved(RiverSwim(horizon=5))
    assert not resolved(RiverSwim(horizon=5), preset="paper")
    assert not resolved(RiverSwim(horizon=5), stationary=False)
    assert not resolved(RandomLinearMDP(seed=0))
    assert resolved(RiverSwim(horizon=5), preset="paper", stationary=True)


def test_tables_that_repeat_are_stationary() -> None:
    one = chain().one
    P, r = np.repeat(one.P, 5, axis=0), np.repeat(one.r, 5, axis=0)
    assert FiniteMDP(P, r).stationary
    r = r.copy()
    r[3, 0, 0] += 0.1
    assert not FiniteMDP(P, r).stationary


def test_formulas_by_hand() -> None:
    """M = 2, H = 5, d = 3, P = 6: one model is 6 + 15 scalars."""
    assert theory.scalars_per_round(3, 5, 2, "packed", 1, stationary=True) == 2 * 2 * 21 + 2 + 2
    assert (
        theory.scalars_total(3, 5, 2, "packed", 4, 7, stationary=True) == 2 * 24 + 4 * (84 + 2) + 14
    )
    p = Settings(2, gamma=10.0, lam=0.5, stationary=True).resolve(ProblemSize(100, 5, 3, False))
    expected = 1 + 20 + 3 / np.log(2) * np.log1p(2 * 5 * 100 / (0.5 * 3))
    assert p.most_rounds(100) == pytest.approx(min(expected, 100))


def test_the_guard_knows_how_much_an_episode_adds() -> None:
    """Λ^loc of n episodes has a trace of nH, and b is bounded at the steps without one."""
    env = deterministic(0).one
    plan = make_plan(Settings(2, gamma=8.0, stationary=True, bonus="constant"), env, 40, 0)
    session = Session(FederatedPlayer.of(plan, 1))
    guard, cohort = guard_for(plan), session.player.cohorts[0]
    server = session.player.server  # type: ignore[attr-defined]
    for message in (server.parameters(),):
        guard.sends(message)
        cohort.receive(message)
    signal = cohort.explore(40)
    guard.stops(signal)
    stop = fedlsvi.protocol.messages.Stop(signal.t)
    guard.sends(stop)
    upload: Any = cohort.receive(stop)
    judge(guard, 0, upload)
    more = upload.gram.copy()
    more[1] *= 40.0
    with pytest.raises(MessageRefused):
        judge(guard, 0, type(upload)(3, more, upload.b))
    guard.accept(0, Contribution(3, upload.gram, upload.b))
    server.gram[2] += server._unpack(upload.gram.sum(axis=0))
    model = server.model(3)
    guard.sends(model)
    lower: Any = cohort.receive(model)
    assert lower.gram.shape == (2, 0)
    judge(guard, 0, lower)
    with pytest.raises(MessageRefused):
        judge(guard, 0, type(lower)(2, lower.gram, lower.b * 50.0))
    with pytest.raises(MessageRefused):
        judge(guard, 0, type(lower)(2, lower.gram, lower.b * np.nan))


def test_regret_is_lower_where_steps_are_alike() -> None:
    """Five times the data for every step of a chain of five."""
    env = RiverSwim(n_states=4, horizon=8)
    pooled, apart = (
        FedLSVI(4, stationary=own).learn(env, 300, 0, progress=False).regret[-1]
        for own in (True, False)
    )
    assert pooled < 0.8 * apart


def test_a_federation_agrees_on_it() -> None:
    """Its server knows no environment, so that what it says holds; a site that differs refuses."""
    sizes = {"name": "wards", "episodes": 60, "horizon": 5, "dim": 8, "one_hot": True}
    agreed = Federation(**sizes, settings={"stationary": True})
    site = agreed.plan(chain().one, 3)
    assert site.parameters == agreed.parameters(3)
    assert site.parameters.stationary
    for own in ({}, {"stationary": "auto"}):
        apart = Federation(**sizes, settings=own)
        assert apart.plan(chain().one, 3).parameters == apart.parameters(3)
        assert not apart.parameters(3).stationary
    one = chain().one
    r = np.repeat(one.r, 5, axis=0)
    r[2] *= 0.5
    with refused(InvalidSetting, "not-stationary", "agent 0"):
        agreed.plan(FiniteMDP(one.P, r, horizon=5), 3)
