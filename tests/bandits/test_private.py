"""Private runs: rounds of a public schedule, noise on both sums, a budget that ends."""

from __future__ import annotations

import numpy as np
import pytest

from fedlsvi.bandits import FedLinUCB
from fedlsvi.errors import InvalidInput, InvalidSetting
from literal_bandit import unit

M, D = 3, 2


def private(epsilon: float, aggregation: str = "exact") -> FedLinUCB:
    """Two arms and 400 decisions for each site."""
    budget = {"epsilon": epsilon, "delta": 1e-6}
    return FedLinUCB(M, arms=2, aggregation=aggregation, privacy=budget, decisions=400, rounds=8)  # type: ignore[arg-type]


def played(learner: FedLinUCB) -> FedLinUCB:
    """Three sites, 1,200 decisions."""
    rng = np.random.default_rng(0)
    X, a = unit(rng, 1_200, D), rng.integers(2, size=1_200)
    r = (rng.random(1_200) < np.where(a == 1, 0.8, 0.3)).astype(float)
    for i in range(0, 1_200, 30):
        some = slice(i, i + 30)
        learner.partial_fit(X[some], a[some], r[some], np.arange(30) % M)
    return learner


@pytest.mark.parametrize("aggregation", ["exact", "secure"])
def test_noise_shrinks_as_epsilon_grows(aggregation: str) -> None:
    literal = played(FedLinUCB(M, arms=2)).synchronise().statistics()[1]
    off = [
        np.abs(played(private(epsilon, aggregation)).statistics()[1] - literal).max()
        for epsilon in (1.0, 1e4)
    ]
    assert off[1] < 0.2 < off[0]


def test_rounds_end_where_the_schedule_says_and_no_later_one_is_sent() -> None:
    learner = played(private(5.0))
    assert learner.rounds_ == 2 * 8  # both arms
    with pytest.raises(InvalidInput) as refused:
        learner.synchronise()
    assert refused.value.code == "budget-spent"


def test_what_noise_would_not_hide_is_refused() -> None:
    learner = private(1.0)
    for X, r in ((2.0 * np.ones((1, D)), [0.5]), (np.zeros((1, D)), [1.5])):
        with pytest.raises(InvalidInput) as refused:
            learner.partial_fit(X, [0], r)
        assert refused.value.code == "not-bounded"
    with pytest.raises(InvalidSetting) as late:
        learner.add_arm(7)
    assert late.value.code == "bad-arm"
    learner.set_params(decisions=None)
    with pytest.raises(InvalidSetting) as missing:
        learner.fit(np.zeros((1, D)), [0])
    assert missing.value.code == "bad-decisions"


def test_rounds_end_after_so_many_rewards_whatever_arms_were_taken() -> None:
    """An arm is dropped while rewards of it are still to come. Were they not counted, one decision
    for another arm would move every later one across the ends of rounds."""
    ended = []
    for dropped in ([], [0], [0, 1]):
        learner = private(5.0)
        tokens = learner.decide(np.full((400, D), 0.5)).tokens
        for arm in dropped:
            learner.drop_arm(arm)
        learner.reward(tokens, np.ones(400))
        ended.append(learner._models._releases)
    assert ended == [6, 6, 6]  # of 8, after a third of all rewards
