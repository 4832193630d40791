"""Feature maps by name: what settings and the command line say."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedlsvi.errors import FedLSVIError, InvalidFeatures, UnknownName, refuse_unknown
from fedlsvi.features.aggregate import AggregateFeatures
from fedlsvi.features.base import Bindable, FeatureMap
from fedlsvi.features.box import FourierBasis, PolynomialFeatures, TileFeatures
from fedlsvi.features.fourier import FourierFeatures
from fedlsvi.features.hat import HatFeatures
from fedlsvi.features.lowrank import LowRankFeatures
from fedlsvi.features.rbf import RBFFeatures
from fedlsvi.features.tabular import OneHot, TableFeatures
from fedlsvi.registry import load_extensions


class OwnFeatures(FeatureMap):
    """Whatever the environment calls its own: its linear features, else one-hot."""

    def __call__(self, states: np.ndarray) -> np.ndarray:
        raise InvalidFeatures("own features are not bound: call .bind(env) first")

    def bind(self, env: Bindable) -> FeatureMap:
        return env.default_features()

    def spec(self) -> dict[str, Any]:
        """Registered name and parameters, ready for JSON."""
        return {"name": "own", "params": {}}


@dataclass(frozen=True)
class FeatureEntry:
    """A row of the registry."""

    name: str
    constructor: Callable[..., FeatureMap]
    summary: str

    def parameters(self) -> dict[str, Any]:
        """Parameters of the constructor and their defaults (None where there is no default)."""
        return {
            key: None if parameter.default is inspect.Parameter.empty else parameter.default
            for key, parameter in inspect.signature(self.constructor).parameters.items()
        }


_ENTRIES: dict[str, FeatureEntry] = {}


def register(name: str, constructor: Callable[..., FeatureMap], summary: str) -> None:
    """Add a feature map; a name is taken once."""
    if name in _ENTRIES:
        raise InvalidFeatures(f"features '{name}' are registered already: choose another name")
    _ENTRIES[name] = FeatureEntry(name, constructor, summary)


def names() -> list[str]:
    """Every registered name, sorted."""
    load_extensions()
    return sorted(_ENTRIES)


def entry(name: str) -> FeatureEntry:
    """The row of a name."""
    if name not in _ENTRIES:
        load_extensions()
    if name not in _ENTRIES:
        raise UnknownName("features", name, _ENTRIES)
    return _ENTRIES[name]


def make(name: str, /, **params: Any) -> FeatureMap:
    """The (unbound) feature map of this name."""
    row = entry(name)
    known = row.parameters()
    if params and not known:
        raise InvalidFeatures(f"features '{name}' take no parameters, got '{next(iter(params))}'")
    refuse_unknown(f"parameter of features '{name}'", params, known)
    if name == "table" and "table" not in params:
        raise InvalidFeatures("table features need their array: give table=, of shape (S, A, d)")
    try:
        made = row.constructor(**params)
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        if isinstance(error, FedLSVIError):
            raise
        raise InvalidFeatures(f"features '{name}' cannot be made from {params}: {error}") from error
    if made is None:
        raise InvalidFeatures(
            f"the constructor of features '{name}' returned None: it must return a feature map"
        )
    if isinstance(made, FeatureMap) and made.spec() is None:
        made.made_as = _written(name, params)
    return made


def _written(name: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The spec of what was made by name; None where the parameters cannot be written down."""
    try:
        text = json.dumps(params, default=lambda array: array.tolist())
    except (AttributeError, TypeError, ValueError):
        return None
    return {"name": name, "params": json.loads(text)}


register("own", lambda: OwnFeatures(), "the environment's own: its linear features, else one-hot")
register("one-hot", lambda: OneHot(), "finite states: e_(x,a), d = S·A; any MDP is linear in it")
register("table", TableFeatures, "finite states: a given (S, A, d) array")
register("aggregate", AggregateFeatures, "finite states: one-hot over groups of states")
register(
    "low-rank", LowRankFeatures, "finite states: clusters of next states (privileged: knows P)"
)
register("hat", HatFeatures, "states in [0, 1]: hat functions on d knots (simplex)")
register("fourier", FourierFeatures, "continuous states: e_a ⊗ [cos, sin](Wx)/√D (norm 1)")
register("rbf", RBFFeatures, "continuous states: e_a ⊗ normalised radial functions (simplex)")
register("fourier-basis", FourierBasis, "states in a box: e_a ⊗ cos(π c·x̂)/√D, c up to an order")
register("tiles", TileFeatures, "states in a box: e_a ⊗ tile coding (norm 1)")
register("polynomial", PolynomialFeatures, "states in a box: e_a ⊗ monomials up to a degree")
