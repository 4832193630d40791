"""Features divided by their largest norm."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.errors import InvalidFeatures
from fedlsvi.features.base import FeatureMap, as_features, largest_norm


def scale(phi: Any, by: float | None = None) -> Any:
    """φ / c with c = `by`, or the largest norm of an (S, A, d) table; the result has ‖φ‖ ≤ 1.

    A table gives a table, a callable gives a callable (`by` is then required, because the largest
    norm of a function cannot be read off it).
    """
    if by is not None and not (np.isfinite(by) and by > 0.0):
        raise InvalidFeatures(f"by must be a positive number, got {by}: give the largest norm")
    if isinstance(phi, FeatureMap) or not callable(phi):
        table = as_features("phi", getattr(phi, "table", phi))
        factor = largest_norm(table)[0] if by is None else by
        if factor == 0.0:
            raise InvalidFeatures("phi is zero everywhere: nothing to scale")
        return table / factor
    if by is None:
        raise InvalidFeatures(
            "by is required to scale a callable: give the largest norm it can reach, by=..."
        )
    return lambda states: np.asarray(phi(states), dtype=np.float64) / by
