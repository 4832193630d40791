"""What five sums of each agent and step say about a model."""

from __future__ import annotations

import numpy as np
import pytest

from fedlsvi.core.model_fit import FIT, NOTABLE, SURE, explained, shifted_agent, shifted_step

TOPS = np.array([3.0, 2.0, 1.0])


def sums(y: np.ndarray, off: np.ndarray) -> np.ndarray:
    """Of targets and residuals (M, H, n)."""
    parts = (np.full(y.shape[:2], y.shape[2]), y.sum(2), (y**2).sum(2), off.sum(2), (off**2).sum(2))
    return np.stack(parts, axis=2).astype(float)


def noise(agents: int = 4, n: int = 400, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, 0.3, (agents, 3, n))


def test_residuals_of_mean_zero_are_no_shift() -> None:
    fit = sums(noise() + 1.0, noise())
    assert shifted_step(fit, TOPS) is None
    assert shifted_agent(fit, TOPS) is None


def test_the_step_and_the_agent_that_are_off_are_named() -> None:
    step, agent = noise(), noise()
    step[:, 1] += 0.2
    agent[2] -= 0.2
    found = shifted_step(sums(step, step), TOPS)
    assert found is not None
    assert found.group == 2
    assert found.mean == pytest.approx(0.2, abs=0.03)
    assert found.most == 2.0
    other = shifted_agent(sums(agent, agent), TOPS)
    assert other is not None
    assert other.group == 2
    assert other.mean < 0.0


def test_a_shift_must_be_sure_and_must_matter() -> None:
    """By hand: 100 residuals of size s that are all alike have z = 10 whatever s is."""
    alike = np.zeros((1, 3, 100))
    alike[0, 2] = 0.9 * NOTABLE
    assert shifted_step(sums(alike, alike), TOPS) is None  # sure, and too small to matter
    alike[0, 2] = 1.1 * NOTABLE
    found = shifted_step(sums(alike, alike), TOPS)
    assert found is not None
    assert found.z == pytest.approx(10.0)
    few = alike[:, :, : int(SURE**2)]
    assert shifted_step(sums(few, few), TOPS) is None  # z = 6 is not above 6


def test_one_agent_has_nobody_to_differ_from() -> None:
    off = noise(1) + 1.0
    assert shifted_agent(sums(off, off), TOPS) is None


def test_explained_is_r_squared_within_steps() -> None:
    """Targets that differ from step to step alone vary within none."""
    signal, rest = noise(seed=1), noise(seed=2)
    y = signal + rest + np.array([5.0, 0.0, -5.0])[None, :, None]
    assert explained(sums(y, rest)) == pytest.approx(0.5, abs=0.05)
    assert explained(sums(y, np.zeros_like(y))) == 1.0
    assert explained(sums(np.ones_like(y), np.zeros_like(y))) is None
    assert explained(np.zeros((2, 3, FIT))) is None
