"""Off-policy evaluation from logs: literal, exact where data is plenty, with honest intervals."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

import fedlsvi
from expecting import refused
from fedlsvi.algorithms.fitted_q_evaluation import estimate_value
from fedlsvi.algorithms.shared.plain_policies import Always, plain_policies
from fedlsvi.algorithms.shared.policy_log import EVENLY
from fedlsvi.core.theory import scalars_total
from fedlsvi.envs import FiniteMDP, RandomLinearMDP, RandomMDP, logged_worlds, record_episodes
from fedlsvi.errors import InvalidSetting, TransportError, UnknownName
from fedlsvi.features import AggregateFeatures
from fedlsvi.features.base import FeatureMap
from fedlsvi.remote.evaluation import in_threads
from literal_evaluation import literal_doubly_robust, literal_importance, literal_value
from repeats import repeats


def tabular() -> RandomMDP:
    return RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)


def linear() -> RandomLinearMDP:
    return RandomLinearMDP(n_states=6, n_actions=3, dim=4, horizon=3, seed=2)


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
    wanted = literal_value(logs, table, phi, 3, features.dim, 0.5, stationary)
    highest = literal_value(logs, table, phi, 3, features.dim, 0.5, stationary, most=True)
    assert found.value == pytest.approx(wanted, abs=1e-9)
    assert found.value + found.unseen == pytest.approx(highest, abs=1e-9)
    robust = literal_doubly_robust(logs, table, phi, 3, features.dim, 0.5, stationary)
    assert found.robust == pytest.approx(robust, abs=1e-9)
    assert abs(robust - wanted) > 1e-3  # with so much ridge there is something to correct
    assert found.importance == pytest.approx(literal_importance(logs, table), abs=1e-9)
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


@pytest.mark.parametrize("stationary", [False, True])
def test_doubly_robust_of_episodes_that_were_cut(stationary: bool) -> None:
    """Of the last row of such an episode nobody knows what followed."""
    env = tabular()
    logs = [record_episodes(env, 30 + m, agent=m, ends=[1]) for m in range(2)]
    for log in logs:
        cut = (log["episode"] % 3 == 0) & (log["step"] == 3)
        for key in log:
            log[key] = log[key][~cut]
        del log["next_observation"]
    run = fedlsvi.offline(logs, env=env, progress=False)
    worlds, own, table = logged_worlds(logs, like=env), run.plan.features, run.policy.table
    found = estimate_value(run.policy, worlds, own, lam=0.5, repeats=0, stationary=stationary)

    def phi(x: int, a: int) -> np.ndarray:
        return own(np.array([x]))[0, a]

    robust = literal_doubly_robust(logs, table, phi, 3, own.dim, 0.5, stationary)
    assert found.robust == pytest.approx(robust, abs=1e-9)


@pytest.mark.parametrize("kind", ["one-hot", "dense"])
def test_actions_at_random_are_evaluated_as_they_are(kind: str) -> None:
    env: FiniteMDP = tabular() if kind == "one-hot" else linear()
    greedy = env.greedy_policy()
    often = 0.1 + 0.7 * np.eye(3)[greedy]
    logs = [record_episodes(env, 40 + m, often, agent=m, ends=[1]) for m in range(2)]
    worlds, own = logged_worlds(logs, like=env), env.default_features()
    found = estimate_value(Always(EVENLY), worlds, own, lam=0.5, repeats=0)

    def phi(x: int, a: int) -> np.ndarray:
        return own(np.array([x]))[0, a]

    about: Any = (logs, None, phi, 3, own.dim, 0.5)
    assert found.value == pytest.approx(literal_value(*about), abs=1e-9)
    assert found.robust == pytest.approx(literal_doubly_robust(*about), abs=1e-9)


def test_behaviour_cloning_is_what_the_logs_have_most_often() -> None:
    """Of numbered states by counting, of vectors by a regression, which is the same where every
    state has features of its own."""
    env = tabular()
    often = np.repeat(np.random.default_rng(0).dirichlet(np.ones(3), size=(1, 4)), 3, axis=0)
    logs = [record_episodes(env, 200, often, agent=m) for m in range(2)]
    for log in logs:  # nobody was ever in state 3
        keep = ~np.isin(log["episode"], log["episode"][log["observation"] == 3])
        for key in log:
            log[key] = log[key][keep]
    worlds = logged_worlds(logs, like=env)
    found = plain_policies(worlds, env.default_features())
    assert list(found) == ["behaviour cloning", "always action 0", "random"]
    counts = np.zeros((4, 3))
    for log in logs:
        np.add.at(counts, (log["observation"], log["action"]), 1)
    wanted = counts.argmax(axis=1)
    wanted[3] = counts.sum(axis=0).argmax()
    assert len(set(wanted.tolist())) > 1
    assert found["behaviour cloning"].actions(1, np.arange(4)).tolist() == wanted.tolist()
    points = [log | {k: np.eye(4)[log[k]] for k in ("observation", "next_observation")}
              for log in logs]  # fmt: skip
    vectors = logged_worlds(points, horizon=3, n_actions=3)

    class Own(FeatureMap):
        dim, n_actions = 12, 3

        def bind(self, env: Any) -> FeatureMap:
            return self

        def __call__(self, states: np.ndarray) -> np.ndarray:
            return np.einsum("ns,ab->nasb", states, np.eye(3)).reshape(len(states), 3, 12)

    cloned = plain_policies(vectors, Own())["behaviour cloning"]
    assert cloned.actions(1, np.eye(4)[:3]).tolist() == wanted[:3].tolist()
    masked = logged_worlds(logs, like=env, allowed=np.ones((4, 3), bool))
    assert list(plain_policies(masked, env.default_features())) == ["behaviour cloning"]


def test_doubly_robust_mends_features_that_say_nothing() -> None:
    """With one feature for all pairs fitted-Q evaluation is far off; ρ is right."""
    env = tabular()
    logs = [record_episodes(env, 5_000, agent=m) for m in range(2)]
    policy = fedlsvi.offline(record_episodes(env, 20), env=env, progress=False).policy
    policy.table[:] = env.greedy_policy()
    value = float(env.initial_law(0) @ env.optimal_values()[0])
    worlds = logged_worlds(logs, like=env)
    blind = AggregateFeatures(np.zeros((4, 3), int)).bind(env)
    found = estimate_value(policy, worlds, blind, repeats=0)
    assert abs(found.value - value) > 0.15
    assert found.robust == pytest.approx(value, abs=0.05)


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
    """Of a policy that the log did not choose, so that nothing was selected by the same data.
    `python -m benchmarks estimate_coverage` counts 400 replications."""
    env, covered, n = tabular(), 0, repeats(30, 200)
    policy = fedlsvi.offline(record_episodes(env, 300, seed=99), env=env, progress=False).policy
    value = float(env.initial_law(0) @ env.policy_values(policy.table)[0])
    for seed in range(n):
        logs = [record_episodes(env, 60, seed=seed, agent=m) for m in range(3)]
        worlds = logged_worlds(logs, like=env)
        found = estimate_value(policy, worlds, env.default_features(), seed=seed)
        covered += found.low <= value <= found.high  # type: ignore[operator]
        assert found.pessimistic <= value <= found.optimistic
    assert 0.93 * n <= covered <= n - n // 50  # of 30, all may


@pytest.mark.parametrize("kind", ["one-hot", "dense"])
def test_the_interval_is_a_quantile_of_literal_repeats(kind: str) -> None:
    """Episodes drawn again at each site, ranks p(B + 1), and √(N/(N − M)) for what n draws of n
    episodes vary too little: of logs with a few episodes, by hand."""
    env: FiniteMDP = tabular() if kind == "one-hot" else linear()
    sizes, greedy = (4, 7), env.greedy_policy()
    often = 0.1 + 0.7 * np.eye(3)[greedy]  # so that some episodes do what the policy does
    logs = [record_episodes(env, n, often, seed=n) for n in sizes]
    policy = fedlsvi.offline(logs, env=env, progress=False).policy
    policy.table[:] = greedy
    own = env.default_features()
    found = estimate_value(policy, logged_worlds(logs, like=env), own, repeats=79, seed=3)

    def phi(x: int, a: int) -> np.ndarray:
        return own(np.array([x]))[0, a]

    def redrawn(k: int) -> list[dict[str, Any]]:
        again = []
        for m, (log, n) in enumerate(zip(logs, sizes, strict=True)):
            chosen = np.random.default_rng([3, k, m]).integers(n, size=n)
            parts = [{key: part[log["episode"] == e] for key, part in log.items()} for e in chosen]
            for i, part in enumerate(parts):
                part["episode"] = np.full(len(part["step"]), i)
            again.append({key: np.concatenate([p[key] for p in parts]) for key in log})
        return again

    def drawn(k: int, most: bool) -> float:
        return literal_value(redrawn(k), policy.table, phi, 3, own.dim, 0.001, most=most)

    scale, means = math.sqrt(11 / (11 - 2)), [sorted(drawn(k, most) for k in range(79))
                                             for most in (False, True)]  # fmt: skip
    low = found.value + scale * (means[0][2 - 1] - found.value)  # .025 · 80 = 2
    highest = found.value + found.unseen
    high = highest + scale * (means[1][78 - 1] - highest)
    assert found.low == pytest.approx(max(low, 0.0), abs=1e-9)
    assert found.high == pytest.approx(min(high, 3.0), abs=1e-9)
    about = (policy.table, phi, 3, own.dim, 0.001)
    for centre, low, high, repeat in (
        (found.robust, found.robust_low, found.robust_high,
         lambda logs: literal_doubly_robust(logs, *about)),
        (found.importance, found.importance_low, found.importance_high,
         lambda logs: literal_importance(logs, policy.table)),
    ):  # fmt: skip
        again = sorted(repeat(redrawn(k)) for k in range(79))
        assert np.isfinite(again).all()
        edges = [centre + scale * (again[rank - 1] - centre) for rank in (2, 78)]
        assert [low, high] == pytest.approx(np.clip(edges, 0.0, 3.0), abs=1e-9)
    # three draws have no quantile of 2.5 %, so that is Student's with two degrees of freedom
    few = estimate_value(policy, logged_worlds(logs, like=env), own, repeats=3, seed=3)
    spread = np.std([drawn(k, most=False) for k in range(3)], ddof=1)
    low = found.value - scale * 4.302653 * spread
    assert few.low == pytest.approx(max(low, 0.0), abs=1e-6)


def test_a_single_episode_of_each_site_has_no_interval() -> None:
    env = tabular()
    logs = [record_episodes(env, 1, agent=m) for m in range(3)]
    policy = fedlsvi.offline(logs, env=env, progress=False).policy
    found = estimate_value(policy, logged_worlds(logs, like=env), env.default_features())
    assert found.low is found.high is found.behaviour_low is None


@pytest.mark.parametrize("units", [(0.0, 1.0), (-1.0, 0.0), (-2.0, 6.0)])
def test_nothing_leaves_the_range_of_returns(units: tuple[float, float]) -> None:
    """A reward of 1 (or of `high`) at the last step alone, so that returns are at most 1: with so
    few episodes what is estimated would be above."""
    P, r = np.full((3, 2, 2, 2), 0.5), np.zeros((3, 2, 2))
    r[2] = 0.98
    env = FiniteMDP(P, r)
    env.reward_range = low, high = units
    floor, top = 3 * low, 3 * low + (high - low)
    log = record_episodes(env, 6)
    worlds = logged_worlds(log, like=env)
    policy = fedlsvi.offline(log, env=env, progress=False).policy
    for transport in ("inprocess", in_threads):
        found = estimate_value(
            policy, worlds, env.default_features(), value_range=1.0, repeats=40, seed=1,
            transport=transport,  # type: ignore[arg-type]
        )  # fmt: skip
        numbers = {key: getattr(found, key) for key in
                   ("value", "low", "high", "pessimistic", "optimistic", "behaviour",
                    "behaviour_low", "behaviour_high", "importance", "robust", "robust_low",
                    "robust_high")}  # fmt: skip
        assert all(floor <= number <= top for number in numbers.values()), numbers
        assert found.value + found.unseen <= top
        assert found.optimistic == top  # the bounds know of the range
    whole = estimate_value(policy, worlds, env.default_features(), repeats=0)
    assert whole.optimistic > top
    with refused(InvalidSetting, "bad-value_range", "0.98"):
        estimate_value(policy, worlds, env.default_features(), value_range=0.5)


@settings(max_examples=repeats(12, 60), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    episodes=st.integers(2, 9),
    high=st.floats(0.5, 30.0),
    spread=st.floats(0.2, 3.0),
)
def test_no_number_leaves_the_range_of_returns(
    seed: int, episodes: int, high: float, spread: float
) -> None:
    """Whatever few episodes of whatever problem have seen, with the sharpest range that is true."""
    rng = np.random.default_rng(seed)
    P, r = rng.dirichlet(np.full(3, spread), size=(4, 3, 2)), rng.random((4, 3, 2))
    env = FiniteMDP(P, r)
    env.reward_range = 0.0, high
    top = float(r.max(axis=(1, 2)).sum())
    log = record_episodes(env, episodes, seed=seed)
    policy = fedlsvi.offline(log, env=env, progress=False).policy
    found = estimate_value(
        policy, logged_worlds(log, like=env), env.default_features(), value_range=top, repeats=20,
        seed=seed,
    )  # fmt: skip
    for key in ("value", "low", "high", "pessimistic", "optimistic", "behaviour", "behaviour_low",
                "behaviour_high", "importance", "importance_low", "importance_high", "robust",
                "robust_low", "robust_high"):  # fmt: skip
        number = getattr(found, key)
        assert number is None or 0.0 <= number <= top * high * (1.0 + 1e-12), key


def test_why_there_is_no_importance_sampling() -> None:
    env = tabular()
    log = record_episodes(env, 30)
    policy = fedlsvi.offline(log, env=env, progress=False).policy
    phi = env.default_features()
    known = estimate_value(policy, logged_worlds(log, like=env), phi, repeats=0)
    assert known.importance is not None
    assert known.importance_missing is None
    silent = {key: column for key, column in log.items() if key != "probability"}
    found = estimate_value(policy, logged_worlds(silent, like=env), phi, repeats=0)
    assert found.importance is found.effective is found.robust is found.robust_low is None
    assert "probability" in str(found.importance_missing)
    never = (policy.table + 1) % 3  # the behaviour is certain, and never does what the policy does
    log = record_episodes(env, 30, never)
    found = estimate_value(policy, logged_worlds(log, like=env), phi, repeats=0)
    assert found.importance is found.robust is None
    assert found.effective == 0.0
    assert "30 episodes" in str(found.importance_missing)


def test_no_interval_where_repeats_have_no_weight() -> None:
    """One of twelve episodes does what the policy does: a third of the repeats leave it out."""
    env = tabular()
    greedy = env.greedy_policy()
    logs = [record_episodes(env, 1, greedy), record_episodes(env, 11, (greedy + 1) % 3, seed=1)]
    logs[1]["episode"] += 1
    log = {key: np.concatenate([one[key] for one in logs]) for key in logs[0]}
    policy = fedlsvi.offline(log, env=env, progress=False).policy
    policy.table[:] = greedy
    phi = env.default_features()
    found = estimate_value(policy, logged_worlds(log, like=env), phi, repeats=50)
    assert found.effective == 1.0
    assert found.importance == pytest.approx(log["reward"][log["episode"] == 0].sum())
    assert found.importance_low is found.importance_high is None
    assert found.robust_low is not None  # such repeats are what fitted-Q evaluation says


class Watched(FeatureMap):
    """Features that note how many threads BLAS has when they are asked for."""

    def __init__(self, features: Any) -> None:
        self.features, self.threads = features, set[int]()
        self.dim, self.n_actions = features.dim, features.n_actions

    def bind(self, env: Any) -> FeatureMap:
        return self

    def _note(self) -> None:
        blas = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        self.threads |= set(blas)

    def __call__(self, states: np.ndarray) -> np.ndarray:
        self._note()
        found: np.ndarray = self.features(states)
        return found

    def chosen(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        self._note()
        found: np.ndarray = self.features.chosen(states, actions)
        return found


def test_blas_keeps_to_one_thread() -> None:
    env = linear()
    log = record_episodes(env, 10)
    policy = fedlsvi.offline(log, env=env, progress=False).policy
    watched = Watched(env.default_features())
    for transport in ("inprocess", in_threads):
        watched.threads.clear()
        with threadpool_limits(limits=2, user_api="blas"):
            estimate_value(policy, logged_worlds(log, like=env), watched, repeats=2,
                       transport=transport)  # type: ignore[arg-type] # fmt: skip
        assert watched.threads == {1}


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
