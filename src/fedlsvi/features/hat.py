"""Hat functions on equally spaced knots: the simplex features of the continuous linear MDP."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.errors import InvalidFeatures
from fedlsvi.features.base import Bindable, FeatureMap, unbound
from fedlsvi.features.validation import count


class HatFeatures(FeatureMap):
    """φ_i(x,a) = max(0, 1 − |(d−1)·T_a(x) − i|) with T_a(x) = 1 − |2·frac(x + a/A) − 1|.

    x ∈ [0, 1]. Non-negative, sums to one, two non-zero entries: ‖φ‖₂ ≤ ‖φ‖₁ = 1.

    Args:
        dim: d, the number of knots.
        n_actions: A; 0 leaves it to `bind`.
    """

    nonnegative = simplex = True
    state_dim = 1

    def __init__(self, dim: int = 8, n_actions: int = 0) -> None:
        self.dim, self.n_actions = count("dim", dim, 2), count("n_actions", n_actions, 0)

    def __call__(self, states: np.ndarray) -> np.ndarray:
        phi = np.empty((len(states), self.n_actions, self.dim))
        self.fill(states, phi)
        return phi

    def fill(self, states: np.ndarray, out: np.ndarray) -> None:
        from fedlsvi.features.hat_kernels import fill_hat

        if not self.n_actions:
            raise unbound("hat")
        _check_inside(states, fill_hat(states, out))

    def chosen(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        from fedlsvi.features.hat_kernels import fill_chosen

        rows = np.empty((len(states), self.dim))
        _check_inside(states, fill_chosen(states, actions, self.n_actions, rows))
        return rows

    def bind(self, env: Bindable) -> HatFeatures:
        if getattr(env, "state_dim", None) != 1:
            raise InvalidFeatures(
                f"hat features need a state in [0, 1], but {env.name} has a different state "
                "space: give one-hot or table features, or a callable",
                code="needs-unit-interval",
            )
        ends = (getattr(env, "low", None), 0.0), (getattr(env, "high", None), 1.0)
        low, high = (np.ravel(usual if own is None else own) for own, usual in ends)
        if not (low[0] >= 0.0 and high[0] <= 1.0):
            raise InvalidFeatures(
                f"hat features need a state in [0, 1], but that of {env.name} is in "
                f"[{low[0]:g}, {high[0]:g}]: scale it, or give rbf, tile or Fourier features",
                code="needs-unit-interval",
            )
        if self.n_actions not in (0, env.n_actions):
            raise InvalidFeatures(
                f"HatFeatures has {plural(self.n_actions, 'action')}, but {env.name} has "
                f"{env.n_actions}: leave n_actions out",
                code="bad-n_actions",
            )
        return HatFeatures(self.dim, env.n_actions)

    def spec(self) -> dict[str, Any]:
        """Registered name and parameters, ready for JSON."""
        return {"name": "hat", "params": {"dim": self.dim}}


def _check_inside(states: np.ndarray, row: int) -> None:
    """Refuse the state in this row, which is outside [0, 1]; −1 is none."""
    if row >= 0:
        raise InvalidFeatures(
            f"hat features need a state in [0, 1], got {states[row, 0]}: scale the states, "
            "or give rbf, tile or Fourier features",
            code="needs-unit-interval",
        )
