"""Which actions a log has seen often where states are vectors: by their features.

No two states need be the same there, so visits are counted in the directions of feature space. With
Λ = λI + Σφφᵀ over all rows of the log, whatever their step,

    n(x, a) = 1/‖φ(x, a)‖²_{Λ⁻¹} − λ/‖φ(x, a)‖²

is 0 for a feature that is orthogonal to all of the log, and n where the log has this very feature n
times and nothing else in its direction: with one-hot features it is the number of visits. Features
that share directions count for each other, as they do in the regression.
"""

from __future__ import annotations

import numpy as np

from fedlsvi.core.statistics import DenseFactor, factorise
from fedlsvi.errors import InvalidEnvironment
from fedlsvi.features.base import FeatureMap
from fedlsvi.logs.sources import Source
from fedlsvi.logs.transitions import Agent

RIDGE = 1e-3
"""λ of the counts; the same for every log, so that a mask depends on the log and features alone."""

SLACK = 1e-6
"""Of a visit: for rounding."""

ROWS = 1 << 13
"""Rows whose features are computed at a time."""


class SeenByFeature:
    """The mask allowed(h, states (n, s)) → bool (n, A) of one log, once its features are bound.

    As where states are counted: where no action was seen often enough, those that were seen most
    are allowed, and in a state in whose directions nothing was seen all of them.

    Args:
        source: The log.
        key: The agent's in it; None is all rows.
        at_least: How often is often enough.
    """

    def __init__(self, source: Source, key: Agent, at_least: int) -> None:
        self.source, self.key, self.at_least = source, key, at_least
        self._features: FeatureMap | None = None

    def bind(self, features: FeatureMap) -> None:
        """Read the log with these features."""
        gram = RIDGE * np.eye(features.dim)
        for rows in self.source.blocks():
            own = np.ones(len(rows), bool)
            if self.key is not None and rows.agent is not None:
                own = rows.agent == self.key
            states, actions = rows.state[own], rows.action[own]
            for at in range(0, len(states), ROWS):
                phi = features.chosen(states[at : at + ROWS], actions[at : at + ROWS])
                gram += phi.T @ phi
        factor = factorise(gram)
        assert isinstance(factor, DenseFactor)
        self._features, self._factor = features, factor

    def visits(self, states: np.ndarray) -> np.ndarray:
        """n(x, a) of these states (n, s) and all actions, (n, A)."""
        if self._features is None:
            raise InvalidEnvironment(
                'allowed is "seen", which counts by feature where states are vectors, but no '
                "features are bound: use it through a learner",
                code="needs-features",
            )
        phi = self._features(states)
        flat = phi.reshape(-1, self._features.dim)
        lengths, norms = (flat**2).sum(axis=1), (self._factor.whiten(flat) ** 2).sum(axis=1)
        found = np.zeros(len(flat))
        some = lengths > 0.0  # a feature of zeros is never seen
        found[some] = 1.0 / norms[some] - RIDGE / lengths[some]
        return found.reshape(phi.shape[:2])

    def __call__(self, h: int, states: np.ndarray) -> np.ndarray:
        visits = self.visits(np.asarray(states))
        mask: np.ndarray = visits >= self.at_least - SLACK
        rare = ~mask.any(axis=1)
        mask[rare] = visits[rare] >= visits[rare].max(axis=1, keepdims=True) - SLACK
        return mask
