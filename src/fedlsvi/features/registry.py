"""Feature maps by name: what settings and the command line say."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from fedlsvi.errors import InvalidFeatures
from fedlsvi.features.base import Bindable, FeatureMap, unbound
from fedlsvi.features.tabular import OneHot
from fedlsvi.registry import Entry, Registry


class OwnFeatures(FeatureMap):
    """The environment's own features: linear where it has such, one-hot otherwise."""

    def __call__(self, states: np.ndarray) -> np.ndarray:
        raise unbound("own")

    def bind(self, env: Bindable) -> FeatureMap:
        return env.default_features()

    def spec(self) -> dict[str, Any]:
        """Registered name and parameters, ready for JSON."""
        return {"name": "own", "params": {}}


REGISTRY: Registry[Entry] = Registry("features", "a feature map", InvalidFeatures)
names, entry = REGISTRY.names, REGISTRY.entry


def register(name: str, constructor: Callable[..., FeatureMap] | str, summary: str) -> None:
    """Add a feature map; a name is taken once.

    Args:
        name: What settings and the command line call it.
        constructor: Makes the map from its parameters; or "module:attribute", imported on use.
        summary: One line for `fedlsvi list features`.
    """
    REGISTRY.register(Entry(name, constructor, summary))


def make(name: str, /, **params: Any) -> FeatureMap:
    """The (unbound) feature map of this name."""
    made: FeatureMap = REGISTRY.make(entry(name), params)
    if isinstance(made, FeatureMap) and made.spec() is None:
        made.made_as = _written(name, params)
    return made


def _written(name: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The spec of a map made by name; None where JSON cannot hold its parameters."""
    try:
        text = json.dumps(params, default=lambda array: array.tolist())
    except (AttributeError, TypeError, ValueError):
        return None
    return {"name": name, "params": json.loads(text)}


register("own", OwnFeatures, "the environment's own linear features, or one-hot")
register("one-hot", lambda: OneHot(), "finite states: e_(x,a), d = S·A; any MDP is linear in it")
for _name, _home, _summary in (
    ("table", "tabular:TableFeatures", "finite states: a given (S, A, d) array"),
    ("aggregate", "aggregate:AggregateFeatures", "finite states: one-hot over groups of states"),
    (
        "low-rank",
        "lowrank:LowRankFeatures",
        "finite states: clusters of next states (privileged: knows P)",
    ),
    ("hat", "hat:HatFeatures", "states in [0, 1]: hat functions on d knots (simplex)"),
    ("fourier", "fourier:FourierFeatures", "continuous states: e_a ⊗ [cos, sin](Wx)/√D (norm 1)"),
    ("rbf", "rbf:RBFFeatures", "continuous states: e_a ⊗ normalised radial functions (simplex)"),
    (
        "fourier-basis",
        "box:FourierBasis",
        "states in a box: e_a ⊗ cos(π c·x̂)/√D, c up to an order",
    ),
    ("tiles", "box:TileFeatures", "states in a box: e_a ⊗ tile coding (norm 1)"),
    ("polynomial", "box:PolynomialFeatures", "states in a box: e_a ⊗ monomials up to a degree"),
):
    register(_name, f"fedlsvi.features.{_home}", _summary)
