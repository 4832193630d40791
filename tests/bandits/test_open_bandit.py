"""Our learners as policies of Open Bandit Pipeline: with its own simulator where it is installed,
and with a stand-in for its base class everywhere."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fedlsvi.bandits import AsyncLinUCB, FedLinTS, FedLinUCB
from literal_bandit import unit

K, D, M, N = 4, 3, 10, 300


@dataclass
class Base:
    """What policies there inherit."""

    dim: int
    n_actions: int
    len_list: int = 1
    batch_size: int = 1
    random_state: int | None = None

    def __post_init__(self) -> None:
        self.initialize()

    def initialize(self) -> None:
        self.n_trial, self.action_counts = 0, np.zeros(self.n_actions, int)


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The adapter, on the stand-in."""
    stand_in = ModuleType("obp.policy")
    stand_in.BaseContextualPolicy = Base  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "obp", ModuleType("obp"))
    monkeypatch.setitem(sys.modules, "obp.policy", stand_in)
    sys.modules.pop("fedlsvi.bandits.open_bandit", None)
    from fedlsvi.bandits.open_bandit import OpenBanditPolicy

    yield OpenBanditPolicy
    del sys.modules["fedlsvi.bandits.open_bandit"]


def simulated(policy: Any, seed: int = 0) -> np.ndarray:
    """(N, len_list) chosen: rewards are shown where the first is the one that was logged."""
    rng = np.random.default_rng(seed)
    chosen = []
    for x, logged, reward in zip(unit(rng, N, D), rng.integers(K, size=N), rng.random(N),
                                 strict=True):  # fmt: skip
        chosen.append(policy.select_action(x[None]))
        if chosen[-1][0] == logged:
            policy.update_params(logged, reward, x[None])
    return np.array(chosen)


def test_ten_sites_that_send_everything_are_one(policy: Any) -> None:
    ten, one = (policy(D, K, learner=FedLinUCB(n, alpha=0.5, threshold=1.0)) for n in (M, 1))
    np.testing.assert_array_equal(simulated(ten), simulated(one))
    for mine, theirs in zip(ten.learner_.statistics(), one.learner_.statistics(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert ten.learner_.rounds_ == ten.n_trial == ten.action_counts.sum() > N / K / 2
    assert len(ten.learner_.ledger_.scalars) > 0
    assert ten.policy_name == "FedLinUCB"


def test_sites_are_spread_or_chosen(policy: Any) -> None:
    spread = policy(D, K, learner=AsyncLinUCB(M))
    contexts = unit(np.random.default_rng(1), 500, D)
    often = np.bincount([spread._site(x[None]) for x in contexts], minlength=M)
    assert often.min() > 25
    chosen = policy(D, K, learner=FedLinUCB(M, threshold=1e300, fresh=True), site=lambda x: 3)
    simulated(chosen)
    x = contexts[:1]
    alone = chosen.learner_.decision_function(x, site=3)
    assert (alone != chosen.learner_.decision_function(x, site=2)).any()


def test_a_ranking_has_different_actions_and_begins_with_the_best(policy: Any) -> None:
    greedy = policy(D, K, len_list=3, learner=FedLinUCB(M, alpha=0.0))
    chosen = simulated(greedy)
    assert all(len(set(row)) == 3 for row in chosen.tolist())
    x = unit(np.random.default_rng(2), 1, D)
    scores = greedy.learner_.decision_function(x)[0]
    np.testing.assert_array_equal(greedy.select_action(x), np.argsort(-scores)[:3])
    assert greedy.learner_.waiting_ == 0


def test_batches_and_a_new_beginning(policy: Any) -> None:
    batched = policy(D, K, batch_size=50, random_state=4, learner=FedLinTS(M, samples=1))
    first = simulated(batched)
    learned = batched.learner_.synchronise().statistics()[0].sum() - K * D
    assert batched.n_trial % 50 > 0
    assert learned != 0
    batched.initialize()
    assert batched.n_trial == 0
    np.testing.assert_array_equal(simulated(batched), first)
    other = policy(D, K, batch_size=50, random_state=5, learner=FedLinTS(M, samples=1))
    assert (simulated(other) != first).any()


@pytest.mark.skipif(find_spec("obp") is None, reason="obp is not installed")
@pytest.mark.filterwarnings("ignore")
def test_in_its_own_simulation_ten_sites_are_its_own_linucb() -> None:
    """γ = 1: the same choices as Open Bandit Pipeline's LinUCB, and the same sums. Every arm is
    taken once before, because ties are broken in another way there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from obp.dataset import SyntheticBanditDataset, logistic_reward_function
        from obp.policy import LinUCB
        from obp.simulator import run_bandit_simulation

        from fedlsvi.bandits.open_bandit import OpenBanditPolicy
    feedback = SyntheticBanditDataset(
        n_actions=K, dim_context=D, reward_function=logistic_reward_function, random_state=1
    ).obtain_batch_bandit_feedback(n_rounds=1_000)
    ten, one = (
        OpenBanditPolicy(D, K, learner=FedLinUCB(n, alpha=0.5, threshold=1.0)) for n in (M, 1)
    )
    theirs = LinUCB(D, K, epsilon=0.5)
    rng = np.random.default_rng(0)
    for arm, x in enumerate(rng.normal(size=(K, 1, D))):
        for one_of_them in (ten, one, theirs):
            one_of_them.update_params(arm, 0.1 * arm, x)
    choices = [run_bandit_simulation(feedback, who) for who in (ten, one, theirs)]
    np.testing.assert_array_equal(choices[0], choices[1])
    np.testing.assert_array_equal(choices[0], choices[2])
    (A, b), (pooled, _) = ten.learner_.statistics(), one.learner_.statistics()
    np.testing.assert_array_equal(A, pooled)
    np.testing.assert_array_equal(b, theirs.b.T)
    np.testing.assert_allclose(np.linalg.inv(A), theirs.A_inv, rtol=0.0, atol=1e-12)
