"""How far each number of an observation ranges, so that features fit without tuning.

What a space bounds is known from its bounds, which are public. What it does not bound is seen in a
few episodes in which actions take turns: always the same ones, so that a map that is bound again is
the same map. Such widths say something about states (`FeatureMap.fitted`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

VAST = 1e18
"""A bound beyond ±VAST is none: Gymnasium writes the largest number of a type for ∞."""

EPISODES = 4
"""Episodes in which unbounded numbers are watched."""


class Widths(NamedTuple):
    """One for each number of an observation.

    Attributes:
        values: (s,), 1 where a number never changes.
        seen: Whether some of them come from episodes.
    """

    values: np.ndarray
    seen: bool


def widths_of(env: Any) -> Widths | None:
    """Those of an environment; None where it has neither bounds nor episodes for all numbers."""
    low, high = getattr(env, "low", None), getattr(env, "high", None)
    if low is None or high is None:
        low, high = np.full(env.state_dim, -np.inf), np.full(env.state_dim, np.inf)
    ends = np.stack([np.asarray(low, np.float64), np.asarray(high, np.float64)])
    bounded = (np.abs(ends) < VAST).all(axis=0)
    if not bounded.all():
        if not hasattr(env, "visited"):
            return None
        states = env.visited(EPISODES)
        watched = np.stack([states.min(axis=0), states.max(axis=0)])
        ends = np.where(bounded, ends, watched)
    values = ends[1] - ends[0]
    return Widths(np.where(values > 0.0, values, 1.0), not bool(bounded.all()))
