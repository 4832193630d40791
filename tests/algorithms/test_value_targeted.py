"""Value-targeted regression against a literal loop, its reductions, and linear mixture MDPs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from agreement import assert_close
from algorithms.roster import tabular
from expecting import refused
from fedlsvi.algorithms import registry
from fedlsvi.algorithms.fed_ucrl_vtr import kernels_of
from fedlsvi.envs import (
    Garnet,
    LinearMixtureMDP,
    RandomLinearMixtureMDP,
    RandomMDP,
    RiverSwim,
    check_env,
)
from fedlsvi.errors import InvalidEnvironment
from literal import Array, greedy_table, worlds


@dataclass
class Literal:
    """What a literal run did."""

    taus: list[int] = field(default_factory=lambda: [1])
    policies: list[Array] = field(default_factory=list)
    Q: Array = field(default_factory=lambda: np.empty(0))
    fired: list[list[tuple[int, int]]] = field(default_factory=list)


def literal_vtr(
    env: Any, phi: Array, M: int, T: int, seed: int, betas: Sequence[float], ridge: float,
    growth: float, top: Sequence[float],
) -> Literal:  # fmt: skip
    """Lists of samples, a determinant and a solution at every turn; φ is (S, A, S, d)."""
    agents, out = worlds(env, M, seed), Literal()
    H, S, A, d = env.horizon, env.n_states, env.n_actions, phi.shape[3]
    samples: list[list[tuple[Array, float]]] = [[] for _ in range(H)]
    t = 0
    while True:
        V, Q, score = np.zeros((H + 1, S)), np.zeros((H, S, A)), np.zeros((H, S, A))
        gram = []
        for h in reversed(range(H)):
            m = ridge * np.eye(d) + sum(np.outer(x, x) for x, _ in samples[h])
            theta = np.linalg.solve(m, sum((y * x for x, y in samples[h]), np.zeros(d)))
            gram.insert(0, m)
            for x in range(S):
                for a in range(A):
                    target = sum(phi[x, a, y] * V[h + 1, y] for y in range(S))
                    score[h, x, a] = env.r[h if len(env.r) > 1 else 0, x, a]
                    if h + 1 < H:
                        width = np.sqrt(target @ np.linalg.solve(m, target))
                        score[h, x, a] += target @ theta + betas[h] * width
            Q[h] = np.clip(score[h], 0.0, top[h])
            V[h] = Q[h].max(axis=1)
        pi = greedy_table(score)
        out.Q = Q
        if t == T:
            return out
        out.policies.append(pi)
        own: list[list[list[tuple[Array, float]]]] = [[[] for _ in range(H)] for _ in range(M)]
        fired: list[tuple[int, int]] = []
        while t < T and not fired:
            t += 1
            for m in range(M):
                path = agents[m].play(t, lambda h, x, pi=pi: int(pi[h - 1, x]), H)
                for h, (x, a, _, y) in enumerate(path[:-1]):
                    target = sum(phi[x, a, z] * V[h + 1, z] for z in range(S))
                    own[m][h].append((target, float(V[h + 1, y])))
            for m in range(M):
                for h in range(H - 1):
                    more = gram[h] + sum(np.outer(x, x) for x, _ in own[m][h])
                    ratio = np.linalg.slogdet(more)[1] - np.linalg.slogdet(gram[h])[1]
                    if ratio >= np.log(growth):
                        fired.append((m, h + 1))
                        break
        out.taus.append(t + 1)
        out.fired.append(fired if t < T else [(m, 0) for m in range(M)])
        for m in range(M):
            for h in range(H):
                samples[h] += own[m][h]


def small(seed: int = 3) -> RandomLinearMixtureMDP:
    return RandomLinearMixtureMDP(n_states=4, n_actions=2, dim=3, horizon=3, seed=seed)


@pytest.mark.parametrize("name", ["ucrl-vtr", "fed-ucrl-vtr"])
@pytest.mark.parametrize(("M", "T"), [(1, 25), (3, 30)])
def test_it_is_its_loop(name: str, M: int, T: int) -> None:
    env = small()
    growth = 1.0 if name == "ucrl-vtr" else 1.5
    settings = {"c": 0.3, "ridge": 0.5} | ({} if name == "ucrl-vtr" else {"growth": growth})
    run = registry.make(name, n_agents=M, **settings).learn(
        env, T, 1, progress=False, keep_models=True
    )
    top = run.parameters.ceilings
    betas = [0.3 * v for v in top[1:]]
    phi = np.moveaxis(env.mixture, 0, -1)
    out = literal_vtr(env, phi, M, T, 1, betas, 0.5, growth, top)
    assert run.taus == out.taus
    for mine, theirs in zip(run.policies, out.policies, strict=True):
        assert np.array_equal(mine, theirs)
    assert [r.triggers for r in run.records] == out.fired
    assert_close(run.w, out.Q.reshape(run.w.shape), "Q", 1e-8)


def test_after_every_episode_it_is_ucrl_vtr_pooled() -> None:
    """Any growth of a determinant is more than a factor of 1 + 10⁻¹²."""
    env = small()
    each = registry.make("fed-ucrl-vtr", n_agents=3, growth=1.0 + 1e-12, c=0.3)
    pooled = registry.make("ucrl-vtr", n_agents=3, c=0.3)
    one, two = (learner.learn(env, 40, 1, progress=False) for learner in (each, pooled))
    assert one.taus == two.taus == list(range(1, 42))
    assert one.w.tobytes() == two.w.tobytes()
    assert one.ledger.scalars == two.ledger.scalars


@pytest.mark.parametrize("M", [1, 2])
def test_without_kernels_it_is_the_loop_with_indicators(M: int) -> None:
    """φ = e_{x,a,x'}, one weight for each triple: the tabular form."""
    env, T = RandomMDP(n_states=3, n_actions=2, horizon=3, seed=1), 30
    run = registry.make("fed-ucrl-vtr", n_agents=M, c=0.3, ridge=0.5, growth=1.5).learn(
        env, T, 1, progress=False, keep_models=True
    )
    top = run.parameters.ceilings
    phi = np.eye(18).reshape(3, 2, 3, 18)
    out = literal_vtr(env, phi, M, T, 1, [0.3 * v for v in top[1:]], 0.5, 1.5, top)
    assert run.taus == out.taus
    for mine, theirs in zip(run.policies, out.policies, strict=True):
        assert np.array_equal(mine, theirs)
    assert_close(run.w, out.Q.reshape(run.w.shape), "Q", 1e-8)


def test_indicators_may_be_named() -> None:
    """They are the same whether the environment names them or not."""
    env = RandomMDP(n_states=3, n_actions=2, horizon=3, seed=1)
    basis = np.eye(18).reshape(18, 3, 2, 3)
    law = np.broadcast_to(env.P, (3, *env.P.shape[1:]))
    named = LinearMixtureMDP(basis, law.reshape(3, 18), env.r, initial=env.initial_laws[0])
    runs = [
        registry.make("fed-ucrl-vtr", n_agents=2, c=0.2).learn(e, 40, 1, progress=False)
        for e in (env, named)
    ]
    assert runs[0].w.tobytes() == runs[1].w.tobytes()
    assert np.array_equal(kernels_of(env), basis)


def test_few_scalars_and_little_regret_where_the_class_is_right() -> None:
    """Eight weights for each step in the place of S·A·S unknown probabilities."""
    env = RandomLinearMixtureMDP(seed=1)
    ours, counts = (
        registry.make(name, n_agents=5).learn(env, 400, 0, progress=False)
        for name in ("fed-ucrl-vtr", "fed-ucbvi")
    )
    assert ours.regret[-1] < 0.2 * counts.regret[-1]
    assert ours.ledger.total < 0.2 * counts.ledger.total


def test_mixtures_are_checked() -> None:
    env = small()
    check_env(env)
    assert np.allclose(np.einsum("hi,ixay->hxay", env.weights, env.mixture), env.P)
    with refused(InvalidEnvironment, "bad-weights", "3"):
        LinearMixtureMDP(env.mixture, [0.5, 0.5], env.r)
    with refused(InvalidEnvironment, "bad-kernels", "(3, 4, 2)"):
        LinearMixtureMDP(env.mixture[..., 0], env.weights, env.r)
    with pytest.raises(InvalidEnvironment):
        LinearMixtureMDP(env.mixture, 0.5 * env.weights, env.r)


def test_too_many_triples_are_refused() -> None:
    with refused(InvalidEnvironment, "needs-kernels", "fed-ucbvi"):
        registry.make("ucrl-vtr").learn(Garnet(n_states=20), 3, progress=False)
    registry.make("ucrl-vtr").learn(RiverSwim(), 3, progress=False)
    assert tabular().mixture is None
