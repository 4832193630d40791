"""Low-rank features read off a known model. They know P, so they are marked privileged."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.checks import choice, integer
from fedlsvi.errors import InvalidFeatures
from fedlsvi.features.base import Bindable, FeatureMap, unbound
from fedlsvi.features.tabular import TableFeatures, finite_states
from fedlsvi.features.validation import count


class LowRankFeatures(FeatureMap):
    """φ_i(x,a) = P(next state in cluster i | x, a): simplex, d clusters of next states.

    P(·|x,a) ≈ Σ_i φ_i(x,a) μ_i where clusters hold similar states. A reward for entering a state
    counts, so states that pay differently are kept apart.

    Args:
        dim: d, the number of clusters.
        by: "rows" compares transition probabilities and rewards of states; "values" compares their
            optimal values, and so knows the solution too.
        seed: Of k-means.
    """

    nonnegative = simplex = privileged = True

    def __init__(self, dim: int = 16, by: str = "rows", seed: int = 0) -> None:
        self._given = {"dim": dim, "by": by, "seed": seed}
        self.n_clusters, self.seed = count("dim", dim), count("seed", seed, 0)
        self.by = choice("by", by, ("rows", "values"), error=InvalidFeatures)

    def __call__(self, states: np.ndarray) -> np.ndarray:
        raise unbound("low-rank")

    def bind(self, env: Bindable) -> TableFeatures:
        n_states = finite_states("low-rank", env)
        if not hasattr(env, "P"):
            raise InvalidFeatures(
                f"low-rank features need a known model, but {env.name} is a black box: use other "
                "features, such as fourier",
                code="model-unknown",
            )
        P = np.asarray(env.P).mean(axis=0)
        groups = np.eye(self.n_clusters)[self._groups(env, P, n_states)]
        bound = TableFeatures(P @ groups)
        bound.privileged = True
        return bound

    def _groups(self, env: Any, P: np.ndarray, n_states: int) -> np.ndarray:
        from scipy.cluster.vq import kmeans2

        hint = "at most the number of states"
        integer("dim", self.n_clusters, 1, hint, most=n_states, error=InvalidFeatures)
        if self.by == "values":
            points = np.asarray(env.optimal_values()[:-1]).T
        else:
            # where a state leads on average, in the directions in which states differ most
            mean = P.mean(axis=1)
            left, size, _ = np.linalg.svd(mean - mean.mean(axis=0), full_matrices=False)
            points = left[:, :20] * size[:20]
        spread = points.std() or 1.0
        moving = getattr(env, "reward_on_transition", None)
        paid = np.zeros(n_states)
        if moving is not None:
            mass = P.sum(axis=(0, 1))
            earned = (P * np.asarray(moving).mean(axis=0)).sum(axis=(0, 1))
            paid = np.divide(earned, mass, out=paid, where=mass > 0.0)
        # far apart enough that no cluster mixes states that pay differently
        columns = np.column_stack((points / spread, paid * 10.0 * np.sqrt(points.shape[1])))
        best, found = np.inf, np.zeros(n_states, np.int64)
        rng = np.random.default_rng(self.seed)
        for _ in range(8):  # k-means finds a local minimum: the best of a few
            centres, labels = kmeans2(columns, self.n_clusters, minit="++", rng=rng)
            inertia = float(((columns - centres[labels]) ** 2).sum())
            if inertia < best:
                best, found = inertia, labels
        return found

    def spec(self) -> dict[str, Any]:
        """Registered name and parameters, ready for JSON."""
        params = {"dim": self.n_clusters, "by": self.by, "seed": self.seed}
        return {"name": "low-rank", "params": params}
