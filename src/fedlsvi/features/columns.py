"""Maps made of others: of states that carry their mask, and of the first features alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedlsvi.features.base import Bindable, FeatureMap
from fedlsvi.features.tabular import OneHot, TableFeatures


class WithoutMask(FeatureMap):
    """φ of the first s numbers of a state (n, s + A).

    A black box tells with each observation which actions it allows. Kept in the state, the mask is
    there wherever the state is: in buffers, checkpoints and when old states are relabelled.

    Args:
        features: The bound map on s numbers.
        state_dim: s.
    """

    def __init__(self, features: FeatureMap, state_dim: int) -> None:
        self.features, self.state_dim = features, state_dim
        self.dim, self.n_actions = features.dim, features.n_actions
        self.one_hot, self.nonnegative = features.one_hot, features.nonnegative
        self.simplex, self.privileged = features.simplex, features.privileged
        self.made_as = features.spec()

    def _seen(self, states: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(states[:, : self.state_dim])

    def __call__(self, states: np.ndarray) -> np.ndarray:
        return self.features(self._seen(states))

    def checked(self, states: np.ndarray) -> np.ndarray:
        return self.features.checked(self._seen(states))

    def fill(self, states: np.ndarray, out: np.ndarray) -> None:
        self.features.fill(self._seen(states), out)

    def chosen(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        return self.features.chosen(self._seen(states), actions)

    def shared(self) -> Callable[[np.ndarray], np.ndarray] | None:
        psi = self.features.shared()
        return None if psi is None else lambda states: psi(self._seen(states))

    def bind(self, env: Bindable) -> FeatureMap:
        return self

    def allowed(self, h: int, states: np.ndarray) -> np.ndarray:
        """The masks (n, A) that the states carry."""
        mask: np.ndarray = states[:, self.state_dim :] > 0.5
        return mask


class FirstFeatures(FeatureMap):
    """The first `dim` of the features of a bound map: those that all agents share."""

    def __init__(self, features: FeatureMap, dim: int) -> None:
        self.features, self.dim, self.n_actions = features, dim, features.n_actions
        self.nonnegative, self.privileged = features.nonnegative, features.privileged

    def __call__(self, states: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(self.features(states)[..., : self.dim])

    def bind(self, env: Bindable) -> FeatureMap:
        return self


def first_features(features: FeatureMap, dim: int) -> FeatureMap:
    """The first `dim` features of a bound map; a table stays a table."""
    if isinstance(features, TableFeatures | OneHot):
        return TableFeatures(features.table[:, :, :dim])
    return FirstFeatures(features, dim)
