"""Every linear algorithm can learn one model for all steps, so that comparisons are fair."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedlsvi import algorithms, envs
from fedlsvi.algorithms.registry import REGISTRY

LINEAR = [
    *("centralised", "independent", "low-switching", "rare-switch"),
    *("coop-lsvi", "async-coop", "coopts-phe", "coopts-lmc", "periodic", "stale"),
]
PROBLEMS = {
    "one-hot": envs.RiverSwim(horizon=6),
    "dense": envs.RandomLinearMDP(n_states=6, n_actions=3, dim=4, horizon=5, seed=3),
    "masked": envs.FiniteMDP(
        np.random.default_rng(3).dirichlet(np.ones(4), (4, 2)),
        np.random.default_rng(4).random((1, 4, 2)),
        horizon=4,
        allowed=np.array([[True, True], [True, False], [True, True], [False, True]]),
    ),
}


def steady(kind: str) -> Any:
    """A table whose laws are the same at every step."""
    env: Any = PROBLEMS[kind]
    if kind == "dense":
        return envs.FiniteMDP(env.P[:1], env.r[:1], horizon=5, phi=env.phi)
    return env


def learn(name: str, kind: str, T: int = 60, **settings: Any) -> Any:
    own: dict[str, Any] = {"n_agents": 3, "stationary": True, **settings}
    if name == "periodic":
        own.setdefault("period", 1)
    if name not in ("coopts-phe", "coopts-lmc"):
        own |= {"beta": 0.4, "lam": 0.1}
    return algorithms.make(name, **own).learn(steady(kind), T, seed=2, progress=False)


def same(one: Any, other: Any) -> None:
    np.testing.assert_allclose(one.w, other.w, atol=1e-8)
    np.testing.assert_allclose(one.gram, other.gram, atol=1e-8)
    np.testing.assert_allclose(one.regret, other.regret, atol=1e-8)


@pytest.mark.parametrize("kind", ["one-hot", "dense", "masked"])
def test_everything_pooled_after_every_episode_is_one_algorithm(kind: str) -> None:
    """Fed-LSVI's own memories after every episode, the centralised sums, and cooperating agents
    that exchange all they have; these reach the same model by three different codes."""
    known = learn("periodic", kind)
    same(learn("centralised", kind), known)
    if kind != "masked":  # where ties are broken by the last bit, agents may part
        same(learn("coop-lsvi", kind, threshold=-1.0), known)


@pytest.mark.parametrize("kind", ["one-hot", "dense"])
def test_one_agent_needs_nobody(kind: str) -> None:
    known = learn("centralised", kind, n_agents=1)
    same(learn("independent", kind, n_agents=1), known)
    same(learn("async-coop", kind, n_agents=1, alpha=-0.5), known)
    same(learn("coop-lsvi", kind, n_agents=1, threshold=-1.0), known)


@pytest.mark.parametrize("kind", ["one-hot", "dense"])
@pytest.mark.parametrize("name", LINEAR)
def test_the_ledger_is_the_closed_formula(name: str, kind: str) -> None:
    run = learn(name, kind)
    assert run.parameters.matrices == 1
    assert np.array_equal(run.gram[0], run.gram[-1])
    formula = REGISTRY.rows[name].scalars  # type: ignore[attr-defined]
    assert {k: n for k, n in run.ledger.scalars.items() if n} == {
        k: n for k, n in formula(run).items() if n
    }


@pytest.mark.parametrize("name", LINEAR)
def test_pooling_is_never_assumed_where_an_algorithm_was_published_without(name: str) -> None:
    run = algorithms.make(name, n_agents=2, **({"period": 5} if name == "periodic" else {})).learn(
        PROBLEMS["one-hot"], 10, progress=False
    )
    assert run.parameters.stationary == (name in ("periodic", "stale"))


@pytest.mark.parametrize("name", LINEAR)
def test_it_goes_on_after_a_checkpoint(name: str) -> None:
    """A restored run has the bits of one that was never stopped."""
    own: dict[str, Any] = {"period": 7} if name == "periodic" else {}
    learner = algorithms.make(name, n_agents=2, stationary=True, **own)
    whole, half, rest = (learner.prepare(PROBLEMS["one-hot"], 400, 3) for _ in range(3))
    records = list(whole.rounds())
    rounds = half.rounds()
    kept = [next(rounds) for _ in range(max(1, len(records) // 2))]
    arrays, plain = half.player.state()
    history = half.player.history(0, kept[-1].last)
    rest.player.extend(0, {k: a.copy() for k, a in history.items()})
    rest.restore({k: a.copy() for k, a in arrays.items()}, plain, half.regret, kept)
    assert [r.last for r in rest.rounds()] == [r.last for r in records[len(kept) :]]
    assert np.array_equal(rest.player.w, whole.player.w)
    assert np.array_equal(rest.regret, whole.regret)
