"""What the server knows about the problem, by which it judges what agents send."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.core.trigger import Trigger


@dataclass(frozen=True)
class Facts:
    """What the server knows about the problem.

    Attributes:
        trigger: When rounds end.
        episodes, overshoot: As in the settings.
        y_max: (H,) the largest target at each step.
        nonnegative: Whether no feature is negative.
        simplex: Whether the features of every state and action sum to one.
        steps: Vectors that an episode puts into one Gram matrix: 1, or H where steps share it.
        partial: Whether an agent may have fewer episodes than the round, or episodes that end
            early and add nothing after that, as logs have.
        waits: Whether increments may wait for a later round: under a floor, where episodes end
            early.
        logged: Episodes of the longest log that an agent begins with; 0 where there is no round of
            logs.
        prior: (H,) the largest wᵀΛw that a model known before can have by itself.
    """

    trigger: Trigger
    episodes: int
    y_max: np.ndarray
    nonnegative: bool = False
    simplex: bool = False
    overshoot: str = "cut"
    steps: int = 1
    partial: bool = False
    waits: bool = False
    logged: int = 0
    prior: np.ndarray | None = None

    @classmethod
    def of(
        cls, p: Parameters, nonnegative: bool = False, simplex: bool = False, ends: bool = False
    ) -> Facts:
        """From the numbers in force, what is known about the features, and whether episodes may
        end early."""
        y_max, steps = 1.0 + np.append(p.ceilings[1:], 0.0), p.horizon // p.matrices
        logged = p.pessimistic or p.logged > 0
        # where steps share a matrix every episode is in it, so nothing waits
        waits = ends and p.min_round > 1 and not p.stationary
        known = (p.trigger, p.episodes, y_max, nonnegative, simplex and not logged)
        return cls(*known, p.overshoot, steps, logged, waits, p.logged)
