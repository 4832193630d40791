"""The features of a saved policy: made again, and checked to be the same.

No environment is at hand then. φ at a few made-up states is saved with the policy, and features
that give other numbers there are refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.envs.spaces import Spaces
from fedlsvi.errors import InvalidFeatures
from fedlsvi.features.base import CallableFeatures, FeatureMap
from fedlsvi.features.binding import resolve
from fedlsvi.features.registry import make

TRIED = 8
TOLERANCE = 1e-4
"""How far φ may differ: a network's last digits are others on another machine."""


def made_again(what: dict[str, Any], spaces: Spaces, given: Any, dim: int) -> FeatureMap:
    """The features of a policy, from their name or as they are given again."""
    if given is None:
        name, params = what.get("name"), what.get("params")
        if not (isinstance(name, str) and isinstance(params, dict)):
            raise InvalidFeatures(
                f"the policy has features of its own ({what.get('given')}), which no file can "
                "hold: give them again, features=..."
            )
        given = make(name, **params)
    phi = resolve(given, _Shape(spaces))
    if phi.dim != dim:
        raise InvalidFeatures(f"features have dimension {phi.dim}, the policy was saved with {dim}")
    return phi


def sample(phi: FeatureMap, spaces: Spaces) -> dict[str, np.ndarray]:
    """φ at a few made-up states, and these; nothing where it has no values there."""
    states = _Shape(spaces).probe(TRIED)
    try:
        return {"states": states, "phi": _values(phi, states)}
    except Exception:  # whatever a function may raise at a state that its environment never shows
        return {}


def _values(phi: FeatureMap, states: np.ndarray) -> np.ndarray:
    """φ(states), whatever its norms: no environment promises them at made-up states."""
    found = phi.fn(states) if isinstance(phi, CallableFeatures) else phi(states)
    return np.array(found, dtype=np.float64)


def check_sample(folder: Path, phi: FeatureMap, arrays: dict[str, np.ndarray]) -> None:
    """Refuse features other than those of the policy, where φ has values at made-up states."""
    if "phi" not in arrays:
        return
    found, saved = _values(phi, arrays["states"]), arrays["phi"]
    if found.shape != saved.shape or not np.allclose(
        found, saved, rtol=0.0, atol=TOLERANCE, equal_nan=True
    ):
        raise InvalidFeatures(
            f"the features are not those that the policy in {folder} was saved with: give the "
            "same, features=..., or none where it holds their name"
        )


class _Shape:
    """As much of an environment as features need to bind."""

    name = "the policy's environment"
    imagined = True

    def __init__(self, spaces: Spaces) -> None:
        self.n_actions, self.state_dim = spaces.n_actions, spaces.state_dim

    def default_features(self) -> FeatureMap:
        raise InvalidFeatures("a saved policy has no features of its own")

    def probe(self, n: int) -> np.ndarray:
        """States to try features on; not 0, which has no direction and no logarithm."""
        assert self.state_dim is not None
        return np.random.default_rng(0).uniform(0.25, 0.75, (n, self.state_dim))
