"""State aggregation: states of one group share their features, e_(group, a)."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.checks import integer, plural
from fedlsvi.errors import InvalidFeatures
from fedlsvi.features.base import Bindable, FeatureMap, unbound
from fedlsvi.features.tabular import TableFeatures, finite_states, states_of
from fedlsvi.features.validation import count


class AggregateFeatures(FeatureMap):
    """φ(x,a) = e_{g(x)·A + a}: one-hot over groups of states, d = groups·A.

    Args:
        groups: The group of every state, (S,); or the coordinate of every pair, (S, A), where
            actions may share one too (those of an absorbing state, say); or a number of groups of
            neighbouring states.
    """

    one_hot = nonnegative = simplex = True

    def __init__(self, groups: Any = 4) -> None:
        array = np.asarray(groups)
        if array.dtype.kind not in "iu" or array.ndim > 2 or not array.size or array.min() < 0:
            raise InvalidFeatures(
                "groups must be numbers from 0, one per state, (S,), or one per pair, (S, A); got "
                f"shape {array.shape} and type {array.dtype}",
                code="bad-groups",
            )
        if array.ndim == 0:
            count("groups", int(array))
        self.groups = array.astype(np.int64)
        self._given = {"groups": groups}

    @classmethod
    def by_clusters(
        cls, points: Any, n: int, seed: int = 0, absorbing: Any = ()
    ) -> AggregateFeatures:
        """Group states by k-means on their descriptions, each scaled to variance 1.

        Args:
            points: Descriptions, (S, p).
            n: How many groups.
            seed: Of k-means.
            absorbing: States that make one more group.
        """
        return cls(cluster(points, n, seed, absorbing))

    def __call__(self, states: np.ndarray) -> np.ndarray:
        raise unbound("aggregate")

    def bind(self, env: Bindable) -> TableFeatures:
        n_states, n_actions = finite_states("aggregate", env), env.n_actions
        index = self.groups
        if index.ndim == 0:
            index = np.arange(n_states) * min(int(index), n_states) // n_states
        if index.ndim == 1:
            index = index[:, None] * n_actions + np.arange(n_actions)
        if index.shape != (n_states, n_actions):
            raise InvalidFeatures(
                f"groups have shape {self.groups.shape}, but {env.name} has {states_of(env)} and "
                f"{plural(n_actions, 'action')}: give one number per state, or one per state and "
                "action",
                code="bad-groups",
            )
        # unused coordinates would only cost time
        _, index = np.unique(index, return_inverse=True)
        index = index.reshape(n_states, n_actions)
        return TableFeatures(np.eye(int(index.max()) + 1)[index])


def cluster(points: Any, n: int, seed: int = 0, absorbing: Any = ()) -> np.ndarray:
    """Groups (S,) of states by SciPy's k-means; the absorbing states are one more group."""
    from scipy.cluster.vq import kmeans2, whiten

    given = np.asarray(points, np.float64)
    if given.ndim != 2 or not np.isfinite(given).all():
        raise InvalidFeatures(
            f"points must be finite numbers (S, p), got shape {given.shape}", code="bad-points"
        )
    free = np.setdiff1d(np.arange(len(given)), np.asarray(absorbing, np.int64))
    different = len(np.unique(given[free], axis=0))
    hint = "there are no more distinct points than that"
    n = integer("n", n, 1, hint, most=different, error=InvalidFeatures)
    groups = np.full(len(given), n, np.int64)
    if n == 1:
        groups[free] = 0
        return groups
    varying = given[free][:, np.ptp(given[free], axis=0) > 0.0]
    groups[free] = kmeans2(whiten(varying), n, minit="++", rng=np.random.default_rng(seed))[1]
    return groups
