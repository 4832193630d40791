"""Checks shared by the feature maps: each refusal names field, value and what to give."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

from fedlsvi.errors import InvalidFeatures


def whole(field: str, value: Any, least: int = 1) -> int:
    """An integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InvalidFeatures(f"{field} must be an integer of at least {least}, got {value!r}")
    return int(value)


def finite(field: str, value: Any, wanted: str, most: int, least: int = 0) -> np.ndarray:
    """A copy of an array of finite numbers with `least` to `most` axes; `wanted` says that."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.empty(0)
    if not least <= array.ndim <= most or not array.size or not np.isfinite(array).all():
        raise InvalidFeatures(f"{field} must be {wanted}, got {reprlib.repr(value)}")
    return array


def numbers(field: str, value: Any) -> np.ndarray:
    """A finite number, or a list of them."""
    return finite(field, value, "a finite number or a list of them", 1)


def positive(field: str, value: Any) -> np.ndarray:
    """A positive number, or one per state dimension."""
    array = numbers(field, value)
    if not (array > 0.0).all():
        raise InvalidFeatures(f"{field} must be positive, got {value}: give numbers above 0")
    return array


def fits(field: str, array: np.ndarray, state_dim: int) -> np.ndarray:
    """One number, or as many as the state has dimensions."""
    if array.ndim and len(array) != state_dim:
        raise InvalidFeatures(
            f"{field} has {len(array)} entries, the state has {state_dim}: give one number or "
            f"{state_dim}"
        )
    return np.broadcast_to(array, (state_dim,))
