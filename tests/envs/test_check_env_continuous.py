"""What `check_env` finds in a custom continuous environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi.envs import ContinuousLinearMDP, ContinuousMDP, check_env
from fedlsvi.errors import InvalidEnvironment


class Still(ContinuousMDP):
    """A point that stays where it began, on [0, 1]; action 1 pays its place, action 0 half."""

    name, horizon, n_actions, state_dim = "Still", 4, 2, 1

    def reset(self, u: Any, agents: Any) -> Any:
        return u.copy()

    def step(self, h: int, x: Any, a: Any, u: Any) -> Any:
        return x[:, 0] * (0.5 + 0.5 * a), x.copy()

    def optimal_values_at(self, x: Any) -> Any:
        return 4.0 * x[:, 0]

    def policy_values_at(self, policy: Any, x: Any) -> Any:
        return sum(x[:, 0] * (0.5 + 0.5 * policy(h, x)) for h in range(1, 5))

    def greedy_policy(self, h: int, x: Any) -> Any:
        return np.ones(len(x), np.int64)


def changed(**methods: Any) -> ContinuousMDP:
    """Still, but for these."""
    return type("Changed", (Still,), methods)()


def reset(give: Callable[[Any], Any]) -> dict[str, Any]:
    return {"reset": lambda self, u, agents: give(u)}


def step(give: Callable[[Any, Any], Any]) -> dict[str, Any]:
    return {"step": lambda self, h, x, a, u: give(x[:, 0] * (0.5 + 0.5 * a), x)}


def value(give: Callable[[Any], Any]) -> dict[str, Any]:
    return {"policy_values_at": lambda self, policy, x: give(x[:, 0])}


def test_what_keeps_its_promises_passes() -> None:
    check_env(Still())
    for initial in ("uniform", 0.3):
        check_env(ContinuousLinearMDP(5, 3, 6, seed=2, initial=initial))


def test_only_what_all_agents_share_is_asked_of_a_reset() -> None:
    check_env(changed(reset=lambda self, u, agents: (u + 0.01 * agents[:, None]) % 1.0))


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        (reset(lambda u: np.random.rand(len(u), 1)), ("bad-reset",)),  # noqa: NPY002
        (reset(lambda u: u / len(u)), ("bad-reset",)),
        (reset(lambda u: u - u.min()), ("bad-reset",)),
        (reset(lambda u: u * np.nan), ("bad-reset",)),
        (reset(lambda u: u[:, 0]), ("bad-reset", "(64,)", "(64, 1)")),
        (reset(lambda u: u.tolist()), ("bad-reset",)),
        (reset(lambda u: u.astype(object)), ("bad-reset",)),
        (reset(lambda u: None), ("bad-reset",)),
        (step(lambda r, x: None), ("bad-step",)),
        (step(lambda r, x: (r, x, {})), ("bad-step",)),
        (step(lambda r, x: (r.tolist(), x)), ("bad-step",)),
        (step(lambda r, x: (r, x.tolist())), ("bad-step",)),
        (step(lambda r, x: (r * np.nan, x)), ("bad-step",)),
        (step(lambda r, x: (r, x * np.inf)), ("bad-step",)),
        (step(lambda r, x: (r + 1.0, x)), ("bad-step",)),
        (step(lambda r, x: (r / len(x), x.copy())), ("bad-step",)),
        (value(lambda x: 0.0 * x), ("bad-policy_values_at", "policy_values_at")),
        (value(lambda x: 2.0 * x), ("bad-policy_values_at", "policy_values_at")),
        (value(lambda x: 5.0 * x), ("bad-policy_values_at", "policy_values_at")),
        (value(lambda x: x.tolist()), ("bad-policy_values_at", "policy_values_at")),
        (value(lambda x: x * np.nan), ("bad-policy_values_at", "policy_values_at")),
        (
            {"optimal_values_at": lambda self, x: np.full(len(x), 4.0)},
            ("bad-greedy_policy", "greedy_policy"),
        ),
        ({"optimal_values_at": lambda self, x: 9.0 * x[:, 0]}, ("bad-optimal_values_at",)),
        (
            {"optimal_values_at": ContinuousMDP.optimal_values_at},
            ("bad-policy_values_at", "policy_values_at", "optimal_values_at"),
        ),
        ({"state_dim": 0}, ("bad-state_dim", "state_dim")),
        ({"draws_per_step": None}, ("bad-draws_per_step", "draws_per_step")),
        ({"name": None}, ("bad-name",)),
    ],
)
def test_a_broken_promise_is_named(methods: dict[str, Any], message: tuple[str, ...]) -> None:
    with refused(InvalidEnvironment, *message):
        check_env(changed(**methods))


def test_a_value_that_is_a_little_off_in_a_random_world_is_noticed() -> None:
    """One step too few of six: beyond what 2,048 episodes leave open."""

    class Short(ContinuousLinearMDP):
        def policy_values_at(self, policy: Any, x: np.ndarray) -> np.ndarray:
            return super().policy_values_at(policy, x) * 5.0 / 6.0

    check_env(ContinuousLinearMDP(5, 3, 6))
    with refused(InvalidEnvironment, "bad-policy_values_at", "policy_values_at"):
        check_env(Short(5, 3, 6))
