"""Estimates from logs, against formulas by hand and against worlds whose values are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedlsvi.bandits import FedLinUCB, LoggedDecisions, estimate_value, replay
from fedlsvi.errors import FedLSVIError
from literal_bandit import PooledLinUCB, unit

K, D, KINDS = 3, 4, 8
RNG = np.random.default_rng(3)
CONTEXTS = unit(RNG, KINDS, D)
WORTH = 0.5 + 0.4 * CONTEXTS @ unit(RNG, K, D).T
"""(KINDS, K) what each arm earns on average in each kind of context."""
LOGGING = RNG.dirichlet(np.ones(K), KINDS) * 0.7 + 0.1
TARGET = RNG.dirichlet(np.ones(K), KINDS)
TRUTH = float((TARGET * WORTH).sum(axis=1).mean())


def sample(n: int, seed: int, p: np.ndarray = LOGGING) -> tuple[LoggedDecisions, np.ndarray]:
    """Decisions of a policy p (KINDS, K), rewards 0 or 1, and the kinds of the contexts."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(KINDS, size=n)
    actions = (rng.random(n)[:, None] > np.cumsum(p[kinds], axis=1)[:, :-1]).sum(axis=1)
    rewards = (rng.random(n) < WORTH[kinds, actions]).astype(float)
    return LoggedDecisions(CONTEXTS[kinds], actions, rewards, p[kinds, actions]), kinds


def test_formulas_by_hand() -> None:
    """ρ = (2, ½, 0) and r = (1, 3, 5): IPS (2 + 1.5)/3, SNIPS 3.5/2.5; with q̂ = 1 of arm 0 and 2
    of arm 1 the expected rewards are (1, 1.75, 1), and DR adds 2·0, ½·1 and 0."""
    log = LoggedDecisions(np.eye(3), np.array([0, 1, 1]), np.array([1.0, 3.0, 5.0]),
                          np.array([0.5, 1.0, 0.5]))  # fmt: skip
    p = np.array([[1.0, 0.0], [0.5, 0.5], [1.0, 0.0]])
    q = np.array([[1.0, 2.0]] * 3)
    ips, snips = estimate_value(log, p, "ips"), estimate_value(log, p, "snips")
    assert ips.value == pytest.approx(3.5 / 3)
    assert snips.value == pytest.approx(1.4)
    assert ips.effective == snips.effective == pytest.approx(2.5**2 / 4.25)
    half = 1.959963985 * np.sqrt(4 * 0.4**2 + 0.25 * 1.6**2) / 2.5
    assert (snips.low, snips.high) == pytest.approx((1.4 - half, 1.4 + half))
    terms = np.array([2.0, 1.5, 0.0])
    assert ips.high - ips.value == pytest.approx(1.959963985 * terms.std(ddof=1) / np.sqrt(3))
    dr = estimate_value(log, p, "dr", predicted=q)
    terms = np.array([1.0, 1.5 + 0.5, 1.0])
    assert dr.value == pytest.approx(terms.mean())
    narrow = estimate_value(log, p, "dr", predicted=q, confidence=0.5)
    assert narrow.high - dr.value == pytest.approx(0.67448975 * terms.std(ddof=1) / np.sqrt(3))


@pytest.mark.parametrize("method", ["ips", "snips", "dr"])
def test_intervals_contain_the_truth(method: Any) -> None:
    """About 95 % of them, over 200 logs of 300 decisions; the mean of the estimates is right."""
    found = []
    for seed in range(200):
        log, kinds = sample(300, seed)
        found.append(estimate_value(log, TARGET[kinds], method))
    values = np.array([one.value for one in found])
    hit = np.mean([one.low <= TRUTH <= one.high for one in found])
    assert 0.90 <= hit <= 0.99
    assert abs(values.mean() - TRUTH) < 4 * values.std() / np.sqrt(200)


@pytest.mark.parametrize("method", ["snips", "dr"])
def test_other_estimates_are_narrower_than_importance_sampling(method: Any) -> None:
    log, kinds = sample(2_000, 0)
    narrow, wide = (estimate_value(log, TARGET[kinds], m) for m in (method, "ips"))
    assert narrow.high - narrow.low < 0.8 * (wide.high - wide.low)


def test_it_is_right_where_either_half_is() -> None:
    """Without q̂ it is IPS; with the true q̂ wrong propensities do no harm, which they do to IPS."""
    log, kinds = sample(20_000, 1)
    p = TARGET[kinds]
    none = estimate_value(log, p, "dr", predicted=np.zeros_like(p))
    assert none == estimate_value(log, p, "ips")
    wrong = LoggedDecisions(log.contexts, log.actions, log.rewards, np.full(len(log), 1 / K))
    right = estimate_value(wrong, p, "dr", predicted=WORTH[kinds])
    assert right.low < TRUTH < right.high
    assert not (ips := estimate_value(wrong, p, "ips")).low < TRUTH < ips.high


@pytest.mark.parametrize("shared", [False, True])
def test_a_learner_is_the_policy_of_its_probabilities(shared: bool) -> None:
    log, _ = sample(400, 2)
    if shared:
        theirs = np.einsum("nd,ka->nkad", log.contexts, np.eye(K)).reshape(400, K, -1)
        log = LoggedDecisions(theirs, log.actions, log.rewards, log.propensities)
    learner = FedLinUCB(arms=[2, 0, 1], choice="softmax").fit(
        log.contexts, log.actions, log.rewards
    )
    p = learner.probabilities(log.contexts)
    for method in ("ips", "snips", "dr"):
        one = estimate_value(log, learner, method)  # type: ignore[arg-type]
        other = estimate_value(log, p, method, arms=[2, 0, 1])  # type: ignore[arg-type]
        assert one == other
    if not shared:  # an arm that nobody logged, and one that is gone
        fewer = np.insert(p[:, :2], 2, 0.0, axis=1) / p[:, :2].sum(axis=1, keepdims=True)
        there = estimate_value(log, fewer, "ips", arms=[2, 0, 9])
        kept = np.isin(log.actions, [2, 0])
        at = np.where(log.actions == 2, 0, 1)
        terms = fewer[np.arange(400), at] * log.rewards / log.propensities * kept
        assert there.value == pytest.approx(terms.mean())


@pytest.mark.parametrize("uniform", [True, False])
def test_a_replay_of_a_fixed_policy_finds_its_value(uniform: bool) -> None:
    """Also where the log prefers some arms, for which a row is not always used."""
    p = np.full((KINDS, K), 1 / K) if uniform else LOGGING
    log, _ = sample(6_000, 4, p)
    policy = FedLinUCB(arms=K, alpha=0.0, threshold=1e300)  # it never synchronises again
    policy.fit(CONTEXTS.repeat(K, axis=0), np.tile(np.arange(K), KINDS), WORTH.ravel())
    taken = policy.predict(CONTEXTS)
    found = replay(policy, log, least=None if uniform else LOGGING.min())
    share = np.mean(1 / K if uniform else LOGGING.min())
    assert len(found.rows) == pytest.approx(6_000 * share, rel=0.1)
    truth = WORTH[np.arange(KINDS), taken].mean()
    assert found.low < truth < found.high
    np.testing.assert_array_equal(log.actions[found.rows], policy.predict(log.contexts[found.rows]))
    if not uniform:  # every kind as often as it comes, not as often as the log agreed
        seen = (log.contexts[found.rows][:, None] == CONTEXTS).all(axis=2).mean(axis=0)
        np.testing.assert_allclose(seen, 1 / KINDS, atol=0.06)


def test_a_learner_learns_from_the_rows_of_its_replay_and_no_others() -> None:
    """Row after row as literal LinUCB does; its sums are those of these rows."""
    log, _ = sample(400, 5, np.full((KINDS, K), 1 / K))
    learner, literal, rows = (
        FedLinUCB(arms=K, threshold=1.0, alpha=0.4),
        PooledLinUCB(K, D, 0.4),
        [],
    )
    found = replay(learner, log)
    for i, x in enumerate(log.contexts):
        scores = literal.scores(x)
        if int(np.flatnonzero(scores > scores.max() - 1e-9)[0]) == log.actions[i]:
            literal.learn(x, int(log.actions[i]), float(log.rewards[i]))
            rows.append(i)
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_array_equal(found.rewards, log.rewards[rows])
    np.testing.assert_allclose(learner.statistics()[0], literal.A, atol=1e-12)
    assert learner.waiting_ == 0


def test_batches_only_delay_what_is_learned() -> None:
    log, _ = sample(300, 6, np.full((KINDS, K), 1 / K))
    learner = FedLinUCB(arms=K)
    found = replay(learner, log, batch=300)
    assert (log.actions[found.rows] == 0).all()  # nothing is known yet: the first arm
    assert learner.synchronise().statistics()[0][1:].tolist() == [np.eye(D).tolist()] * 2


def test_what_says_nothing_is_refused() -> None:
    log, _ = sample(20, 7)
    ones = np.ones((20, 1))
    learner = FedLinUCB(arms=[7, 8])
    wrong = {
        "bad-method": lambda: estimate_value(log, ones, "dm"),  # type: ignore[arg-type]
        "bad-policy": lambda: estimate_value(log, 2 * ones),
        "bad-predicted": lambda: estimate_value(log, np.eye(K)[log.actions], predicted=ones),
        "no-overlap": lambda: estimate_value(log, ones, arms=[9]),
        "bad-batch": lambda: replay(learner, log, batch=0),
        "bad-least": lambda: replay(learner, log, least=0.9),
        "bad-confidence": lambda: replay(learner, log, confidence=0.0),
    }
    for code, call in wrong.items():
        with pytest.raises(FedLSVIError) as refused:
            call()
        assert refused.value.code == code
    with pytest.raises(FedLSVIError) as refused:
        replay(learner, log)
    assert refused.value.code == "no-overlap"
