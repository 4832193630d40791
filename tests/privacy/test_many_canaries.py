"""An audit with thousands of canaries in one run, which are records of a log like any other.

Site 0 has one episode for each of many states, with one action or the other, as a coin falls; which
it was is the secret of that episode. The logs are read, counted, encoded, hidden and added by real
sites behind frames, and whoever sees the sums guesses every coin by the likelihood ratio. Episodes
of different states share no number that is sent, and no noise: each is a trial of its own.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from auditing import lower_bound
from fedlsvi import offline
from fedlsvi.core.stepwise_release import StepwiseRelease
from fedlsvi.privacy.sums import FixedPointSums
from fedlsvi.remote import site_noise
from repeats import repeats
from transports_over_frames import over_frames

CANARIES, SITES = 30_000, 3
RUNS = repeats(2, 20)
EPSILON, DELTA = 1.0, 1e-5
CLOSE = 0.6
"""The bound that 600,000 canaries reach."""


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of every site and run is another, and the same in every run of the test."""
    number = itertools.count()
    monkeypatch.setattr(site_noise, "new_noise_key", lambda: next(number).to_bytes(32, "little"))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The sums over all sites that the server reads: all that it gets."""
    sums: list[np.ndarray] = []
    total = FixedPointSums.total

    def read(self: FixedPointSums, replies: Any) -> np.ndarray:
        sums.append(total(self, replies))
        return sums[-1]

    monkeypatch.setattr(FixedPointSums, "total", read)
    return sums


def log(actions: np.ndarray) -> dict[str, np.ndarray]:
    """One rewarded episode of one step in each state."""
    n = len(actions)
    return {
        "episode": np.arange(n), "step": np.zeros(n, int), "observation": np.arange(n),
        "action": actions, "reward": np.ones(n), "terminated": np.ones(n, bool),
    }  # fmt: skip


def audit(seen: list[np.ndarray]) -> float:
    """The lower bound on ε of all runs together."""
    right, wrong = [], []
    for number in range(RUNS):
        seen.clear()
        coins = np.random.default_rng(number).integers(0, 2, CANARIES)
        others = [log(np.zeros(1, int)) for _ in range(SITES - 1)]
        run = offline(
            [log(coins), *others], horizon=1, n_states=CANARIES, n_actions=2, beta=0.1, lam=0.5,
            aggregation="secure", transport=over_frames(SITES), progress=False,
            privacy={"epsilon": EPSILON, "delta": DELTA, "colluders": 0},
        )  # fmt: skip
        release = run.parameters.release
        assert isinstance(release, StepwiseRelease)
        assert len({sums.tobytes() for sums in seen}) == 1  # for the guard, and for the model
        gram, b = seen[0].reshape(2, CANARIES, 2) @ [-1.0, 1.0]
        ratio = gram / release.sigma**2 + b / release.response_sigma(1) ** 2
        sign = 2 * coins - 1
        right.append(ratio * sign)
        wrong.append(-ratio * sign)
    return lower_bound(np.concatenate(wrong), np.concatenate(right), DELTA)


def test_canaries_are_as_hidden_as_was_promised(seen: list[np.ndarray]) -> None:
    """And hardly more: the audit would see ε = 1 if .6 had been promised."""
    bound = audit(seen)
    assert bound < EPSILON
    assert bound > repeats(0, 1) * CLOSE


def test_a_third_of_the_noise_is_caught(
    seen: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.RUNS", 1)
    whole = StepwiseRelease._shared
    monkeypatch.setattr(
        StepwiseRelease, "_shared", lambda self, relative, n: whole(self, relative, n) // 3
    )
    assert audit(seen) > EPSILON
