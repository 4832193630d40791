"""What sites learn together is what one learner of all their data would have learned."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from fedlsvi.bandits import AsyncLinUCB, DisLinUCB, FedLinTS, FedLinUCB
from fedlsvi.errors import InvalidInput
from literal_bandit import PooledLinUCB, unit

ALL = (FedLinUCB, DisLinUCB, AsyncLinUCB, FedLinTS)
M, K, D = 3, 4, 5


def logged(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Contexts, actions, rewards and sites."""
    rng = np.random.default_rng(seed)
    return unit(rng, n, D), rng.integers(K, size=n), rng.random(n), rng.integers(M, size=n)


@pytest.mark.parametrize("cls", ALL)
def test_statistics_are_those_of_pooled_data(cls: type[FedLinUCB]) -> None:
    X, a, r, m = logged(200)
    learner = cls(M, arms=K, lam=0.5)
    for i in range(0, 200, 20):
        learner.partial_fit(X[i : i + 20], a[i : i + 20], r[i : i + 20], m[i : i + 20])
    A, b = learner.synchronise().statistics()
    pooled = PooledLinUCB(K, D, lam=0.5)
    for one in zip(X, a, r, strict=True):
        pooled.learn(*one)
    np.testing.assert_allclose(A, pooled.A, rtol=0, atol=1e-12)
    np.testing.assert_allclose(b, pooled.b, rtol=0, atol=1e-12)
    assert 0 < learner.rounds_ <= 200


@pytest.mark.parametrize("shared", [False, True])
def test_gamma_one_is_pooled_linucb_to_the_bit(shared: bool) -> None:
    """Every reward is sent at once: sites that take turns are one site, bit by bit, and decide as
    the literal code does."""
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(K, D))
    federated, pooled = (FedLinUCB(n, arms=K, threshold=1.0, alpha=0.7) for n in (M, 1))
    literal = PooledLinUCB(K, D, 0.7)
    for t in range(150):
        x = unit(rng, 1, D)
        X = np.einsum("nd,kd->nkd", x, theta) / 4 if shared else x
        arm = federated.predict(X, site=t % M)
        np.testing.assert_array_equal(arm, pooled.predict(X))
        scores = federated.decision_function(X, site=t % M)
        np.testing.assert_array_equal(scores, pooled.decision_function(X))
        reward = x @ theta[arm[0]] + 0.1 * rng.normal()
        if not shared:
            np.testing.assert_allclose(scores[0], literal.scores(x[0]), rtol=1e-9)
            literal.learn(x[0], int(arm[0]), float(reward[0]))
        federated.partial_fit(X, arm, reward, site=t % M)
        pooled.partial_fit(X, arm, reward)
    for mine, theirs in zip(federated.statistics(), pooled.statistics(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert federated.rounds_ == 150
    if not shared:
        np.testing.assert_array_equal(federated.statistics()[0], literal.A)


@pytest.mark.parametrize("aggregation", ["exact", "secure"])
def test_integers_make_the_split_into_sites_irrelevant(aggregation: Any) -> None:
    """Who saw what changes no bit, and masks change none either."""
    X, a, r, m = logged(120)
    several = FedLinUCB(M, arms=K, aggregation=aggregation, decisions=120, threshold=1e9)
    other = FedLinUCB(M, arms=K, aggregation="exact", decisions=120, threshold=1e9)
    for learner, sites in ((several, m), (other, (m + 1) % M)):
        learner.partial_fit(X, a, r, sites).synchronise()
    for mine, theirs in zip(several.statistics(), other.statistics(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("cls", ALL)
def test_late_rewards_in_any_order_give_the_same_statistics(cls: type[FedLinUCB]) -> None:
    rng = np.random.default_rng(3)
    X = unit(rng, 60, D)
    found = []
    for order in (np.arange(60), np.arange(60)[::-1], rng.permutation(60)):
        learner = cls(M, arms=K, seed=5)
        decided = learner.decide(X, site=np.arange(60) % M)
        rewards = np.cos(decided.tokens)
        for part in np.array_split(order, 7):
            learner.reward(decided.tokens[part], rewards[part])
        assert learner.waiting_ == 0
        found.append((decided.actions, *learner.synchronise().statistics()))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0][0], other[0])
        np.testing.assert_allclose(found[0][1], other[1], rtol=0, atol=1e-12)
        np.testing.assert_allclose(found[0][2], other[2], rtol=0, atol=1e-12)


def test_a_token_is_good_once() -> None:
    learner = FedLinUCB(arms=2)
    token = learner.decide(np.ones((1, D))).tokens[0]
    learner.reward(token, 1.0)
    for again in (token, [7, 7], 9):
        with pytest.raises(InvalidInput) as refused:
            learner.reward(again, np.ones(np.size(again)))
        assert refused.value.code == "unknown-token"
    learner.forget(learner.decide(np.ones((3, D))).tokens[:2])
    assert learner.waiting_ == 1


@pytest.mark.parametrize("cls", ALL)
def test_arms_come_and_go_as_in_a_fresh_fit(cls: type[FedLinUCB]) -> None:
    """To the bit, triggers included: an arm changes no other."""
    X, a, r, m = logged(240)
    grown, fresh = cls(M, arms=[0, 1]), cls(M, arms=[1, 3])
    for i in range(0, 240, 12):
        some = slice(i, i + 12)
        if i == 60:
            grown.add_arm(3)
        if i == 120:
            grown.drop_arm(0)
        kept = np.isin(a[some], [1, 3] if i >= 60 else [1])
        with_0 = kept | ((a[some] == 0) & (i < 120))
        for learner, rows in ((grown, with_0), (fresh, kept)):
            if rows.any():
                learner.partial_fit(X[some][rows], a[some][rows], r[some][rows], m[some][rows])
    np.testing.assert_array_equal(grown.arms_, [1, 3])
    for mine, theirs in zip(grown.statistics(), fresh.statistics(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(grown.decision_function(X, m), fresh.decision_function(X, m))


def test_a_reward_of_a_dropped_arm_is_ignored() -> None:
    learner = FedLinUCB(arms=["a", "b"])
    decided = learner.decide(np.ones((4, D)))
    learner.drop_arm("a").reward(decided.tokens, np.ones(4)).synchronise()
    np.testing.assert_array_equal(learner.statistics()[0], [np.eye(D)])


def test_merged_learners_are_one_of_all_data() -> None:
    X, a, r, m = logged(100)
    first, second, both = (FedLinUCB(M, arms=K) for _ in range(3))
    first.fit(X[:60], a[:60], r[:60], m[:60])
    second.fit(X[60:], a[60:], r[60:], m[60:])
    first.merge(second)
    both.fit(X, a, r, m)
    for mine, theirs in zip(first.statistics(), both.statistics(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)
    scores = first.decision_function(X)
    np.testing.assert_allclose(scores, both.decision_function(X), atol=1e-10)
    with pytest.raises(InvalidInput) as refused:
        first.merge(FedLinUCB(lam=2.0).fit(X, a, r))
    assert refused.value.code == "cannot-merge"


def test_what_was_not_sent_is_not_lost_in_a_merge() -> None:
    X, a, r, m = logged(20)
    first, second = (FedLinUCB(M, arms=K, threshold=1e9) for _ in range(2))
    first.fit(X, a, r, m)
    second.partial_fit(X, a, r, m)
    with pytest.raises(InvalidInput) as refused:
        first.merge(second)
    assert refused.value.code == "not-synchronised"
    first.merge(second.synchronise())
    gram = (X[a == 0].T @ X[a == 0]) * 2 + np.eye(D)
    np.testing.assert_allclose(first.statistics()[0][0], gram, atol=1e-12)


def test_a_merge_moves_no_trigger_of_what_was_not_sent() -> None:
    """The determinant of rows that were not sent grows less under the larger Λ of the sum."""
    rng = np.random.default_rng(0)
    row, others = np.eye(D)[:1], rng.normal(size=(5_000, D)) / 2
    learner = FedLinUCB(M, arms=1, threshold=1e9, cap=5.0)
    learner.partial_fit(np.repeat(row, 3, axis=0), np.zeros(3, int), np.ones(3))
    learner.partial_fit(0.99 * row, [0], [1.0])  # the growth so far is just below the cap
    everything = np.zeros(5_000, int)
    learner.merge(FedLinUCB(M, arms=1).fit(others, everything, np.ones(5_000)))
    own = (3.0 + 0.99**2) * row.T @ row
    for _ in range(3):
        learner.partial_fit(6.0 * row, [0], [1.0])
        own = own + 36.0 * row.T @ row
        common = np.eye(D) + others.T @ others
        growth = np.linalg.slogdet(common + own)[1] - np.linalg.slogdet(common)[1]
        assert np.exp(growth) < 5.0
        assert learner.rounds_ == 0


def test_nothing_grows_with_the_number_of_decisions() -> None:
    X, a, r, m = logged(4_000)
    learner, sizes = FedLinUCB(M, arms=K), []
    for i in range(0, 4_000, 1_000):
        some = slice(i, i + 1_000)
        learner.partial_fit(X[some], a[some], r[some], m[some]).synchronise()
        sizes.append(len(pickle.dumps(learner)))
    assert max(sizes) <= sizes[0] + 100  # counters may take a byte more
