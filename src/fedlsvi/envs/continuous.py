"""Environments on continuous states."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.envs.base import Environment, no_features
from fedlsvi.errors import InvalidEnvironment
from fedlsvi.features.base import FeatureMap

Policy = Callable[[int, np.ndarray], np.ndarray]
"""policy(h, x (n, s)) → actions int (n,), h = 1..H."""

VALUES = ("optimal_values_at", "policy_values_at")
"""Methods of an environment that knows V* and V^π."""


class ContinuousMDP(Environment):
    """An MDP on ℝ^s, stepped in batches.

    A subclass sets `name`, `horizon`, `n_actions` and `state_dim`, and writes `reset` and `step`.
    Both are pure and treat every row alone: what one row gives does not depend on the others in the
    batch. The rest may be left out: without default features, give `features=` to `learn`;
    without V* and V^π, a run measures no regret, but the mean return of every round.
    """

    state_dim: int

    @abstractmethod
    def reset(self, u: np.ndarray, agents: np.ndarray) -> np.ndarray:
        """First states (n, s) from uniforms (n, draws_at_reset); row i belongs to agents[i]."""

    @abstractmethod
    def step(
        self, h: int, x: np.ndarray, a: np.ndarray, u: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rewards (n,) and next states (n, s) from states, actions and uniforms (n, draws)."""

    given_mask: Policy | None = None
    """The mask that `restrict` gave."""

    def actions(self, h: int, x: np.ndarray) -> np.ndarray:
        """Which actions are allowed at step h in the states x (n, s): booleans (n, A), one true in
        each row at least. Written only where not all are: V* is then that of the allowed ones."""
        raise NotImplementedError

    @property
    def allowed(self) -> Policy | None:
        """The checked mask; None where every action is allowed."""
        if self.given_mask is not None:
            return self._given
        return self._own if self.writes("actions") else None

    def _own(self, h: int, x: np.ndarray) -> np.ndarray:
        return checked_mask(self, self.actions(h, x), h, x)

    def _given(self, h: int, x: np.ndarray) -> np.ndarray:
        assert self.given_mask is not None
        return checked_mask(self, self.given_mask(h, x), h, x)

    def default_features(self) -> FeatureMap:
        raise no_features(f"{self.name} has states of dimension {self.state_dim}")

    def optimal_values_at(self, x: np.ndarray) -> np.ndarray:
        """V*₁ (n,) at the states x (n, s). Where there is a method `greedy_policy(h, x)` too,
        `check_env` compares V* with its value."""
        raise self._unknown("V*")

    def policy_values_at(self, policy: Policy, x: np.ndarray) -> np.ndarray:
        """V^π₁ (n,) at the states x (n, s)."""
        raise self._unknown("V^π")

    @property
    def knows_values(self) -> bool:
        """Whether both methods above are written, so that regret can be measured."""
        return all(self.writes(name) for name in VALUES)

    def writes(self, name: str) -> bool:
        """Whether a subclass writes the method of this name itself."""
        return getattr(type(self), name) is not getattr(ContinuousMDP, name)

    def _unknown(self, what: str) -> InvalidEnvironment:
        return InvalidEnvironment(
            f"{self.name} does not know {what}: define {' and '.join(VALUES)}, or use it without "
            "regret",
            code="unknown-values",
        )


def checked_mask(env: Environment, mask: Any, h: int, x: np.ndarray) -> np.ndarray:
    """What a function of states says is allowed, bool (n, A), one action in each row at least."""
    found = np.asarray(mask)
    if found.shape != (len(x), env.n_actions) or found.dtype.kind not in "biu":
        raise InvalidEnvironment(
            f"the mask of {env.name} has shape {found.shape} and type {found.dtype} for "
            f"{plural(len(x), 'state')}: return booleans of shape {(len(x), env.n_actions)}",
            code="bad-allowed",
        )
    found = found.astype(bool)
    if not found.any(axis=1).all():
        k = int(np.flatnonzero(~found.any(axis=1))[0])
        raise InvalidEnvironment(
            f"{env.name} allows no action in state {np.round(x[k], 6).tolist()} at step {h}: "
            "allow at least one",
            code="no-action",
        )
    return found
