"""An audit: how well can whoever sees everything tell whether a canary episode was there?

Thousands of small releases with and without it go through the sites' own code, and the best test
there is (the likelihood ratio; the auditor knows all other data) gives a lower bound on ε by
Clopper and Pearson. It must stay below the ε that was promised, and rise above it where noise is a
third of what it should be: an audit that could not fail would prove nothing.
"""

from __future__ import annotations

import sys
from dataclasses import fields

import numpy as np
import pytest

from auditing import lower_bound
from fedlsvi.config import Parameters, Settings
from fedlsvi.core.private_release import PrivateRelease
from fedlsvi.core.stepwise_release import StepwiseRelease
from fedlsvi.groups import ProblemSize
from fedlsvi.privacy.noise import PrefixNoise, StepNoise, new_noise_key
from fedlsvi.privacy.sums import FixedPointSums
from fedlsvi.protocol.messages import NextStates, Upload
from fedlsvi.protocol.transport import layout
from repeats import repeats

FEW = 5000
"""Trials that already catch noise which is too small; more can only raise the bound."""
TRIALS = repeats(FEW, 100_000)
EPSILON, DELTA, ROUNDS = 1.0, 1e-5, 4
STATES, H, SITES = 2, 2, 3


def upload(p: Parameters, x: int) -> np.ndarray:
    """(words,) of a site whose only episode of the round stays in state x and is always rewarded,
    as it is encoded."""
    gram, u = np.zeros((1, H, STATES)), np.zeros((1, H, STATES))
    table = np.zeros((H - 1, STATES, STATES))
    gram[0, :, x], u[0, :, x], table[:, x, x] = 1.0, 1.0, 1.0
    reply = Upload(1, gram, u, (NextStates(np.empty(0, np.int64), table.ravel()),))
    return FixedPointSums(layout(p), p.scale_bits).words(reply)


def parameters() -> Parameters:
    settings = Settings(
        n_agents=SITES, exchange="one-trip", aggregation="secure", rounds=ROUNDS,
        privacy={"epsilon": EPSILON, "delta": DELTA, "colluders": 0},
    )  # fmt: skip
    return settings.resolve(ProblemSize(ROUNDS, H, STATES, True, states=STATES))


def white(release: PrivateRelease) -> np.ndarray:
    """(N,) of what rounds brought, the best statistic for the first: C makes their noise
    independent, and its first column says how much of the first round is in each."""
    encoder = np.linalg.inv(np.ldexp(release.factors.mixing.astype(float), -16))
    statistic: np.ndarray = encoder[:, 0] @ encoder
    return statistic


def scores(p: Parameters, canary: int, direction: np.ndarray) -> np.ndarray:
    """(TRIALS,) statistics of releases whose first site had this first episode: noise and sums are
    those of the sites, of all trials side by side."""
    assert p.release is not None
    sigma = np.tile(p.release.shares(SITES), TRIALS)
    sites = [PrefixNoise(new_noise_key(), m, sigma, p.release) for m in range(SITES)]
    column, sent = white(p.release), np.zeros((ROUNDS, TRIALS))
    for k in range(1, ROUNDS + 1):
        total = np.zeros(sigma.size, np.uint64)
        for m, noise in enumerate(sites):
            x = canary if (k, m) == (1, 0) else 1
            total = total + np.tile(upload(p, x), TRIALS) + noise.words(k)
        sent[k - 1] = total.view(np.int64).reshape(TRIALS, -1) @ direction
    return column @ sent


def audit() -> float:
    p = parameters()
    assert p.release is not None
    moved = upload(p, 0).view(np.int64) - upload(p, 1).view(np.int64)
    direction = moved / np.square(p.release.shares(1).astype(float))
    return lower_bound(scores(p, 1, direction), scores(p, 0, direction), DELTA)


def test_the_canary_is_as_hidden_as_was_promised() -> None:
    assert audit() < EPSILON


def test_a_third_of_the_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "TRIALS", FEW)
    whole = PrivateRelease.shares
    monkeypatch.setattr(PrivateRelease, "shares", lambda self, parties: whole(self, parties) // 3)
    assert audit() > EPSILON


# step by step: the canary of round 1 is in all later responses too


def step_upload(p: Parameters, h: int, x: int, k: int) -> np.ndarray:
    """(P + d,) words of step h in round k of a site whose episode of the first round stayed in
    state x, and later ones in state 1; all are rewarded, and V is as large as it can be."""
    gram, b = np.zeros((1, STATES)), np.zeros((1, STATES))
    gram[0, x if k == 1 else 1] = 1.0
    b[0, x] += p.targets[h - 1]
    b[0, 1] += (k - 1) * p.targets[h - 1]
    return FixedPointSums(layout(p), p.scale_bits).words(Upload(h, gram, b))


class ManyTrials(StepwiseRelease):
    """The noise of all trials side by side."""

    def step_shares(self, h: int, parties: int) -> tuple[np.ndarray, np.ndarray]:
        gram, b = super().step_shares(h, parties)
        return np.tile(gram, TRIALS), np.tile(b, TRIALS)


def step_scores(p: Parameters, canary: int) -> np.ndarray:
    """(TRIALS,) the statistic of the likelihood ratio, of releases with this first episode."""
    assert isinstance(p.release, StepwiseRelease)
    sites = [StepNoise(new_noise_key(), m, ManyTrials(**vars_of(p.release)), SITES)
             for m in range(SITES)]  # fmt: skip
    found, column = np.zeros(TRIALS), white(p.release)
    for k in range(1, ROUNDS + 1):
        for h in range(H, 0, -1):
            total = np.zeros((2, TRIALS, STATES), np.uint64)
            for m, noise in enumerate(sites):
                drawn = noise.words(k, h).reshape(2, TRIALS, STATES)
                sent = step_upload(p, h, canary if m == 0 else 1, k).reshape(2, 1, STATES)
                total += drawn + sent
            ends = step_upload(p, h, 0, k).view(np.int64), step_upload(p, h, 1, k).view(np.int64)
            gram, b = (ends[0] - ends[1]).reshape(2, STATES).astype(float)
            if k == 1:
                first = gram
            sigma = p.release.step_shares(h, 1)
            weights = column[k - 1] * first / np.square(sigma[0].astype(float))
            found += total[0].view(np.int64) @ weights
            found += total[1].view(np.int64) @ (b / np.square(sigma[1].astype(float)))
    return found


def vars_of(release: StepwiseRelease) -> dict[str, object]:
    return {field.name: getattr(release, field.name) for field in fields(release)}


def step_audit() -> float:
    settings = Settings(
        n_agents=SITES, aggregation="secure", rounds=ROUNDS,
        privacy={"epsilon": EPSILON, "delta": DELTA, "colluders": 0},
    )  # fmt: skip
    p = settings.resolve(ProblemSize(ROUNDS, H, STATES, True))
    return lower_bound(step_scores(p, 1), step_scores(p, 0), DELTA)


def test_the_canary_is_hidden_step_by_step() -> None:
    assert step_audit() < EPSILON


def test_a_third_of_the_noise_is_caught_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "TRIALS", FEW)
    whole = StepwiseRelease._shared

    def third(self: StepwiseRelease, relative: np.ndarray, parties: int) -> np.ndarray:
        return whole(self, relative, parties) // 3

    monkeypatch.setattr(StepwiseRelease, "_shared", third)
    assert step_audit() > EPSILON
