"""Features divided by their largest norm."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.checks import number
from fedlsvi.errors import InvalidFeatures
from fedlsvi.features.base import FeatureMap, as_features, largest_norm


def scale(phi: Any, by: float | None = None) -> Any:
    """φ divided by its largest norm, so that ‖φ‖ ≤ 1. A table gives a table, a callable a callable.

    Args:
        phi: An (S, A, d) table, or a callable on a batch of states.
        by: The largest norm; required for a callable, whose norms cannot be looked up.
    """
    if by is not None:
        number("by", by, 0.0, "give the largest norm", strict=True, error=InvalidFeatures)
    if isinstance(phi, FeatureMap) or not callable(phi):
        table = as_features("phi", getattr(phi, "table", phi))
        factor = largest_norm(table)[0] if by is None else by
        if factor == 0.0:
            raise InvalidFeatures(
                "phi is zero everywhere, so it cannot be scaled: give features that are not all "
                "zero",
                code="zero-features",
            )
        return table / factor
    if by is None:
        raise InvalidFeatures(
            "by is required to scale a callable: give the largest norm it can reach, by=...",
            code="bad-by",
        )
    return lambda states: np.asarray(phi(states), dtype=np.float64) / by
