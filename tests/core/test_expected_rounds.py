"""Rounds that are expected: the trigger asked of mean Gram matrices, without playing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedlsvi import FedLSVI
from fedlsvi.core.expected_rounds import expected_ends, mean_spectra
from fedlsvi.core.trigger import TOLERANCE, Trigger
from fedlsvi.envs import FiniteMDP

TRIGGERS = [
    Trigger(20.0, 400),
    Trigger(20.0, 400, log_cap=math.log1p(1 / 3)),
    Trigger(7.5, 400, min_round=5),
    Trigger(1.0, 400, rounds=9),
    Trigger(30.0, 400, rounds=25, log_cap=math.log(1.1)),
    Trigger(1.0, 400, growth=0.1),
]


def literal_ends(
    trigger: Trigger, spectra: np.ndarray, lam: float, present: float, before: float
) -> list[int]:
    """Episode after episode, with determinants."""
    ends, t, length = [], 0, 0
    while t < trigger.episodes:
        length += 1
        rule, last = trigger.rule(t), t + length
        log_ratio = 0.0
        for own in spectra:
            whole = np.diag(lam + (before + present * t) * own)
            grown = whole + length * np.diag(own)
            ratio = np.linalg.slogdet(grown)[1] - np.linalg.slogdet(whole)[1]
            log_ratio = max(log_ratio, ratio)
        log_ratio = max(log_ratio, 0.0) + TOLERANCE
        due = math.log(length) + log_ratio >= rule.log_gamma or log_ratio >= rule.log_cap
        fires = due and length >= rule.floor and last <= trigger.latest
        if fires or last == trigger.episodes:
            ends.append(last)
            t, length = last, 0
    return ends


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("before", [0.0, 40.0])
def test_ends_are_those_of_asking_after_every_episode(trigger: Trigger, before: float) -> None:
    spectra = np.random.default_rng(1).random((3, 4)) * np.array([1.0, 0.3, 0.05, 0.0])
    expected = literal_ends(trigger, spectra, 0.1, 3.0, before)
    assert expected_ends(trigger, spectra, 0.1, 3.0, before, 0).tolist() == expected
    some = expected[len(expected) // 2]
    rest = expected_ends(trigger, spectra, 0.1, 3.0, before, some).tolist()
    assert rest == [end for end in expected if end > some]


@pytest.mark.parametrize("settings", [{}, {"preset": "paper"}, {"min_round": 3}, {"rounds": 12}])
def test_where_all_episodes_are_alike_the_rounds_are_those_of_the_run(settings: dict) -> None:  # type: ignore[type-arg]
    """One state and one action: every Λ^loc is its mean."""
    world = FiniteMDP(np.ones((1, 1, 1)), np.full((1, 1), 0.5), horizon=3)
    run = FedLSVI(4, **settings).learn(world, 300, progress=False)
    p = run.parameters
    spectra = mean_spectra(run.gram[: p.matrices], p.lam, p.n_agents * 300)
    ends = expected_ends(p.trigger, spectra, p.lam, p.n_agents, 0.0, 0)
    assert ends.tolist() == [record.last for record in run.records]


def test_eigenvalues_are_those_of_the_mean() -> None:
    rng = np.random.default_rng(0)
    phi = rng.standard_normal((50, 3))
    gram = 0.2 * np.eye(3) + phi.T @ phi
    expected = np.linalg.eigvalsh(phi.T @ phi / 50)
    np.testing.assert_allclose(mean_spectra(gram[None], 0.2, 50)[0], expected, atol=1e-12)
    assert mean_spectra(np.array([[2.2, 0.2]]), 0.2, 4).tolist() == [[0.5, 0.0]]
