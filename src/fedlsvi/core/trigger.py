"""The synchronisation trigger (eq. 3): det(Λ_h + Λ_h^loc)/det(Λ_h) ≥ γ/Δt for some step h.

In logarithms, with the ratio written in whitened rows y = L⁻¹φ:

    log Δt + log det(I + Σ_j y_j y_jᵀ) ≥ log γ.

The left side is strictly increasing in Δt within a round, so the first episode that fires can be
found by bisection. For s = Σ‖y_j‖² the determinant lies in [1 + s, Π(1 + ‖y_j‖²)] ⊆ [1 + s, eˢ],
which settles most questions without computing it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

TOLERANCE = 1e-9
"""Slack on the logarithm, so that an exact tie fires in spite of rounding."""


@njit(inline="always")
def fires(length, log_ratio, log_gamma):  # type: ignore[no-untyped-def]
    """Whether Δt · ratio ≥ γ. A ratio is never below one: rounding may not delay Δt ≥ γ."""
    return np.log(length) + max(log_ratio, 0.0) >= log_gamma - TOLERANCE


@njit(inline="always")
def settled(length, low, high, log_gamma):  # type: ignore[no-untyped-def]
    """1: fires for sure, −1: cannot fire, 0: the determinant decides. low ≤ log ratio ≤ high."""
    if fires(length, 0.0, log_gamma):
        return 1
    # a margin far above the rounding of the brackets and far below anything that matters
    if fires(length, low - 1e-7, log_gamma):
        return 1
    if not fires(length, high + 1e-7, log_gamma):
        return -1
    return 0


@njit(cache=True, nogil=True)
def logdet_in_place(a):  # type: ignore[no-untyped-def]
    """log det of a positive definite matrix; its lower triangle is overwritten by the factor."""
    dim = a.shape[0]
    total = 0.0
    for j in range(dim):
        pivot = a[j, j]
        for k in range(j):
            pivot -= a[j, k] * a[j, k]
        root = np.sqrt(pivot)
        a[j, j] = root
        total += np.log(pivot)
        for i in range(j + 1, dim):
            acc = a[i, j]
            for k in range(j):
                acc -= a[i, k] * a[j, k]
            a[i, j] = acc / root
    return total
