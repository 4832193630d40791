"""Checks of the parameters of feature maps; the code of an error is "bad-" and the field's name."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

from fedlsvi.checks import SEEDS, integer
from fedlsvi.errors import InvalidFeatures


def count(field: str, value: Any, least: int = 1) -> int:
    """An integer of at least `least`."""
    return integer(field, value, least, most=SEEDS - 1, error=InvalidFeatures)


def finite(field: str, value: Any, wanted: str, most: int, least: int = 0) -> np.ndarray:
    """A copy of an array of finite numbers with `least` to `most` axes, as `wanted` says."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.empty(0)
    if not least <= array.ndim <= most or not array.size or not np.isfinite(array).all():
        got = reprlib.repr(value)
        raise InvalidFeatures(f"{field} must be {wanted}, got {got}", code=f"bad-{field}")
    return array


def numbers(field: str, value: Any) -> np.ndarray:
    """A finite number, or a list of them."""
    return finite(field, value, "a finite number or a list of them", 1)


def positive(field: str, value: Any) -> np.ndarray:
    """A positive number, or one per state dimension."""
    array = numbers(field, value)
    if not (array > 0.0).all():
        raise InvalidFeatures(
            f"{field} must be positive, got {value}: give numbers above 0", code=f"bad-{field}"
        )
    return array


def fits(field: str, array: np.ndarray, state_dim: int) -> np.ndarray:
    """One number, or one per state dimension, as an array (state_dim,)."""
    if array.ndim and len(array) != state_dim:
        raise InvalidFeatures(
            f"{field} has {len(array)} entries, but the state has {state_dim}: give one number or "
            f"{state_dim}",
            code=f"bad-{field}",
        )
    return np.broadcast_to(array, (state_dim,))
