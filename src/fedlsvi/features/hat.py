"""Hat functions on equally spaced knots: the simplex features of the continuous linear MDP."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.errors import InvalidFeatures
from fedlsvi.features.base import Bindable, FeatureMap


class HatFeatures(FeatureMap):
    """φ_i(x,a) = max(0, 1 − |(d−1)·T_a(x) − i|) with T_a(x) = 1 − |2·frac(x + a/A) − 1|.

    x ∈ [0, 1]. Non-negative, sums to one, two non-zero entries: ‖φ‖₂ ≤ ‖φ‖₁ = 1. `n_actions` may be
    left to `bind`.
    """

    nonnegative = simplex = True
    state_dim = 1

    def __init__(self, dim: int = 8, n_actions: int = 0) -> None:
        if isinstance(dim, bool) or not isinstance(dim, int | np.integer) or dim < 2:
            raise InvalidFeatures(f"dim must be an integer of at least 2 knots, got {dim!r}")
        self.dim, self.n_actions = int(dim), int(n_actions)

    def __call__(self, states: np.ndarray) -> np.ndarray:
        phi = np.empty((len(states), self.n_actions, self.dim))
        self.fill(states, phi)
        return phi

    def fill(self, states: np.ndarray, out: np.ndarray) -> None:
        from fedlsvi.features.tent import fill_hat

        if not self.n_actions:
            raise InvalidFeatures("HatFeatures is not bound: call .bind(env) first")
        fill_hat(states, out)

    def chosen(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        from fedlsvi.features.tent import fill_chosen

        rows = np.empty((len(states), self.dim))
        fill_chosen(states, actions, self.n_actions, rows)
        return rows

    def bind(self, env: Bindable) -> HatFeatures:
        if getattr(env, "state_dim", None) != 1:
            raise InvalidFeatures(
                f"hat features need a state in [0, 1], {env.name} has another state space: "
                "give one-hot or table features, or a callable"
            )
        if self.n_actions not in (0, env.n_actions):
            raise InvalidFeatures(
                f"HatFeatures has {self.n_actions} actions, {env.name} has {env.n_actions}: "
                "leave n_actions out"
            )
        return HatFeatures(self.dim, env.n_actions)

    def spec(self) -> dict[str, Any]:
        """Registered name and parameters, ready for JSON."""
        return {"name": "hat", "params": {"dim": self.dim}}
