"""An environment as far as feature maps look at it."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.features import FeatureMap


class Plane:
    """A state of `state_dim` numbers in a box."""

    name, n_actions = "Plane", 3

    def __init__(self, low: Any = None, high: Any = None, state_dim: int = 2) -> None:
        self.state_dim = state_dim
        if low is not None:
            self.low, self.high = np.full(state_dim, low), np.full(state_dim, high)

    def default_features(self) -> FeatureMap:
        raise AssertionError("whoever binds a map does not ask for another one")

    def probe(self, n: int) -> np.ndarray:
        return np.zeros((n, self.state_dim))
