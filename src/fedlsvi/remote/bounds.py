"""What agents' contributions can be at most, as numbers: by these the guard judges."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.core.fixed_point import rounding
from fedlsvi.core.stepwise_release import StepwiseRelease
from fedlsvi.core.trigger import Trigger

TOLERANCE = 1e-9
"""Relative slack for rounding, per episode."""

DEVIATIONS = 16.0
"""Noise beyond so many standard deviations has a probability of less than 10^-56."""


@dataclass(frozen=True)
class NoiseBounds:
    """How far noise can carry an entry of a contribution.

    Attributes:
        sigma: σ of z on Λ, u and N (`core.factorisation`).
        fresh: (N,) variance of what each round brings, over z's.
        responses: (H,) σ_h of the noise on b_h; empty in one trip.
        several: The same of an increment of several rounds, at most.
        away: Whether any increment may be such a one, because its agents come and go.
    """

    sigma: float
    fresh: tuple[float, ...]
    responses: tuple[float, ...] = ()
    several: float = 0.0
    away: bool = False

    def increment(self, k: int) -> float:
        """Beyond an entry of Λ, u or N of round k; the round of logs counts as the first."""
        of_round = self.fresh[min(max(k, 1), len(self.fresh)) - 1]
        variance = self.several if self.away else of_round
        return DEVIATIONS * self.sigma * math.sqrt(variance)

    def response(self, h: int) -> float:
        """Beyond an entry of b_h."""
        return DEVIATIONS * self.responses[h - 1]


@dataclass(frozen=True)
class Bounds:
    """What the server knows about the problem, and about what protects a contribution.

    Attributes:
        trigger: When rounds end.
        episodes, overshoot: As in the settings.
        y_max: (H,) the largest target at each step.
        nonnegative: Whether no feature is negative.
        simplex: Whether the features of every state and action sum to one.
        steps: Vectors that an episode puts into one Gram matrix: 1, or H where steps share it.
        partial: Whether an agent may have fewer episodes than the round, because it may be away,
            or episodes that end early and add nothing after that, as logs have.
        waits: Whether increments may wait for a later round: under a floor, where episodes end
            early and add nothing after that.
        logged: Episodes of the longest log that an agent begins with; 0 where there is no round of
            logs.
        prior: (H,) the largest wᵀΛw that a model known before can have by itself.
        summed: How many agents stand behind one contribution: 1, or M where sums are secure. A sum
            of M agents over n episodes is what one agent could send after M·n episodes.
        trip: Whether all steps come at once: at each of them u = Σφr of the round in place of b.
        noise: What noise adds to entries; then nothing but the size of entries is bounded.
        fits: Whether agents say in the end how well the model fits.
        eliminated: Whether agents eliminate coefficients of their own (`core.elimination`): Λ^loc
            is then what a round adds to a Schur complement of all sums so far, which the bounds of
            all episodes hold for, and no ratio of determinants is an agent's.
        tolerance: Relative slack for rounding, per episode.
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
    summed: int = 1
    trip: bool = False
    noise: NoiseBounds | None = None
    fits: bool = False
    eliminated: bool = False
    tolerance: float = TOLERANCE

    @classmethod
    def of(
        cls, p: Parameters, nonnegative: bool = False, simplex: bool = False, ends: bool = False
    ) -> Bounds:
        """From the numbers in force, what is known about the features, and whether episodes may
        end early."""
        partial = p.pessimistic or p.logged > 0 or p.some_away
        secure, trip = p.aggregation == "secure", p.exchange == "one-trip"
        # where steps share a matrix, every episode is in it; where Λ is diagonal, states are
        # numbered and an episode that has ended stays in the last one: nothing waits
        waits = ends and p.min_round > 1 and not p.stationary and p.packing != "diagonal"
        tolerance = TOLERANCE
        if secure:  # at most 1/2 unit in each of d² entries of M agents, per episode of theirs
            tolerance += p.dim * rounding(p.scale_bits, 1)
        return cls(
            p.trigger, p.episodes, np.array(p.targets), nonnegative and not p.own_features,
            simplex and not partial and not p.own_features,
            p.overshoot, p.horizon // p.matrices, partial, waits, p.logged,
            summed=p.n_agents if secure else 1, trip=trip, noise=_noise(p, secure),
            fits=p.fits, eliminated=p.own_features > 0, tolerance=tolerance,
        )  # fmt: skip

    @property
    def each(self) -> int:
        """Vectors that an episode puts into one Gram matrix of a contribution."""
        return self.summed * self.steps

    def target(self, h: int) -> float:
        """The largest target of step h in a contribution: a reward alone in one trip."""
        return 1.0 if self.trip else float(self.y_max[h - 1])


def _noise(p: Parameters, secure: bool) -> NoiseBounds | None:
    """The noise of one contribution; None without privacy."""
    release = p.release
    if release is None:
        return None
    times = math.sqrt(p.noise_times) if secure else 1.0
    responses: tuple[float, ...] = ()
    if isinstance(release, StepwiseRelease):
        responses = tuple(times * release.response_sigma(h + 1) for h in range(p.horizon))
    fresh = tuple(release.factors.fresh.tolist())
    several = 4.0 * float(release.factors.summed.max())  # rounds s + 1 … k bring B_k − B_s
    return NoiseBounds(times * release.sigma, fresh, responses, several, p.some_away)
