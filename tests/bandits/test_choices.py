"""Choices are drawn with the probabilities that are logged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedlsvi.bandits import FedLinTS, FedLinUCB
from fedlsvi.bandits import choice as choices
from fedlsvi.core.random import uniforms
from fedlsvi.errors import InvalidInput, InvalidSetting
from literal_bandit import unit

D, K = 3, 4
SHAPES = [False, True]


def taught(shared: bool, **settings: Any) -> FedLinUCB:
    """A learner that has seen something."""
    rng = np.random.default_rng(0)
    X = unit(rng, 60, K, D) if shared else unit(rng, 60, D)
    return FedLinUCB(2, arms=K, **settings).fit(X, rng.integers(K, size=60), rng.random(60))


def contexts(shared: bool, n: int) -> np.ndarray:
    """One context, n times."""
    one = unit(np.random.default_rng(1), 1, *((K, D) if shared else (D,)))
    return np.repeat(one, n, axis=0)


@pytest.mark.parametrize("shared", SHAPES)
@pytest.mark.parametrize("choice", ["greedy", "softmax", "thompson"])
def test_arms_are_taken_as_often_as_is_logged(choice: Any, shared: bool) -> None:
    learner = taught(shared, choice=choice, least_probability=0.05, samples=40, temperature=0.3)
    decided = learner.decide(contexts(shared, 4_000))
    p = decided.probabilities
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert p.min() >= 0.05 - 1e-12
    taken = np.searchsorted(learner.arms_, decided.actions)
    np.testing.assert_array_equal(decided.propensities, p[np.arange(4_000), taken])
    often = np.bincount(taken, minlength=K) / 4_000
    assert np.abs(often - p.mean(axis=0)).max() < 0.03  # four standard deviations


@pytest.mark.parametrize("shared", SHAPES)
def test_thompson_probabilities_are_those_of_the_posterior(shared: bool) -> None:
    """Against draws from N(w, α²Λ⁻¹) made from the statistics."""
    learner = taught(shared, choice="thompson", alpha=0.8, samples=20_000)
    X = contexts(shared, 1)
    A, b = learner.statistics()
    rng = np.random.default_rng(5)
    A, b = (A[None], b[None]) if shared else (A, b)
    theta = np.stack(
        [rng.multivariate_normal(np.linalg.solve(G, v), 0.64 * np.linalg.inv(G), 20_000)
         for G, v in zip(A, b, strict=True)], axis=1,
    )  # fmt: skip
    best = np.einsum("skd,kd->sk", np.broadcast_to(theta, (20_000, K, D)),
                     np.broadcast_to(X[0], (K, D))).argmax(axis=1)  # fmt: skip
    expected = np.bincount(best, minlength=K) / 20_000
    np.testing.assert_allclose(learner.probabilities(X)[0], expected, atol=0.02)


def test_masks_are_kept_and_probability_goes_to_what_is_allowed() -> None:
    X = unit(np.random.default_rng(2), 50, D)
    allowed = np.random.default_rng(3).random((50, K)) < 0.5
    allowed[:, 2] = True
    for choice in ("greedy", "softmax", "thompson"):
        learner = taught(False, choice=choice, least_probability=0.1)
        p = learner.probabilities(X, allowed=allowed)
        assert (p[~allowed] == 0.0).all()
        assert (p[allowed] >= 0.1 - 1e-12).all()
        assert allowed[np.arange(50), learner.predict(X, allowed=allowed)].all()
        assert allowed[np.arange(50), learner.decide(X, allowed=allowed).actions].all()
    with pytest.raises(InvalidInput) as refused:
        learner.predict(X, allowed=np.zeros(K, bool))
    assert refused.value.code == "bad-allowed"


def test_a_seed_gives_the_same_choices_however_they_are_asked_for() -> None:
    X = unit(np.random.default_rng(4), 40, D)
    at_once = FedLinTS(2, arms=K, seed=9).decide(X, site=1)
    learner = FedLinTS(2, arms=K, seed=9)
    singly = np.concatenate([learner.decide(x[None], site=1).actions for x in X])
    np.testing.assert_array_equal(at_once.actions, singly)
    assert (FedLinTS(2, arms=K, seed=10).decide(X, site=1).actions != at_once.actions).any()


def test_settings_are_checked_when_learning_begins() -> None:
    for wrong in (
        {"n_sites": 0}, {"alpha": -1.0}, {"lam": 0.0}, {"trigger": "often"}, {"threshold": 0.5},
        {"cap": 1.0}, {"choice": "best"}, {"temperature": 0.0}, {"samples": 0},
        {"least_probability": 0.6}, {"aggregation": "sum"}, {"decisions": 0}, {"rounds": 0},
        {"seed": -1}, {"arms": 0},
    ):  # fmt: skip
        with pytest.raises(InvalidSetting) as refused:
            FedLinUCB(**{"arms": 2} | wrong).decide(np.ones((1, D)))
        assert refused.value.code == f"bad-{next(iter(wrong))}"


def test_draws_are_keyed_by_site_and_number() -> None:
    """The same as one by one, in whatever batches decisions come."""
    sites, numbers = np.array([1, 0, 1, 2]), np.array([5, 1, 6, 9])
    alone = [
        uniforms(7, [m], t, 1, 1, choices.DRAW).item()
        for m, t in zip(sites.tolist(), numbers.tolist(), strict=True)
    ]
    np.testing.assert_array_equal(choices.draws(7, sites, numbers), alone)
