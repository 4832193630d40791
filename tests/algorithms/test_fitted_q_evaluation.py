"""Off-policy evaluation from logs: literal, exact where data is plenty, with honest intervals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedlsvi
from expecting import refused
from fedlsvi.algorithms.fitted_q_evaluation import estimate_value
from fedlsvi.core.theory import scalars_total
from fedlsvi.envs import FiniteMDP, RandomLinearMDP, RandomMDP, logged_worlds, record_episodes
from fedlsvi.errors import TransportError, UnknownName
from fedlsvi.remote.evaluation import in_threads
from literal_pevi import transitions
from repeats import repeats


def tabular() -> RandomMDP:
    return RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)


def linear() -> RandomLinearMDP:
    return RandomLinearMDP(n_states=6, n_actions=3, dim=4, horizon=3, seed=2)


def literal(logs: list[dict[str, Any]], table: np.ndarray, phi: Any, H: int, d: int, lam: float,
            stationary: bool = False, most: bool = False) -> float:  # fmt: skip
    """Pooled transitions, one regression per step, and the mean over first states; `most` adds the
    most that what was not seen may be worth."""
    read = [transitions(log, H, stationary) for log in logs]
    w, grams = np.zeros((H + 1, d)), np.stack([lam * np.eye(d)] * (H + 1))

    def value(h: int, x: int) -> float:
        f, top = phi(x, table[h - 1, x]), H - h + 1
        share = lam * f @ np.linalg.solve(grams[h - 1], f) if most else 0.0
        return float(np.clip(f @ w[h - 1] + top * share, 0.0, top))

    for h in range(H, 0, -1):
        gram, b = grams[h - 1], np.zeros(d)
        steps = range(H) if stationary else [h - 1]
        for x, a, r, y in (row for log in read for step in steps for row in log[step]):
            f = phi(x, a)
            gram += np.outer(f, f)
            b += f * (r + (value(h + 1, y) if y is not None and h < H else 0.0))
        w[h - 1] = np.linalg.solve(gram, b)
    return float(np.mean([value(1, x) for log in read for x, *_ in log[0]]))


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("kind", ["one-hot", "dense", "continuous"])
def test_is_the_literal_evaluation(kind: str, stationary: bool) -> None:
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
    found = estimate_value(policy, worlds, features, lam=0.5, repeats=0, stationary=stationary)
    wanted = literal(logs, table, phi, 3, features.dim, 0.5, stationary)
    highest = literal(logs, table, phi, 3, features.dim, 0.5, stationary, most=True)
    assert found.value == pytest.approx(wanted, abs=1e-9)
    assert found.value + found.unseen == pytest.approx(highest, abs=1e-9)
    assert found.pessimistic <= found.value <= found.optimistic
    packing = "diagonal" if kind == "one-hot" else "packed"
    assert found.ledger.total == scalars_total(features.dim, 4, 3, packing, 1, 3)
    episodes = sum(len(np.unique(log["episode"])) for log in logs)
    assert found.behaviour == pytest.approx(sum(log["reward"].sum() for log in logs) / episodes)


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("kind", ["one-hot", "dense"])
def test_is_the_same_over_frames(kind: str, stationary: bool) -> None:
    """Every number of the estimate, in one share of the agents and in three of different sizes."""
    env: FiniteMDP = tabular() if kind == "one-hot" else linear()
    logs = [record_episodes(env, 20 + 7 * m, agent=m, ends=[1]) for m in range(4)]
    run = fedlsvi.offline(logs, env=env, progress=False)
    worlds, phi = logged_worlds(logs, like=env), run.plan.features
    how: dict[str, Any] = {"repeats": 5, "stationary": stationary, "seed": 3}
    here = estimate_value(run.policy, worlds, phi, **how)
    for cohorts in (1, 3):
        found = estimate_value(
            run.policy, worlds, phi, transport=in_threads, cohorts=cohorts, **how
        )
        for name, number in here.row().items():
            if name != "scalars":
                assert getattr(found, name) == pytest.approx(number, abs=1e-9), name
        # a server that cannot be called asks how far the agents are: two scalars each
        assert found.ledger.scalars["up_stats"] == here.ledger.scalars["up_stats"]
        assert found.ledger.scalars["down_model"] == here.ledger.scalars["down_model"]


def test_a_pass_that_was_not_agreed_on_is_refused() -> None:
    env = tabular()
    log = record_episodes(env, 20)
    run = fedlsvi.offline(log, env=env, progress=False)

    def other(evaluation: Any, worlds: Any, cohorts: Any) -> Any:
        made = in_threads(replace(evaluation, passes=evaluation.passes[:1]), worlds, cohorts)
        made.evaluation = evaluation  # the server asks for more than the sites know of
        return made

    worlds = logged_worlds(log, like=env)
    with refused(TransportError, "agent-failed"):
        estimate_value(run.policy, worlds, run.plan.features, transport=other)
    with refused(UnknownName, "unknown-transport", "flare"):
        estimate_value(run.policy, worlds, run.plan.features, transport="flare")


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


def test_the_interval_allows_for_what_was_not_seen() -> None:
    """A policy that does what the behaviour hardly ever did: most pairs have no visit at all."""
    env = RandomMDP(n_states=8, n_actions=5, horizon=4, seed=7)
    table = env.greedy_policy()
    rare = np.full((4, 8, 5), 0.02)
    np.put_along_axis(rare, ((table + 1) % 5)[..., None], 0.92, axis=2)
    policy = fedlsvi.offline(record_episodes(env, 20, table), env=env, progress=False).policy
    policy.table[:] = table
    value = float(env.initial_law(0) @ env.policy_values(table)[0])
    covered, n = 0, repeats(8, 40)
    for seed in range(n):
        worlds = logged_worlds(record_episodes(env, 40, rare, seed=seed), like=env)
        found = estimate_value(policy, worlds, env.default_features(), repeats=20, seed=seed)
        covered += found.low <= value <= found.high  # type: ignore[operator]
        assert found.unseen > 0.5  # so little is known, and the estimate alone is far too low
        assert found.value < value
    assert covered >= 0.9 * n
