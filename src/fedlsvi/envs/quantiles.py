"""Laws on [0, 1] of equally likely, uniform cells: sampled from one uniform, integrated exactly.

Law i has edges q_{i,0} < … < q_{i,n}; cell [q_{i,k}, q_{i,k+1}] has probability 1/n and is uniform
inside. Its quantile function is piecewise linear, so x = q_{i,k} + (u·n − k)(q_{i,k+1} − q_{i,k})
with k = ⌊u·n⌋ has exactly this law.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

SMALL = 100_000
"""Cells of all laws together up to which Beta laws are kept, in case they are made again."""


class QuantileLaws:
    """The laws with `edges` (laws, cells + 1), rising from 0 to 1 along the second axis."""

    def __init__(self, edges: np.ndarray) -> None:
        self.edges = np.array(edges, dtype=np.float64, order="C")
        self.edges.setflags(write=False)
        self.n_laws, self.cells = self.edges.shape[0], self.edges.shape[1] - 1
        moments = (self.edges[:, 1:] + self.edges[:, :-1]) / (2.0 * self.cells)
        self._moment = np.zeros(self.edges.shape)
        np.cumsum(moments, axis=1, out=self._moment[:, 1:])

    def primitives(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """F_i(z) = μ_i[0, z] and G_i(z) = ∫₀^z x dμ_i(x), both (laws, len(z))."""
        from fedlsvi.envs.continuous_linear_kernels import primitives

        mass = np.empty((self.n_laws, len(z)))
        moment = np.empty_like(mass)
        primitives(self.edges, self._moment, np.ascontiguousarray(z), mass, moment)
        return mass, moment

    def weights(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(left, right), each (laws, K), such that for f linear on every [z_k, z_{k+1}]

        ∫ f dμ_i = Σ_k left_{i,k} f(z_k⁺) + right_{i,k} f(z_{k+1}⁻),

        exactly up to rounding: ∫ f over the cell is f(z_k)·ΔF + (f(z_{k+1}) − f(z_k))·m with
        m = (ΔG − z_k ΔF)/Δz.
        """
        mass, moment = self.primitives(z)
        mass, moment = np.diff(mass), np.diff(moment)
        right = np.clip((moment - z[:-1] * mass) / np.diff(z), 0.0, mass)
        return mass - right, right


def beta_laws(a: np.ndarray, b: np.ndarray, cells: int = 1024) -> QuantileLaws:
    """Beta(a_i, b_i) cut into equally likely cells: the quantiles at k/cells are the Beta's own."""
    make = _beta_laws if a.size * cells <= SMALL else _beta_laws.__wrapped__
    return make(tuple(a.tolist()), tuple(b.tolist()), cells)


@lru_cache(4)  # a run's environment is made again by its resume, its report and its evaluation
def _beta_laws(a: tuple[float, ...], b: tuple[float, ...], cells: int) -> QuantileLaws:
    from scipy.special import betaincinv

    levels = np.arange(cells + 1) / cells
    edges = betaincinv(np.array(a)[:, None], np.array(b)[:, None], levels)
    edges[:, 0], edges[:, -1] = 0.0, 1.0
    return QuantileLaws(edges)
