"""Off-policy evaluation from logs: literal, exact where data is plenty, with honest intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedlsvi
from fedlsvi.algorithms.fitted_q_evaluation import estimate_value
from fedlsvi.core.theory import scalars_total
from fedlsvi.envs import FiniteMDP, RandomLinearMDP, RandomMDP, logged_worlds, record_episodes
from literal_pevi import transitions
from repeats import repeats


def tabular() -> RandomMDP:
    return RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)


def linear() -> RandomLinearMDP:
    return RandomLinearMDP(n_states=6, n_actions=3, dim=4, horizon=3, seed=2)


def literal(logs: list[dict[str, Any]], table: np.ndarray, phi: Any, H: int, d: int, lam: float
            ) -> float:  # fmt: skip
    """Pooled transitions, one regression per step, and the mean over first states."""
    read = [transitions(log, H) for log in logs]
    w = np.zeros((H + 1, d))

    def value(h: int, x: int) -> float:
        return float(np.clip(phi(x, table[h - 1, x]) @ w[h - 1], 0.0, H - h + 1))

    for h in range(H, 0, -1):
        gram, b = lam * np.eye(d), np.zeros(d)
        for x, a, r, y in (row for log in read for row in log[h - 1]):
            f = phi(x, a)
            gram += np.outer(f, f)
            b += f * (r + (value(h + 1, y) if y is not None else 0.0))
        w[h - 1] = np.linalg.solve(gram, b)
    return float(np.mean([value(1, x) for log in read for x, *_ in log[0]]))


@pytest.mark.parametrize("kind", ["one-hot", "dense", "continuous"])
def test_is_the_literal_evaluation(kind: str) -> None:
    env: FiniteMDP = tabular() if kind == "one-hot" else linear()
    logs = [record_episodes(env, 20 + m, agent=m, ends=[1]) for m in range(3)]
    run = fedlsvi.offline(logs, env=env, progress=False)
    worlds, own, table = logged_worlds(logs, like=env), run.plan.features, run.policy.table
    phi, features = lambda x, a: own(np.array([x]))[0, a], own
    policy: Any = run.policy
    if kind == "continuous":  # the states of the linear problem as points, with the same features
        points = [log | {k: log[k][:, None].astype(float)
                         for k in ("observation", "next_observation")} for log in logs]  # fmt: skip
        worlds = logged_worlds(points, horizon=3, n_actions=3)

        class Rounded:
            def actions(self, step: int, states: np.ndarray) -> np.ndarray:
                return table[step - 1, states[:, 0].astype(int)]

        class Spread(type(own)):  # type: ignore[misc]
            def __init__(self) -> None:
                self.dim, self.n_actions = own.dim, 3

            def __call__(self, states: np.ndarray) -> np.ndarray:
                return own(states[:, 0].astype(int))

            def chosen(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
                return own.chosen(states[:, 0].astype(int), actions)

        policy, features = Rounded(), Spread()
    found = estimate_value(policy, worlds, features, lam=0.5, repeats=0)
    wanted = literal(logs, table, phi, 3, features.dim, 0.5)
    assert found.value == pytest.approx(wanted, abs=1e-9)
    assert found.pessimistic <= found.value <= found.optimistic
    packing = "diagonal" if kind == "one-hot" else "packed"
    assert found.ledger.total == scalars_total(features.dim, 4, 3, packing, 1, 3)
    episodes = sum(len(np.unique(log["episode"])) for log in logs)
    assert found.behaviour == pytest.approx(sum(log["reward"].sum() for log in logs) / episodes)


def test_approaches_the_value_and_importance_sampling_agrees() -> None:
    env = tabular()
    logs = [record_episodes(env, 10_000, agent=m) for m in range(2)]
    run = fedlsvi.offline(logs, env=env, progress=False)
    value = float(env.initial_law(0) @ env.policy_values(run.policy.table)[0])
    worlds = logged_worlds(logs, like=env)
    found = estimate_value(run.policy, worlds, run.plan.features, repeats=0)
    assert found.value == pytest.approx(value, abs=0.02)
    assert found.importance == pytest.approx(value, abs=0.1)
    assert 100 < found.effective < 20_000  # type: ignore[operator]


def test_the_bootstrap_interval_covers_the_value() -> None:
    """Of a policy that the log did not choose, so that nothing was selected by the same data."""
    env, covered, n = tabular(), 0, repeats(10, 40)
    policy = fedlsvi.offline(record_episodes(env, 300, seed=99), env=env, progress=False).policy
    value = float(env.initial_law(0) @ env.policy_values(policy.table)[0])
    for seed in range(n):
        logs = [record_episodes(env, 60, seed=seed, agent=m) for m in range(3)]
        worlds = logged_worlds(logs, like=env)
        found = estimate_value(policy, worlds, env.default_features(), repeats=40, seed=seed)
        covered += found.low <= value <= found.high  # type: ignore[operator]
        assert found.pessimistic <= value <= found.optimistic
    assert covered >= 0.8 * n
