"""The guard's bounds follow from the numbers in force, the features, and what protects uploads."""

from __future__ import annotations

from typing import Any

import pytest

import problems
from fedlsvi import FedLSVI
from fedlsvi.groups import ProblemSize
from fedlsvi.remote.bounds import Bounds
from fedlsvi.remote.endpoint_factory import guard_for
from guarded import GAMMA, D, H, M, T


@pytest.mark.parametrize(("options", "y_max"), [
    ({}, [3.0, 2.0, 1.0]), ({"value_range": 1.5}, [2.5, 2.0, 1.0]),
    ({"preset": "paper"}, [4.0, 4.0, 1.0]),
    ({"preset": "paper", "value_range": 1.5}, [2.5, 2.5, 1.0]),
])  # fmt: skip
def test_targets_are_a_reward_and_the_next_steps_ceiling(
    options: dict[str, Any], y_max: list[float]
) -> None:
    """H = 3; ceilings are (3, 2, 1) in practice and (3, 3, 3) as printed, at most value_range."""
    settings = FedLSVI(M, gamma=GAMMA, overshoot="keep", **options).settings
    bounds = Bounds.of(settings.resolve(ProblemSize(T, H, D, one_hot=False)), nonnegative=True)
    assert bounds.y_max.tolist() == y_max
    assert (bounds.trigger.gamma, bounds.episodes, bounds.overshoot) == (GAMMA, T, "keep")
    assert (bounds.nonnegative, bounds.simplex) == (True, False)
    assert Bounds.of(settings.resolve(ProblemSize(T, H, D, one_hot=False)), simplex=True).simplex


@pytest.mark.parametrize(("problem", "shrink", "flags"), [
    (problems.simplex(), 1.0, (True, True)), (problems.simplex(), 0.5, (True, False)),
    (problems.deterministic(), 1.0, (False, False)), (problems.one_hot(), 1.0, (True, True)),
], ids=["simplex", "non-negative", "signed", "one-hot"])  # fmt: skip
def test_the_guard_of_a_plan_knows_its_features(problem: Any, shrink: float, flags: Any) -> None:
    phi = None if shrink == 1.0 else shrink * problem.phi
    session = FedLSVI(M).prepare(problem.envs, T, features=phi)
    plan, guard = session.plan, guard_for(session.plan)
    session.close()
    assert (guard.bounds.nonnegative, guard.bounds.simplex) == flags
    assert (guard.layout, guard.bounds.episodes) == (plan.layout, T)
