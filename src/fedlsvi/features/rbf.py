"""Normalised radial basis functions on continuous states."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from fedlsvi.errors import InvalidFeatures
from fedlsvi.features.blocks import BlockFeatures, fits, positive


class RBFFeatures(BlockFeatures):
    """φ(x,a) = e_a ⊗ k(x)/Σ_j k_j(x) with k_j(x) = exp(−½ Σ_i ((x_i − c_{j,i})/bandwidth_i)²).

    Non-negative and sums to one, so ‖φ‖₂ ≤ ‖φ‖₁ = 1. Centres: an array (D, s), or a number of them
    per dimension, spread over the box [low, high]; bandwidth defaults to their distance.
    """

    kind = "rbf"
    nonnegative = simplex = True

    def __init__(
        self,
        centres: int | np.ndarray | list[list[float]] = 5,
        bandwidth: float | list[float] | None = None,
        low: float | list[float] = 0.0,
        high: float | list[float] = 1.0,
    ) -> None:
        self.low, self.high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        if not (np.isfinite(self.low).all() and np.isfinite(self.high).all()):
            raise InvalidFeatures(f"low and high must be finite, got {low} and {high}")
        if not (self.high > self.low).all():
            raise InvalidFeatures(f"high must lie above low, got low={low} and high={high}")
        self.per_dimension: int | None = None
        if isinstance(centres, int | np.integer):
            if isinstance(centres, bool) or centres < 1:
                raise InvalidFeatures(f"centres must be at least 1 per dimension, got {centres}")
            self.per_dimension = int(centres)
        else:
            self.centres = np.array(centres, dtype=np.float64)
            if self.centres.ndim != 2 or not np.isfinite(self.centres).all():
                raise InvalidFeatures(
                    f"centres have shape {self.centres.shape}: give a finite array (D, state_dim)"
                )
        if bandwidth is None:
            between = max((self.per_dimension or 2) - 1, 1)
            self.bandwidth = (self.high - self.low) / between
        else:
            self.bandwidth = positive("bandwidth", bandwidth)

    @classmethod
    def from_states(cls, states: np.ndarray, n: int, seed: int = 0) -> RBFFeatures:
        """n centres by k-means (SciPy's) on states seen, (k, s), and bandwidths that fit them.

        Dimensions are scaled to variance 1 for it; the bandwidth is the mean distance of a centre
        from the nearest other one, in each dimension's own units.
        """
        from scipy.cluster.vq import kmeans2

        seen = np.asarray(states, np.float64)
        if seen.ndim != 2 or not np.isfinite(seen).all() or len(seen) < n:
            raise InvalidFeatures(
                f"states must be at least {n} finite vectors (k, s), got shape {seen.shape}"
            )
        spread = np.where(seen.std(axis=0) > 0.0, seen.std(axis=0), 1.0)
        centres = kmeans2(seen / spread, n, minit="++", rng=np.random.default_rng(seed))[0]
        apart = np.linalg.norm(centres[:, None] - centres, axis=2)
        apart[np.diag_indices(n)] = np.inf
        width = float(apart.min(axis=1).mean()) if n > 1 else 1.0
        return cls(centres * spread, (width * spread).tolist())

    def prepare(self, state_dim: int) -> int:
        self.bandwidth = fits("bandwidth", self.bandwidth, state_dim)
        if self.per_dimension is not None:
            ends = zip(
                fits("low", self.low, state_dim), fits("high", self.high, state_dim), strict=True
            )
            axes = [np.linspace(*pair, self.per_dimension) for pair in ends]
            self.centres = np.array(list(itertools.product(*axes)))
        if self.centres.shape[1] != state_dim:
            raise InvalidFeatures(
                f"centres have {self.centres.shape[1]} coordinates, the state has {state_dim}: "
                f"give an array (D, {state_dim})"
            )
        return len(self.centres)

    def psi(self, states: np.ndarray) -> np.ndarray:
        away = (states[:, None, :] - self.centres) / self.bandwidth
        exponent = -0.5 * np.einsum("njs,njs->nj", away, away)
        # the largest exponent becomes 0, so that states far from every centre do not give 0/0
        weight = np.exp(exponent - exponent.max(axis=1, keepdims=True))
        psi: np.ndarray = weight / weight.sum(axis=1, keepdims=True)
        return psi

    def spec(self) -> dict[str, Any]:
        """Registered name and parameters, ready for JSON."""
        centres = self.centres.tolist() if self.per_dimension is None else self.per_dimension
        box = {"low": self.low.tolist(), "high": self.high.tolist()}
        params = {"centres": centres, "bandwidth": self.bandwidth.tolist(), **box}
        return {"name": self.kind, "params": params}
