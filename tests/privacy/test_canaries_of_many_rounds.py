"""An audit of a whole run: canaries are records, and rounds of episodes follow them.

In one trip, rounds bring sums whose noise is correlated: what a round brings takes back part of
what earlier ones brought (`core.factorisation`). So whoever sees all rounds knows more about the
first one than its own upload says. Each canary is an episode in a state of its own, with one action
or the other at both steps, as a coin falls. Records go the way of all records, to sites behind
frames; episodes are played elsewhere. The auditor makes the noise of all rounds independent, adds
up what is left of the first in each of them, and guesses every coin by the likelihood ratio.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from auditing import lower_bound
from fedlsvi import FedLSVI
from fedlsvi.core.private_release import PrivateRelease
from fedlsvi.envs import FiniteMDP
from fedlsvi.features import OneHot
from fedlsvi.privacy.sums import FixedPointSums
from fedlsvi.remote import site_noise
from repeats import repeats
from transports_over_frames import over_frames

CANARIES, H, A, SITES, ROUNDS = 100, 2, 2, 3, 4
RUNS = repeats(5, 300)
ENOUGH = 40
"""Runs that catch a third of the noise."""
EPSILON, DELTA = 1.0, 1e-5
S = CANARIES + 1
"""States: one for each canary, and one in which episodes are played."""


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of every site and run is another, and the same in every run of the test."""
    number = itertools.count()
    monkeypatch.setattr(site_noise, "new_noise_key", lambda: next(number).to_bytes(32, "little"))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The sums over all sites that the server reads, round by round."""
    sums: list[np.ndarray] = []
    total = FixedPointSums.total

    def read(self: FixedPointSums, replies: Any) -> np.ndarray:
        found = total(self, replies)
        if not sums or not np.array_equal(found, sums[-1]):  # for the guard, and for the model
            sums.append(found)
        return found

    monkeypatch.setattr(FixedPointSums, "total", read)
    return sums


def world() -> FiniteMDP:
    """Nobody leaves a state, and all episodes begin in the last one."""
    stay = np.repeat(np.eye(S)[:, None, :], A, axis=1)
    return FiniteMDP(np.stack([stay] * H), np.ones((H, S, A)), initial=np.eye(S)[-1])


def log(states: np.ndarray, actions: np.ndarray) -> dict[str, np.ndarray]:
    """One rewarded episode in each of these states, with one action."""
    n = len(states)
    return {
        "episode": np.repeat(np.arange(n), H), "step": np.tile(np.arange(H), n),
        "observation": np.repeat(states, H), "action": np.repeat(actions, H),
        "reward": np.ones(n * H), "next_observation": np.repeat(states, H),
        "terminated": np.zeros(n * H, bool),
    }  # fmt: skip


def parts(words: np.ndarray) -> np.ndarray:
    """(CANARIES, A, 2·H + 1) of what is sent: Λ, Σφr and N at the pairs of each canary."""
    gram, u, table = np.split(words, [H * S * A, 2 * H * S * A])
    both = [part.reshape(H, S, A)[:, :-1] for part in (gram, u)]
    # one column more, for the ends of records
    stays = table.reshape(H - 1, S, A, S + 1)[:, np.arange(S), :, np.arange(S)].transpose(1, 0, 2)
    found: np.ndarray = np.concatenate([*both, stays[:, :-1]]).transpose(1, 2, 0)
    return found


def audit(seen: list[np.ndarray]) -> float:
    """The lower bound on ε of all runs together."""
    right, wrong = [], []
    for number in range(RUNS):
        seen.clear()
        coins = np.random.default_rng(number).integers(0, A, CANARIES)
        elsewhere = log(np.array([S - 1]), np.array([0]))
        run = FedLSVI(
            SITES, exchange="one-trip", aggregation="secure", rounds=ROUNDS, policy="explore",
            stationary=False, privacy={"epsilon": EPSILON, "delta": DELTA, "colluders": 0},
        ).learn(
            world(), 8, seed=number, features=OneHot(), progress=False,
            data=[log(np.arange(CANARIES), coins), elsewhere, elsewhere],
            transport=over_frames(SITES),
        )  # fmt: skip
        release = run.parameters.release
        assert isinstance(release, PrivateRelease)
        assert len(seen) == release.rounds == ROUNDS + 1
        encoder = np.linalg.inv(np.ldexp(release.factors.mixing.astype(float), -16))
        first = encoder[:, 0] @ encoder  # what is in each round of the first, once noise is white
        sigma = parts(np.ldexp(published(release), -run.parameters.scale_bits))
        sent = np.tensordot(first, np.stack([parts(words) for words in seen]), 1)
        ratio = (np.diff(sent, axis=1)[:, 0] / sigma[:, 0] ** 2).sum(axis=1)
        sign = 2 * coins - 1
        right.append(ratio * sign)
        wrong.append(-ratio * sign)
    return lower_bound(np.concatenate(wrong), np.concatenate(right), DELTA)


SHARES = PrivateRelease.shares


def published(release: PrivateRelease) -> np.ndarray:
    """(words,) σ of the noise of all sites together in units of the grid, which all know."""
    return SHARES(release, 1).astype(float)


def test_canaries_of_the_first_of_many_rounds_are_hidden(seen: list[np.ndarray]) -> None:
    assert audit(seen) < EPSILON


def test_a_third_of_the_noise_of_many_rounds_is_caught(
    seen: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.RUNS", ENOUGH)
    monkeypatch.setattr(PrivateRelease, "shares", lambda self, parties: SHARES(self, parties) // 3)
    assert audit(seen) > EPSILON
