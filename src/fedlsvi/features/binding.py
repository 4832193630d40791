"""From what a caller gives as features to the bound map, checked in its environment."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.checks import is_integer
from fedlsvi.errors import InvalidFeatures
from fedlsvi.features.base import (
    NORM_TOLERANCE,
    CallableFeatures,
    FeatureMap,
    imagined,
    probe_states,
)
from fedlsvi.features.registry import make
from fedlsvi.features.tabular import OneHot, TableFeatures, check_table_shape, tabulated


def resolve(features: Any, env: Any) -> FeatureMap:
    """The bound feature map for what a caller gives.

    Args:
        features: None (the environment's own), a map, its registered name, an (S, A, d) array, or a
            callable on a batch of states.
        env: The environment.
    """
    if features is None:
        return _ready(env.default_features(), f"default_features() of {env.name}", env)
    if isinstance(features, str):
        features = make(features)
    if isinstance(features, type):
        raise InvalidFeatures(
            f"features is the class {features.__name__}: give an instance, {features.__name__}()",
            code="features-not-made",
        )
    if isinstance(features, FeatureMap):
        bound = _ready(features.bind(env), f"{type(features).__name__}.bind", env)
        if bound.spec() is None:
            bound.made_as = features.made_as
        return bound
    if callable(features):
        return CallableFeatures(features).bind(env)
    if isinstance(features, np.ndarray) and features.ndim == 3:
        check_table_shape(features.shape, env)
    return TableFeatures(features).bind(env)


def _ready(bound: Any, source: str, env: Any) -> FeatureMap:
    """What `source` returned, checked; on finite states as a table."""
    if not isinstance(bound, FeatureMap):
        raise InvalidFeatures(
            f"{source} returned {_kind(bound)}: return a FeatureMap, such as self, with dim and "
            "n_actions set",
            code="bad-bind",
        )
    name = type(bound).__name__
    for size, wanted in (("dim", "the length d of φ(x,a)"), ("n_actions", f"{env.n_actions}")):
        value = getattr(bound, size)
        positive = is_integer(value) and value >= 1
        if not positive or (size == "n_actions" and value != env.n_actions):
            raise InvalidFeatures(
                f"{source} returned {name} with {size} = {value!r}: set {size} to {wanted} there",
                code=f"bad-{size}",
            )
    if isinstance(bound, TableFeatures):
        TableFeatures.bind(bound, env)  # checks its sizes
    elif isinstance(bound, OneHot):
        OneHot.bind(bound, env)
    if type(bound).__module__.startswith("fedlsvi.features."):
        return bound  # the tests run check_features on all of these
    if hasattr(env, "n_states"):
        return tabulated(bound, env)
    if not imagined(env):
        try_out(bound, probe_states(env))
    return bound


def try_out(phi: FeatureMap, states: np.ndarray) -> np.ndarray:
    """φ(states), (n, A, d), checked; a second call, `fill` and `chosen` must give the same."""
    name, kept = type(phi).__name__, states.copy()
    found = phi.checked(states).copy()
    if not np.array_equal(states, kept):
        raise InvalidFeatures(
            f"{name} changes the states that it is given: copy them first", code="states-changed"
        )
    if not alike(phi(states), found):
        raise InvalidFeatures(
            f"{name} gives other numbers when it is called again: a map is a function of the state",
            code="not-a-function",
        )
    filled = np.full_like(found, np.nan)
    phi.fill(states, filled)
    actions = np.arange(len(states), dtype=np.int32) % phi.n_actions
    for method, given, wanted in (
        ("fill", filled, found),
        ("chosen", phi.chosen(states, actions), found[np.arange(len(states)), actions]),
    ):
        if given.shape != wanted.shape or not alike(given, wanted):
            raise InvalidFeatures(
                f"{name}.{method} gives other numbers than calling the map: make "
                f"them agree, or leave {method} out",
                code=f"{method}-differs",
            )
    return found


def alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether features agree up to rounding."""
    return np.allclose(one, other, rtol=0.0, atol=NORM_TOLERANCE)


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__
