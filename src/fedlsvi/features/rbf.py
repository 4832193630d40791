"""Normalised radial basis functions on continuous states."""

from __future__ import annotations

import itertools
from typing import Any, Self

import numpy as np

from fedlsvi.errors import InvalidFeatures
from fedlsvi.features.base import Bindable
from fedlsvi.features.blocks import BlockFeatures
from fedlsvi.features.box import MOST, Bound, BoxFeatures
from fedlsvi.features.validation import count, finite, fits, positive


class RBFFeatures(BoxFeatures):
    """φ(x,a) = e_a ⊗ k(x)/Σ_j k_j(x) with k_j(x) = exp(−½ Σ_i ((x_i − c_{j,i})/bandwidth_i)²).

    Non-negative and sums to one, so ‖φ‖₂ ≤ ‖φ‖₁ = 1.

    Args:
        centres: An array (D, s), or how many per dimension on a grid over the box.
        bandwidth: One number, or one per dimension. The default is the distance of neighbours on
            the grid, or the mean distance of a given centre from the nearest other one, in units
            of their spread in each dimension.
        low, high: As `BoxFeatures`.
    """

    kind = "rbf"
    nonnegative = simplex = True

    def __init__(
        self,
        centres: int | np.ndarray | list[list[float]] = 5,
        bandwidth: float | list[float] | None = None,
        low: Bound = None,
        high: Bound = None,
    ) -> None:
        super().__init__(low, high)
        self._given = {"centres": centres, "bandwidth": bandwidth, "low": low, "high": high}
        self.bandwidth = None if bandwidth is None else positive("bandwidth", bandwidth)
        self.per_dimension: int | None = None
        if isinstance(centres, list | tuple | np.ndarray):
            self.centres = finite("centres", centres, "a finite array (D, state_dim)", 2, 2)
        else:
            self.per_dimension = count("centres", centres)

    @classmethod
    def from_states(cls, states: np.ndarray, n: int, seed: int = 0) -> RBFFeatures:
        """Place centres by SciPy's k-means on observed states, with bandwidths that fit them.

        Dimensions are scaled to variance 1 for it; the bandwidth is the mean distance of a centre
        from the nearest other one, in the units of each dimension.

        Args:
            states: Observed states, (k, s).
            n: How many centres.
            seed: Of k-means.
        """
        from scipy.cluster.vq import kmeans2

        n = count("n", n)
        seen = np.asarray(states, np.float64)
        if seen.ndim != 2 or not np.isfinite(seen).all() or len(seen) < n:
            raise InvalidFeatures(
                f"states must be at least {n} finite vectors (k, s), got shape {seen.shape}",
                code="bad-states",
            )
        spread = _spread(seen)
        centres = kmeans2(seen / spread, n, minit="++", rng=np.random.default_rng(seed))[0]
        made = cls(centres * spread, (_apart(centres) * spread).tolist())
        made.fitted = True
        return made

    def bind(self, env: Bindable) -> Self:
        """The map on the states of `env`; given centres need no box."""
        if self.per_dimension is None:
            return BlockFeatures.bind(self, env)
        return super().bind(env)

    def prepare(self, state_dim: int) -> int:
        if self.per_dimension is not None:
            return super().prepare(state_dim)
        if self.centres.shape[1] != state_dim:
            raise InvalidFeatures(
                f"centres have {self.centres.shape[1]} coordinates, but the state has "
                f"{state_dim}: give an array (D, {state_dim})",
                code="bad-centres",
            )
        if self.bandwidth is None:
            spread = _spread(self.centres)
            self.bandwidth = positive("bandwidth", _apart(self.centres / spread) * spread)
        self._widen(self.bandwidth, state_dim)
        return len(self.centres)

    def size(self, state_dim: int) -> int:
        assert self.per_dimension is not None
        n, (low, high) = self.per_dimension, self.ends
        if n**state_dim <= MOST:  # else `prepare` refuses it
            axes = [np.linspace(*ends, n) for ends in zip(low, high, strict=True)]
            self.centres = np.array(list(itertools.product(*axes)))
            default = (high - low) / max(n - 1, 1)
            self._widen(default if self.bandwidth is None else self.bandwidth, state_dim)
        return int(n**state_dim)

    def _widen(self, bandwidth: np.ndarray, state_dim: int) -> None:
        """Fix the bandwidth of every dimension."""
        self.bandwidth = self._widths = fits("bandwidth", bandwidth, state_dim)

    def psi(self, states: np.ndarray) -> np.ndarray:
        away = (states[:, None, :] - self.centres) / self._widths
        exponent = -0.5 * np.einsum("njs,njs->nj", away, away)
        # the largest exponent becomes 0, so that states far from every centre do not give 0/0
        weight = np.exp(exponent - exponent.max(axis=1, keepdims=True))
        psi: np.ndarray = weight / weight.sum(axis=1, keepdims=True)
        return psi

    def psi_names(self, inputs: list[str]) -> list[str]:
        return [f"near {', '.join(f'{x}={c:.2g}' for x, c in zip(inputs, row, strict=True))}"
                for row in self.centres.tolist()]  # fmt: skip

    def parameters(self) -> dict[str, Any]:
        own: dict[str, Any] = {"centres": self.per_dimension}
        if self.per_dimension is None:
            own["centres"] = self.centres.tolist()
        return own if self.bandwidth is None else own | {"bandwidth": self.bandwidth.tolist()}


def _spread(points: np.ndarray) -> np.ndarray:
    """Standard deviations (s,) of points (k, s); 1 where they do not vary."""
    deviation = points.std(axis=0)
    return np.where(deviation > 0.0, deviation, 1.0)


def _apart(centres: np.ndarray) -> float:
    """The mean distance of a centre from the nearest other one; 1 if there is only one."""
    from scipy.spatial import KDTree

    if len(centres) == 1:
        return 1.0
    distances = np.asarray(KDTree(centres).query(centres, k=2)[0])
    return float(distances[:, 1].mean())
