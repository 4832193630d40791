"""FedQ, Fed-UCBVI and LSVI-UCB++ against literal codes, and the order that is publicly known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agreement import assert_close
from algorithms.literal_tabular import (
    literal_advantage,
    literal_fedq,
    literal_plus,
    literal_ucbvi,
)
from fedlsvi.algorithms import registry
from fedlsvi.algorithms.fed_ucbvi import late_threshold
from fedlsvi.envs import RandomMDP
from problems import one_hot, simplex, transition_rewards

KINDS = [one_hot(3), transition_rewards(4)]


def played(name: str, problem: Any, M: int, T: int, **settings: Any) -> Any:
    learner = registry.make(name, n_agents=M, preset="paper", **settings)
    return learner.learn(problem.envs, T, 1, progress=False, keep_models=True)


def is_literal(run: Any, out: Any, tolerance: float = 1e-9) -> None:
    """The same rounds, the same policy in each of them, the same Q at the end."""
    assert run.taus == out.taus
    for mine, theirs in zip(run.policies, out.policies, strict=True):
        assert np.array_equal(mine, theirs)
    assert_close(run.w, out.Q.reshape(run.w.shape), "Q", tolerance)


@pytest.mark.parametrize("problem", KINDS, ids=lambda p: p.name)
@pytest.mark.parametrize(("M", "T", "c"), [(1, 60, 0.1), (3, 80, 0.05), (2, 150, 0.01)])
@pytest.mark.parametrize("bernstein", [False, True])
def test_fedq_is_its_sums(problem: Any, M: int, T: int, c: float, bernstein: bool) -> None:
    """Both cases of the update, with θ and α_agg written out. M = 1, H = 3 reaches the second case
    (N ≥ 2MH(H + 1) = 24) within 60 episodes."""
    name = "fedq-bernstein" if bernstein else "fedq-hoeffding"
    run = played(name, problem, M, T, c=c)
    top = [3.0] * 3
    is_literal(run, literal_fedq(problem.envs, M, T, 1, c, 0.05, top, bernstein))


@pytest.mark.parametrize("problem", KINDS, ids=lambda p: p.name)
@pytest.mark.parametrize(("M", "T", "c", "wanted"), [(1, 120, 0.5, 20), (3, 150, 0.2, 60)])
def test_advantage_is_its_stages(problem: Any, M: int, T: int, c: float, wanted: int) -> None:
    run = played("fedq-advantage", problem, M, T, c=c, reference=wanted)
    # the root of a variance that is almost zero keeps half of its digits
    is_literal(run, literal_advantage(problem.envs, M, T, 1, c, [3.0] * 3, wanted), 1e-7)


@pytest.mark.parametrize("problem", KINDS, ids=lambda p: p.name)
@pytest.mark.parametrize(("M", "T", "c"), [(1, 80, 0.3), (4, 80, 0.3)])
@pytest.mark.parametrize("early", [False, True])
def test_ucbvi_is_value_iteration_on_pooled_data(
    problem: Any, M: int, T: int, c: float, early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weighted by visits, the agents' averages are those of the pooled data; both triggers."""
    bound = 10.0 if early else late_threshold(
        registry.make("fed-ucbvi", n_agents=M, preset="paper").prepare(problem.envs, T, 1).plan, 0.0
    )  # fmt: skip
    monkeypatch.setattr("fedlsvi.algorithms.fed_ucbvi.late_threshold", lambda plan, epsilon: bound)
    run = played("fed-ucbvi", problem, M, T, c=c)
    is_literal(run, literal_ucbvi(problem.envs, M, T, 1, c, [3.0] * 3, bound))


@pytest.mark.parametrize("problem", [simplex(5), one_hot(5)], ids=lambda p: p.name)
@pytest.mark.parametrize("preset", ["practical", "paper"])
def test_plus_plus_is_weighted_regression(problem: Any, preset: str) -> None:
    """One agent plays the MT episodes of two; Σ, the switches and every policy of a code that
    solves each regression from the list of its samples."""
    scale = {"c": 0.05, "c_D": 1e-4, "c_sigma": 1e-4} if preset == "paper" else {}
    learner = registry.make("lsvi-ucb-pp", n_agents=2, preset=preset, **scale)
    session = learner.prepare(problem.envs, 20, 1)
    agent, p = session.player.agent, session.plan.parameters
    renewals = []

    def renew(original: Any = agent.renew) -> None:
        renewals.append(agent.k + 1)
        original()

    agent.renew = renew
    for record in session.rounds():
        due = [k for k in renewals if k <= 40]  # after the last episode there is nobody to follow
        assert session.player.counts == {"switches": len(due), "most_switches": len(due)}
        assert record.k == len(renewals)
    expected, policies, sigma = literal_plus(
        problem.one, problem.phi, 40, 1, p.lam, agent.radii, agent.factors, p.ceilings
    )
    assert renewals[: len(expected)] == expected
    assert len(renewals) - len(expected) in (0, 1)
    assert session.player.counts["switches"] == len(expected)
    dense = agent.gram if agent.gram.ndim == 3 else np.stack([np.diag(g) for g in agent.gram])
    assert_close(dense, sigma, "Σ", 1e-8)
    if len(renewals) == len(expected):
        assert np.array_equal(agent.policy, policies[-1])
    assert session.player.ledger.total == 0


def test_the_publicly_known_order() -> None:
    """The instance of Fed-UCBVI: S = A = 5, H = 4, M = 5, T = 5,000. Fed-UCBVI needs far fewer
    rounds than FedQ; its regret per agent stays within a few hundred, FedQ-Hoeffding's passes a
    thousand."""
    env, regret, rounds = RandomMDP(), {}, {}
    for name in ("fedq-hoeffding", "fedq-bernstein", "fedq-advantage", "fed-ucbvi"):
        run = registry.make(name, n_agents=5, preset="paper").learn(env, 5000, 0, progress=False)
        regret[name], rounds[name] = run.regret[-1] / 5, run.rounds
    assert regret["fed-ucbvi"] < 500
    assert regret["fedq-hoeffding"] > 1000
    assert regret["fed-ucbvi"] < regret["fedq-advantage"] < regret["fedq-bernstein"]
    assert regret["fedq-bernstein"] < regret["fedq-hoeffding"]
    assert 3 * rounds["fed-ucbvi"] < rounds["fedq-advantage"] < rounds["fedq-bernstein"]
