"""Regret where every agent has its own initial law: agent m uses entry m modulo their number.

With three agents and two laws the entries differ and the first one comes back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from agreement import assert_close, compare
from fedlsvi.algorithms import registry
from fedlsvi.envs import ContinuousLinearMDP, FiniteMDP
from literal import Array
from problems import Problem, Setting, simplex

S = Setting(M=3, T=20, gamma=1.0, seed=2)
SHARED: dict[str, dict[str, Any]] = {"fed-lsvi": {"gamma": 1.0}, "centralised": {}}
"""One run measured by `evaluation`, one by `regret_meter`; oracle 2 says they are the same."""


def learn(name: str, envs: Any, episodes: int) -> Any:
    plain = {"n_agents": S.M, "preset": "paper", "lam": S.lam, "beta": S.beta}
    learner = registry.make(name, **plain, **SHARED[name])
    return learner.learn(envs, episodes, S.seed, progress=False, keep_models=True)


def random_laws() -> Problem:
    """Two laws with little in common, of a problem whose gaps depend on the state."""
    base = simplex(5)
    laws = np.random.default_rng(3).dirichlet(np.full(base.one.n_states, 0.4), size=2)
    env = FiniteMDP(base.one.P, base.one.r, horizon=base.horizon, initial=laws, phi=base.phi)
    return Problem("random laws", env, base.phi)


def test_regret_with_random_laws_is_the_literal_regret() -> None:
    problem = random_laws()
    run, literal = compare(problem, S)
    assert literal.regret is not None
    pooled = learn("centralised", problem.envs, S.T)
    assert_close(pooled.regret, literal.regret, "centralised regret")
    first_law = FiniteMDP(
        problem.one.P, problem.one.r, horizon=problem.horizon, phi=problem.phi,
        initial=problem.one.initial_laws[0],
    )  # fmt: skip
    other = learn("fed-lsvi", first_law, S.T)
    assert np.abs(other.regret - run.regret).max() > 0.1, "the laws make no difference"


def greedy(env: Any, model: tuple[Array, Array]) -> Callable[[int, Array], Array]:
    """argmax_a φᵀw + β‖φ‖_{Λ⁻¹} of a whole batch."""
    features, (w, gram) = env.default_features(), model

    def act(h: int, x: Array) -> Array:
        phi = features(x)
        norms = np.einsum("nad,dk,nak->na", phi, np.linalg.inv(gram[h - 1]), phi)
        chosen: Array = (phi @ w[h - 1] + S.beta * np.sqrt(norms)).argmax(axis=1)
        return chosen

    return act


@pytest.mark.parametrize("name", SHARED)
def test_regret_of_real_starts_is_the_sum_of_the_agents_gaps(name: str) -> None:
    """Agents start at 0.15, 0.8 and 0.15 again; γ = 1, so that episode t follows model t − 1."""
    env = ContinuousLinearMDP(
        dim=5, n_actions=3, horizon=3, seed=1, initial=[0.15, 0.8], points=64, cells=64
    )
    run = learn(name, env, 5)
    starts = np.array([[0.15], [0.8], [0.15]])
    empty = np.zeros((3, 5)), np.stack([S.lam * np.eye(5)] * 3)
    gaps = []
    for model in [empty, *run.models[:-1]]:
        values = env.policy_values_at(greedy(env, model), starts)
        gaps.append((env.optimal_values_at(starts) - values).sum())
    assert_close(run.regret, np.cumsum(gaps), "regret", 1e-6)
