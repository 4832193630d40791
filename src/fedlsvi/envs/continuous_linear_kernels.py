"""Compiled loops of the continuous linear MDP; imported only when they are used."""

from __future__ import annotations

import numpy as np
from numba import njit

from fedlsvi.features.hat_kernels import knot


@njit(cache=True, nogil=True)
def step(theta, edges, n_actions, x, a, u, reward, following):  # type: ignore[no-untyped-def]
    """Row by row: i ~ φ(x,a) from u₀, x' ~ μ_i from u₁, reward ⟨φ(x,a), θ⟩."""
    dim, cells = edges.shape[0], edges.shape[1] - 1
    for e in range(x.shape[0]):
        k, f = knot(x[e, 0], a[e], n_actions, dim)
        reward[e] = (1.0 - f) * theta[k] + f * theta[k + 1]
        i = k + 1 if u[e, 0] < f else k
        y = u[e, 1] * cells
        c = min(int(y), cells - 1)
        low = edges[i, c]
        following[e, 0] = low + (y - c) * (edges[i, c + 1] - low)


@njit(cache=True, nogil=True)
def primitives(edges, before, z, mass, moment):  # type: ignore[no-untyped-def]
    """μ_i[0, z] and ∫₀^z x dμ_i of laws of equally likely cells; before[i, k]: ∫ up to cell k."""
    n_laws, cells = edges.shape[0], edges.shape[1] - 1
    for i in range(n_laws):
        row = edges[i]
        for j in range(z.size):
            k = min(max(np.searchsorted(row, z[j], side="right") - 1, 0), cells - 1)
            width = row[k + 1] - row[k]
            t = min(max((z[j] - row[k]) / width, 0.0), 1.0)
            mass[i, j] = (k + t) / cells
            moment[i, j] = before[i, k] + t * (row[k] + 0.5 * t * width) / cells
