"""Averaged Q-learning, SARSA, Q-learning with UCB2, PSRL and UCBVI against literal codes, and what
they reduce to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agreement import assert_close
from algorithms.literal_local import literal_q_avg, literal_sarsa, literal_ucb2, posterior_counts
from algorithms.literal_tabular import literal_ucbvi
from algorithms.roster import linear, tabular
from fedlsvi.algorithms import registry
from fedlsvi.algorithms.psrl import STREAM
from fedlsvi.algorithms.q_avg import importance
from fedlsvi.envs import FiniteMDP
from problems import one_hot, simplex, transition_rewards

KINDS = [one_hot(3), transition_rewards(4)]
TOP = np.full(3, 3.0)


def learned(name: str, envs: Any, M: int, T: int, **settings: Any) -> Any:
    learner = registry.make(name, n_agents=M, preset="paper", **settings)
    return learner.learn(envs, T, 1, progress=False, keep_models=True)


@pytest.mark.parametrize("problem", KINDS, ids=lambda p: p.name)
@pytest.mark.parametrize(
    ("M", "T", "period", "weights", "epsilon"),
    [(1, 40, 0, "equal", 0.3), (3, 41, 7, "equal", 0.1), (3, 40, 5, "importance", 0.3),
     (2, 30, 1, "importance", 0.0)],
)  # fmt: skip
def test_averaged_q_learning_is_its_loop(
    problem: Any, M: int, T: int, period: int, weights: Any, epsilon: float
) -> None:
    settings = {"rate": 0.3, "epsilon": epsilon, "period": period, "weights": weights}
    run = learned("q-avg", problem.envs, M, T, **settings)
    out = literal_q_avg(problem.envs, M, T, 1, 0.3, epsilon, period, weights == "importance", TOP)
    assert run.rounds == out.rounds
    assert_close(run.w, out.tables[-1].reshape(run.w.shape), "Q", 1e-10)


def test_importance_weights_are_shares_of_powers() -> None:
    visits = np.array([0, 3, 3, 1])[:, None, None, None]
    powers = 0.8 ** -np.array([0.0, 3.0, 3.0, 1.0])
    assert np.allclose(importance(visits, 0.2)[:, 0, 0, 0], powers / powers.sum())
    many = importance(np.array([10**6, 0])[:, None, None, None], 0.5)  # no power overflows
    assert many[:, 0, 0, 0].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("problem", [simplex(5), one_hot(3)], ids=lambda p: p.name)
@pytest.mark.parametrize(("M", "T", "period"), [(1, 40, 0), (3, 41, 7)])
def test_sarsa_is_its_loop(problem: Any, M: int, T: int, period: int) -> None:
    """M = 1 without a period is SARSA."""
    settings = {"rate": 0.2, "temperature": 0.1, "period": period}
    learner = registry.make("fed-sarsa", n_agents=M, preset="paper", **settings)
    run = learner.learn(problem.envs, T, 1, features=problem.features, progress=False)
    top = run.parameters.ceilings
    out = literal_sarsa(problem.envs, problem.phi, M, T, 1, 0.2, 0.1 * top, period)
    assert run.rounds == out.rounds
    assert_close(run.w, out.tables[-1], "θ", 1e-9)


@pytest.mark.parametrize("name", ["q-avg", "fed-sarsa"])
def test_without_a_period_agents_learn_alone(name: str) -> None:
    """Agent 0 has the same model whoever is beside it, and nothing is sent."""
    together = learned(name, tabular(), 3, 60, period=0)
    alone = learned(name, tabular(), 1, 60, period=0)
    assert together.ledger.total == 0
    assert np.array_equal(together.w, alone.w)
    assert np.array_equal(together.policy.table, alone.policy.table)


def test_equal_averages_of_one_agent_are_q_learning() -> None:
    averaged = learned("q-avg", tabular(), 1, 60, period=5, weights="equal")
    weighted = learned("q-avg", tabular(), 1, 60, period=5, weights="importance")
    alone = learned("q-avg", tabular(), 1, 60, period=0)
    assert np.array_equal(averaged.w, alone.w)
    assert np.array_equal(weighted.w, alone.w)
    assert weighted.ledger.scalars["up_stats"] == 2 * averaged.ledger.scalars["up_stats"]


@pytest.mark.parametrize("problem", KINDS, ids=lambda p: p.name)
@pytest.mark.parametrize(("M", "T", "c"), [(1, 150, 0.05), (2, 100, 0.01)])
def test_ucb2_is_its_loop(problem: Any, M: int, T: int, c: float) -> None:
    run = learned("q-ucb2", problem.envs, M, T, c=c)
    out = literal_ucb2(problem.envs, M, T, 1, c, 0.05, TOP)
    assert_close(run.w, out[0].tables[-1].reshape(run.w.shape), "Q", 1e-10)
    switches = [agent.switches[-1] for agent in out]
    assert run.counts == {"switches": sum(switches), "most_switches": max(switches)}
    assert run.ledger.total == 0


def test_ucb2_switches_rarely() -> None:
    """Between two renewals late in a run are many visits, so the policy changes in few episodes."""
    run = learned("q-ucb2", tabular(), 1, 4000, c=0.001)
    assert run.counts["switches"] < 400


@pytest.mark.parametrize("problem", KINDS, ids=lambda p: p.name)
@pytest.mark.parametrize(("M", "T"), [(1, 40), (3, 25)])
def test_ucbvi_is_fed_ucbvis_loop_after_every_episode(problem: Any, M: int, T: int) -> None:
    run = learned("ucbvi", problem.envs, M, T, c=0.2)
    out = literal_ucbvi(problem.envs, M, T, 1, 0.2, run.parameters.ceilings.tolist(), None)
    assert run.taus == out.taus == list(range(1, T + 2))
    for mine, theirs in zip(run.policies, out.policies, strict=True):
        assert np.array_equal(mine, theirs)
    assert_close(run.w, out.Q.reshape(run.w.shape), "Q", 1e-8)


def test_ucbvi_is_fed_ucbvi_where_any_visit_ends_its_rounds() -> None:
    """In the first visits of a chain that never returns: what is sent is the same, too."""
    one = FiniteMDP(np.ones((1, 1, 2, 1)), np.array([[[0.2, 0.7]]] * 2), initial=0)
    eager, rare = learned("ucbvi", one, 2, 2, c=0.2), learned("fed-ucbvi", one, 2, 2, c=0.2)
    assert eager.taus == rare.taus
    assert np.array_equal(eager.w, rare.w)
    assert eager.ledger.scalars == rare.ledger.scalars


def test_psrl_draws_from_the_posterior_of_everybodys_counts() -> None:
    """The server's counts are those of the episodes that agents played by their own tables, and the
    draws have the posterior's means."""
    M, T, env = 3, 60, tabular()
    session = registry.make("psrl", n_agents=M).prepare(env, T, 1)
    player = session.player
    tables, taus = [[agent.policy.copy() for agent in player.agents]], [1]
    for record in session.rounds():
        tables.append([agent.policy.copy() for agent in player.agents])
        taus.append(record.last + 1)
    data = posterior_counts(env, tables, taus, 1)
    for (h, x, a), seen in data.items():
        assert player.server.visits[h, x, a] == len(seen)
        assert np.isclose(player.server.earned[h, x, a], sum(r for r, _ in seen))
        arrivals = np.bincount([y for _, y in seen], minlength=env.n_states)
        assert np.array_equal(player.server.moves[h, x, a], arrivals)
    assert player.server.visits.sum() == M * T * env.horizon
    agent, last = player.agents[0], env.horizon - 1
    drawn = []
    for episode in range(400):  # at step H, Q is the mean reward that was drawn
        agent.draw(player.server.message(), 10_000 + episode)
        drawn.append(agent.Q[last].copy())
    n, r = player.server.visits[last], player.server.earned[last]
    expected = (1.0 + r) / (2.0 + n)
    spread = np.sqrt(expected * (1.0 - expected) / (3.0 + n) / 400)
    assert (np.abs(np.mean(drawn, axis=0) - expected) < 5.0 * spread).all()


def test_a_draw_of_psrl_is_a_plan_for_one_mdp_of_the_posterior() -> None:
    """Weights of a Gamma law, divided by their sum, are a draw of the Dirichlet law; then backward
    through the steps, pair by pair."""
    env = tabular()
    session = registry.make("psrl", n_agents=2, prior=0.5).prepare(env, 30, 1)
    assert sum(record.length for record in session.rounds()) == 30
    player = session.player
    H, S, A, counts = env.horizon, env.n_states, env.n_actions, player.server
    for agent in player.agents:
        agent.draw(counts.message(), 77)
        rng = np.random.default_rng([1, STREAM, agent.m, 77])
        reward = rng.beta(1.0 + counts.earned, 1.0 + counts.visits - counts.earned)
        weights = rng.standard_gamma(counts.moves + 0.5 / S)
        V, Q = np.zeros(S), np.zeros((H, S, A))
        for h in reversed(range(H)):
            for x in range(S):
                for a in range(A):
                    law = weights[h, x, a] / weights[h, x, a].sum()
                    ahead = sum(law[y] * V[y] for y in range(S))
                    Q[h, x, a] = min(reward[h, x, a] + ahead, agent.ceilings[h])
            V = Q[h].max(axis=1)
        assert_close(agent.Q, Q, "Q", 1e-12)
        assert np.array_equal(agent.policy, Q.argmax(axis=2))


def test_psrl_agents_explore_differently() -> None:
    session = registry.make("psrl", n_agents=3).prepare(linear(), 5, 1)
    one, two, three = (agent.policy for agent in session.player.agents)
    assert not np.array_equal(one, two)
    assert not np.array_equal(two, three)
