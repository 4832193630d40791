"""How much noise a run needs whose agents answer step by step: every neighbour on a small problem
with real states, through the agents' own sums, and what is spent when."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from fedlsvi import FedLSVI
from fedlsvi.algorithms.shared.received import received_vectors
from fedlsvi.config import Settings
from fedlsvi.core.privacy_accountant import epsilon_of
from fedlsvi.core.stepwise_release import StepwiseRelease
from fedlsvi.features.base import CallableFeatures
from fedlsvi.groups import ProblemSize
from fedlsvi.privacy.sums import FixedPointSums
from fedlsvi.protocol.cohorts import cohort_of
from fedlsvi.protocol.messages import Upload
from fedlsvi.protocol.transport import layout
from problems import Drift
from repeats import repeats

H, ROUNDS, PLACES = 2, 3, (0.1, 0.5, 0.9)
PRIVACY = {"epsilon": 1.0, "delta": 1e-5}


def phi(kind: str) -> Any:
    """Features of norm one on the circle, two actions: signed ones have opposites."""
    turn = {"signed": 2.0 * np.pi, "nonnegative": 0.5 * np.pi}[kind]

    def map_(states: np.ndarray) -> np.ndarray:
        # at .1, .5 and .9 the steps 0, 1 and 2; an action adds half a turn, or swaps the entries
        step = np.rint(states[:, :1] / 0.4 - 0.25)
        angle = turn * (step / 6.0 + 0.5 * np.arange(2)) if kind == "signed" else turn * (
            np.abs(np.arange(2) - step / 4.0)
        )  # fmt: skip
        return np.stack([np.cos(angle), np.sin(angle)], axis=-1)

    return CallableFeatures(map_, nonnegative=False)


def plan(kind: str, stationary: bool, policy: Any = "auto") -> Any:
    env = Drift(H, 0.0, push=(0.4, 0.8))
    env.stationary = stationary
    learner = FedLSVI(
        n_agents=1, aggregation="exact", rounds=ROUNDS, privacy=PRIVACY, stationary=stationary,
        beta=0.0, policy=policy,
    )  # fmt: skip
    made = learner.prepare(env, 30, 0, features=phi(kind)).plan
    if kind == "nonnegative":  # cos and sin of angles in [0, π/2], up to rounding
        made = replace(made, parameters=replace(made.parameters, nonnegative=True))
    return made


def released(made: Any, episode: Any, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """For each step: the words of Λ and of b that two episodes and this one give, with values that
    are 0 in some places and as large as they can be in others."""
    p, world = made.parameters, cohort_of(made, 0, 1).experience
    rng = np.random.default_rng(seed)
    others = [[(PLACES[i], i % 2, 0.5) for i in (seed % 3, 1)], [(0.9, 1, 1.0), (0.1, 0, 0.0)]]
    every = [*others, list(episode)]
    states = np.array([[[x] for x, _, _ in one] + [[0.5]] for one in every])
    part = {
        "states": states.transpose(1, 0, 2)[None].copy(),
        "actions": np.array([[a for _, a, _ in one] for one in every], np.int32).T[None].copy(),
        "rewards": np.array([[r for _, _, r in one] for one in every]).T[None].copy(),
    }
    world.begin(0)
    world.memory.take(received_vectors(tuple(part.values())), 0, len(every))
    sums, grams, bs = FixedPointSums(layout(p), p.scale_bits), [], []
    for h in range(H, 0, -1):
        gram, b = world.summarise(h)
        words = sums.words(Upload(h, gram, b)).view(np.int64)
        grams.insert(0, words[: gram.shape[1]])
        bs.insert(0, words[gram.shape[1] :])
        w = 1e3 * rng.normal(size=p.dim)  # V is clipped to 0 or to its ceiling
        world.values.update(h, w, np.eye(p.dim))
    return grams, bs


@pytest.mark.parametrize("policy", ["explore", "exploit"])
@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("kind", ["signed", "nonnegative"][: repeats(1, 2)])
def test_no_neighbour_is_farther_than_the_sensitivity(
    kind: str, stationary: bool, policy: str
) -> None:
    made = plan(kind, stationary, policy)
    release = made.parameters.release
    steps = list(product(PLACES, (0, 1), (0.0, 1.0)))
    shares = [release.step_shares(h, 1) for h in range(1, H + 1)]
    total = 0.0
    # a model of its own for every synchronisation, and for the pass after the last one
    for seed in range(ROUNDS + (policy == "exploit")):
        rows = []
        for episode in product(steps, repeat=H):
            grams, bs = released(made, episode, seed)
            # all rounds together see a round in Λ once, c times, and N times in b; the last pass
            # releases no Λ
            seen = release.factors.norm / math.sqrt(ROUNDS) if seed < ROUNDS else 0.0
            scaled = [seen * g / s for g, (s, _) in zip(grams, shares, strict=True)]
            scaled += [b / s for b, (_, s) in zip(bs, shares, strict=True)]
            rows.append(np.concatenate(scaled))
        points = np.array(rows)
        square = np.square(points).sum(axis=1)
        total = total + (square[:, None] + square[None] - 2.0 * points @ points.T)
    apart = math.sqrt(np.max(total))
    assert apart <= release.mu
    if not stationary:  # and not much less would do
        assert apart >= 0.8 * release.mu


def release_of(**changes: Any) -> StepwiseRelease:
    known: dict[str, Any] = {
        "epsilon": 1.0, "delta": 1e-6, "episodes_per_user": 1,
        "weights": (1.0,) * 33, "horizon": 5, "dim": 8,
        "states": 0, "packing": "packed", "stationary": False, "nonnegative": True,
        "most_bits": 40, "targets": (5.0, 4.0, 3.0, 2.0, 1.0),
    }  # fmt: skip
    return StepwiseRelease(**(known | changes))


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("nonnegative", [False, True])
def test_what_is_spent_is_the_sum_of_what_was_released(nonnegative: bool, stationary: bool) -> None:
    """μ² of k synchronisations: Λ through the first k rows of C, and k responses, at the worst g of
    a grid."""
    release = release_of(nonnegative=nonnegative, stationary=stationary)
    mu_gram, mu_b = release.split
    assert math.hypot(mu_gram, mu_b) == pytest.approx(release.mu)
    times = release.horizon**2 if stationary else 1
    y, ratios = np.array(release.targets), release.ratios
    before = 0.0
    for k in range(1, 34):
        worst = np.zeros(1 if stationary else 5)
        for g in np.linspace(0.0 if nonnegative else -1.0, 1.0, 101):
            # a corner of the targets: one of them 0, or both as large as they can be
            b = np.square(y / ratios) * max(1.0, 2.0 * (1.0 - g)) * k
            b = b.sum(keepdims=True) if stationary else b
            gram = 2.0 * (1.0 - g * g) * release.factors.norms[k - 1] ** 2
            worst = np.maximum(worst, gram + b)
        mu = math.sqrt(times * worst.sum()) / release.sigma
        spent = release.spent(k)
        exact = epsilon_of(mu, release.delta)
        assert exact <= spent <= 1.005 * exact  # rounding to the grid is part of it
        assert before < spent <= release.epsilon
        before = spent
    assert release.spent(33) == release.spent(40) == release.epsilon
    assert release.spent(0) == 0.0


def test_noise_follows_the_specification() -> None:
    """σ_Λ = √(2H)·c/μ_Λ, and σ_b of each step from its share of μ_b."""
    release = release_of()
    mu_gram, mu_b = release.split
    assert release.sigma == pytest.approx(
        math.sqrt(2 * 5) * release.factors.norm / mu_gram, rel=2e-3
    )
    spent = sum(33 * 2 * y**2 / release.response_sigma(h) ** 2
                for h, y in enumerate(release.targets, 1))  # fmt: skip
    assert math.sqrt(spent) == pytest.approx(mu_b, rel=2e-3)
    assert release_of(episodes_per_user=3).sigma == pytest.approx(3 * release.sigma, rel=1e-2)


@pytest.mark.parametrize("parties", [1, 2, 7, 50])
@pytest.mark.parametrize("horizon", [1, 5, 100])
def test_shares_add_up_and_fit(horizon: int, parties: int) -> None:
    targets = tuple(float(horizon - h) for h in range(horizon))
    release = release_of(horizon=horizon, targets=targets)
    assert release.fits(50)
    for h in (1, horizon):
        for alone, shared in zip(
            release.step_shares(h, 1), release.step_shares(h, parties), strict=True
        ):
            total = np.sqrt(parties * np.square(shared.astype(float)))
            assert np.all(total >= alone - 1)
            assert np.all(total <= 1.02 * alone)


def test_the_theorems_bonus_is_widened_by_noise() -> None:
    """β + 2H√d·√(λ + 3r) + σ_b(√d + √(2 ln(2HN/α)))/√(λ + r), of the paper's preset alone."""
    about: dict[str, Any] = {"n_agents": 5, "aggregation": "exact", "preset": "paper", "rounds": 8}
    private = Settings(**about, privacy=PRIVACY).resolve(ProblemSize(400, 3, 4, False))
    usual = Settings(**about).resolve(ProblemSize(400, 3, 4, False))
    release, N = private.release, 8
    assert isinstance(release, StepwiseRelease)
    tail = math.sqrt(2 * math.log(2 * 3 * N / 0.05))
    each = release.sigma * (math.sqrt(2 * 4) + tail) * math.sqrt(5)  # every agent adds all of it
    summed = np.sqrt(release.factors.summed)
    r, least = each * summed.max(), each * summed.min()
    noise = max(release.response_sigma(h) for h in (1, 2, 3)) * math.sqrt(5)
    width = 2 * 3 * math.sqrt(4) * math.sqrt(1 + 3 * r)
    width += noise * (math.sqrt(4) + tail) / math.sqrt(1 + least)
    assert private.beta == pytest.approx(usual.beta + width)
    practical = Settings(n_agents=5, aggregation="exact", privacy=PRIVACY)
    assert practical.resolve(ProblemSize(400, 3, 4, False)).beta == 0.75
