"""Where two algorithms must be one (oracles 1, 2, 5 and 14), and what literal codes say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from agreement import assert_agrees, assert_close, assert_few_near_ties
from algorithms.literal_linear import (
    literal_async,
    literal_coop,
    literal_low_switching,
    regret_of,
)
from algorithms.roster import learn
from fedlsvi.algorithms import registry
from fedlsvi.algorithms.async_coop import order
from fedlsvi.cli.text import single_lines
from fedlsvi.envs import RandomMDP
from fedlsvi.protocol.records import LISTED
from literal import backward_values, worlds
from literal_lsvi import literal_lsvi_ucb, literal_pooled_lsvi_ucb
from problems import Problem, Setting, chain, continuous, one_hot, simplex, transition_rewards

FINITE = [simplex(3), one_hot(3), chain(), transition_rewards(3)]
PAPER = {"preset": "paper", "lam": 1.0, "beta": 1.0}


def play(name: str, problem: Problem, M: int, T: int, seed: int = 1, **settings: Any) -> Any:
    learner = registry.make(name, n_agents=M, **{**PAPER, **settings})
    return learner.learn(
        problem.envs, T, seed, features=problem.features, progress=False, keep_models=True
    )


def is_literal(run: Any, literal: Any) -> None:
    """Models, τ's, policies and regret of a code that knows no signals."""
    literal.signals = [set(range(record.signals)) for record in run.records]
    literal.firing = [set() for _ in run.records]
    assert_agrees(run, literal)
    assert_few_near_ties(literal)


def same(one: Any, two: Any, tolerance: float = 1e-9) -> None:
    """The same models and policies after every round, and the same regret."""
    assert len(one.models) == len(two.models)
    for (w, gram), (w2, gram2) in zip(one.models, two.models, strict=True):
        assert_close(w, w2, "w", tolerance)
        assert_close(gram, gram2, "Λ", tolerance)
    for pi, pi2 in zip(one.policies, two.policies, strict=True):
        assert np.array_equal(pi, pi2)
    if one.regret is not None:
        assert_close(one.regret, two.regret, "regret", tolerance)


@pytest.mark.parametrize("problem", FINITE, ids=lambda p: p.name)
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("independent", {}),
        ("centralised", {}),
        ("periodic", {"period": 1}),
        ("fed-lsvi", {"gamma": 1.0}),
        ("async-coop", {"alpha": -0.5}),
        ("coop-lsvi", {"threshold": -1.0}),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_one_agent_that_always_replans_is_lsvi_ucb(
    problem: Problem, name: str, settings: dict[str, Any]
) -> None:
    """Oracles 1 and 14: M = 1, whatever the protocol, when it synchronises every episode."""
    run = play(name, problem, 1, 30, **settings)
    assert run.rounds == 30
    literal = literal_lsvi_ucb(
        problem.one, problem.phi, 30, problem.horizon, 1, 1.0, 1.0, advice=run.policies
    )
    is_literal(run, literal)


@pytest.mark.parametrize("problem", [simplex(4), one_hot(4)], ids=lambda p: p.name)
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("centralised", {}),
        ("periodic", {"period": 1}),
        ("fed-lsvi", {"gamma": 1.0}),
        ("coop-lsvi", {"threshold": -1.0}),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_agents_that_always_share_are_pooled_lsvi_ucb(
    problem: Problem, name: str, settings: dict[str, Any]
) -> None:
    """Oracles 2 and 14: statistics or raw data, every episode, is one learner on pooled data."""
    run = play(name, problem, 4, 12, **settings)
    literal = literal_pooled_lsvi_ucb(
        problem.envs, problem.phi, 4, 12, problem.horizon, 1, 1.0, 1.0, advice=run.policies
    )
    is_literal(run, literal)


@pytest.mark.parametrize("name", ["centralised", "periodic", "independent"])
def test_continuous_states_agree_too(name: str) -> None:
    M = 1 if name == "independent" else 3
    settings = {"period": 1} if name == "periodic" else {}
    same(
        play(name, continuous(0.1), M, 12, **settings),
        play("fed-lsvi", continuous(0.1), M, 12, gamma=1.0),
    )


def test_independent_agents_are_single_agents() -> None:
    """M agents that never speak: the group's regret is the sum of M runs of one agent each, and
    agent 0's model is that of a run on its own."""
    problem = simplex(5)
    run = play("independent", problem, 3, 40)
    alone = play("independent", problem, 1, 40)
    assert run.w.tobytes() == alone.w.tobytes()
    each = [
        literal_lsvi_ucb(problem.one, problem.phi, 40, problem.horizon, 1, 1.0, 1.0, m=m)
        for m in range(3)
    ]
    assert_close(run.regret, np.sum([one.regret for one in each], axis=0), "regret")
    assert run.ledger.total == 0
    switches = [len(one.policies) - 1 for one in each]
    assert run.counts == {"switches": sum(switches), "most_switches": max(switches)}
    assert alone.counts["switches"] == len(alone.policies) - 1
    assert play("independent", continuous(0.1), 2, 6).counts == {
        "switches": 10, "most_switches": 5,
    }  # fmt: skip


@pytest.mark.parametrize("problem", [simplex(5, H=1), one_hot(5, H=1)], ids=lambda p: p.name)
def test_stale_is_fresh_with_one_step(problem: Problem) -> None:
    """Oracle 5: H = 1 has no next value."""
    one = play("stale", problem, 3, 25, gamma=3.0)
    same(one, play("fed-lsvi", problem, 3, 25, gamma=3.0), 1e-12)
    assert one.ledger.scalars == play("fed-lsvi", problem, 3, 25, gamma=3.0).ledger.scalars


@pytest.mark.parametrize("problem", [simplex(5), one_hot(5), continuous(0.1)], ids=lambda p: p.name)
def test_stale_is_the_literal_stale_protocol(problem: Problem) -> None:
    """Oracle 5: H ≥ 2; not the fresh one, but exactly the literal code with values of the model
    before the synchronisation."""
    s = Setting(M=2, T=25, gamma=3.0, seed=1)
    run = play("stale", problem, s.M, s.T, gamma=s.gamma)
    advice = run.policies if problem.finite else None
    assert_agrees(run, problem.literal(s, stale=True, advice=advice))
    fresh = play("fed-lsvi", problem, s.M, s.T, gamma=s.gamma)
    H = problem.horizon
    assert np.abs(run.models[0][0][: H - 1] - fresh.models[0][0][: H - 1]).max() > 1e-3


@pytest.mark.parametrize("period", [1, 4, 7, 40])
def test_periodic_rounds_are_the_calendar(period: int) -> None:
    run = play("periodic", simplex(6), 2, 25, period=period)
    assert run.rounds == -(-25 // period)
    assert run.taus == [1, *range(period + 1, 26, period), 26]


@pytest.mark.parametrize("problem", [simplex(7), one_hot(7)], ids=lambda p: p.name)
def test_phe_without_noise_is_greedy_lsvi(problem: Problem) -> None:
    """Oracle 14: σ = 0 is LSVI without a bonus; the protocol is Coop-LSVI's."""
    quiet = {"preset": "paper", "lam": 1.0, "threshold": 6.0}
    phe = registry.make("coopts-phe", n_agents=3, sigma=0.0, **quiet)
    coop = registry.make("coop-lsvi", n_agents=3, beta=0.0, **quiet)
    one, two = (
        learner.learn(problem.envs, 40, 1, progress=False, keep_models=True)
        for learner in (phe, coop)
    )
    same(one, two)
    assert one.ledger.scalars == two.ledger.scalars


@pytest.mark.parametrize("problem", [simplex(8), one_hot(8)], ids=lambda p: p.name)
@pytest.mark.parametrize("threshold", [2.0, 20.0, 1e9])
def test_coop_is_its_algorithm_box(problem: Problem, threshold: float) -> None:
    """Own unsynchronised data is used, everybody replans every episode, the trigger is on the
    log-determinant: against a literal code with explicit buffers."""
    M, T, H = 3, 14, problem.horizon
    learner = registry.make("coop-lsvi", n_agents=M, threshold=threshold, **PAPER)
    session = learner.prepare(problem.envs, T, 1)
    followed: list[list[Any]] = []
    for agent in session.player.agents:  # type: ignore[attr-defined]

        def watch(t: int, agent: Any = agent, play: Any = agent.episode) -> Any:
            followed.append([t, agent.m, agent.policy.copy()])
            return play(t)

        agent.episode = watch
    records = list(session.rounds())
    advice = [[pi for s, m, pi in followed if s == t] for t in range(1, T + 1)]
    syncs, policies, near, learners = literal_coop(
        problem.envs, problem.phi, M, T, 1, 1.0, 1.0, [float(H)] * H, threshold, advice
    )
    assert [r.last for r in records if r.rounds] == syncs
    for t in range(T):
        for m in range(M):
            assert np.array_equal(advice[t][m], policies[t][m])
    assert_few_near_ties(near)
    assert_close(session.regret, regret_of(policies, worlds(problem.envs, M, 1)), "regret")
    for m, agent in enumerate(session.player.agents):  # type: ignore[attr-defined]
        w, gram = learners[m].model()
        assert_close(agent.sums.w, w, "w")
        diagonal = agent.sums.gram.ndim == 2
        assert_close(agent.sums.gram, np.diagonal(gram, axis1=1, axis2=2) if diagonal else gram,
                     "Λ")  # fmt: skip


@pytest.mark.parametrize("problem", [simplex(9), one_hot(9), chain()], ids=lambda p: p.name)
@pytest.mark.parametrize("eta", [1.2, 2.0, 8.0])
def test_low_switching_switches_where_a_determinant_has_grown(problem: Problem, eta: float) -> None:
    """Strictly above η times: with one-hot features and λ = 1 the first visit is a tie at η = 2."""
    T, H = 40, problem.horizon
    run = play("low-switching", problem, 1, T, eta=eta)
    firsts, policies, near = literal_low_switching(
        problem.one, problem.phi, T, 1, 1.0, 1.0, [float(H)] * H, eta, run.policies
    )
    assert run.taus[:-1] == firsts
    assert run.counts == {"switches": len(firsts) - 1, "most_switches": len(firsts) - 1}
    for first, pi in zip(run.taus, run.policies, strict=False):
        assert np.array_equal(pi, policies[first - 1])
    rows = [[pi] for pi in policies]
    assert_close(run.regret, regret_of(rows, worlds(problem.one, 1, 1)), "regret")
    assert_few_near_ties(near)
    # every switch multiplies some det Λ_h by η; each of the H can grow by (1 + T/(λd))^d
    grows = H * run.parameters.dim * math.log1p(T / run.parameters.dim)
    assert len(firsts) <= 1 + grows / math.log(eta)


@pytest.mark.parametrize("S", [4, 100, 150])
def test_rare_switch_keeps_its_budget(S: int) -> None:
    """B policies need B − 1 switches. With S = 150, d = 300, η and determinants are beyond e⁶⁰⁰."""
    found = []
    for budget in (1, 3, 4, 10, 40):
        run = registry.make("rare-switch", n_agents=2, budget=budget).learn(
            RandomMDP(n_states=S, n_actions=2, horizon=3, seed=0), 3000, 0, progress=False
        )
        found.append(run.counts["most_switches"])
        assert found[-1] < budget
    assert found[-1] > 3


def test_switches_are_counted_for_every_agent() -> None:
    """Records list no more than 32 of those who fire; the counts leave nobody out."""
    for M in (8, 40):
        session = registry.make("low-switching", n_agents=M, **PAPER).prepare(one_hot(2).one, 60, 1)
        listed, cut = 0, False
        for record in session.rounds():
            listed += sum(h > 0 for _, h in record.triggers)
            cut |= len(record.triggers) == LISTED
            assert cut or session.player.counts["switches"] == listed
        rounds = [agent.server.k for agent in session.player.agents]  # type: ignore[attr-defined]
        assert session.player.counts == {
            "switches": sum(rounds) - M,
            "most_switches": max(rounds) - 1,
        }
        assert cut == (M > LISTED)
    run = play("low-switching", one_hot(2), 2, 60)
    (said,) = [line for line in single_lines(run.summary()) if "switches" in line]
    assert str(run.counts["switches"]) in said


@pytest.mark.parametrize("schedule", ["round-robin", "random", "skewed"])
@pytest.mark.parametrize("alpha", [-0.5, 0.3, 4.0])
def test_async_is_its_protocol(schedule: Any, alpha: float) -> None:
    """Frozen policies, own triggers, answers to the one who speaks: against a literal code."""
    problem, M, T = simplex(11), 3, 10
    H = problem.horizon
    run = play("async-coop", problem, M, T, alpha=alpha, schedule=schedule)
    turns = order(schedule, 1, M, T)
    events, policies, server = literal_async(
        problem.envs, problem.phi, M, T, 1, 1.0, 1.0, [float(H)] * H, alpha, turns
    )
    assert run.counts["events"] == len(events)
    spoken = [m for record in run.records for m, _ in record.triggers]
    assert spoken == [m for _, m in events]
    w, gram = server.model()
    assert_close(run.w, w, "w")
    assert_close(run.gram, gram, "Λ")
    agents, played, total = worlds(problem.envs, M, 1), [0] * M, 0.0
    curve = []
    for k, m in enumerate(turns):
        played[m] += 1
        x = agents[m].first(played[m])
        env = agents[m].env
        total += backward_values(env, None)[x] - backward_values(env, policies[k])[x]
        curve.append(total)
    assert_close(run.regret, np.array(curve[M - 1 :: M]), "regret")


def test_schedules_are_what_they_say() -> None:
    assert order("round-robin", 0, 3, 2).tolist() == [0, 1, 2, 0, 1, 2]
    even = np.bincount(order("random", 0, 4, 5000), minlength=4) / 20000
    assert np.abs(even - 0.25).max() < 0.02
    skewed = np.bincount(order("skewed", 0, 4, 5000), minlength=4) / 20000
    weights = 1.0 / np.arange(1, 5)
    assert np.abs(skewed - weights / weights.sum()).max() < 0.02
    assert np.array_equal(order("random", 7, 4, 50), order("random", 7, 4, 50))


@pytest.mark.parametrize("name", ["coop-lsvi", "coopts-phe", "async-coop"])
def test_long_runs_pause_for_a_record(name: str) -> None:
    """A round of thousands of episodes is interrupted by records that are not rounds, and the
    formula of the scalars still holds."""
    never = {"alpha": 1e300} if name == "async-coop" else {"threshold": 1e12}
    run = learn(name, one_hot(2, S=2, H=2).one, 2500, n_agents=2, settings=never)
    assert run.rounds == 0
    assert len(run.records) == 3
    assert run.ledger.total == 0
