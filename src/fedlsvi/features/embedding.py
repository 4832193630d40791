"""e_a ⊗ ψ(x) with a custom ψ: a function, a frozen PyTorch module, a scikit-learn transformer.

To ensure ‖ψ‖ ≤ 1, `norm="unit"` divides every ψ(x) by its length, and a number divides by that
number (a longer ψ is an error).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from fedlsvi.checks import number, plural
from fedlsvi.errors import InvalidFeatures
from fedlsvi.features.base import (
    NORM_TOLERANCE,
    Bindable,
    FeatureMap,
    probe_states,
    resolve,
    unbound,
)
from fedlsvi.features.blocks import BlockFeatures
from fedlsvi.features.tabular import TableFeatures, finite_states, states_of


class EmbeddingFeatures(BlockFeatures):
    """φ(x,a) = e_a ⊗ ψ(x) with ψ = embed(x).

    Args:
        embed: A function from states (n, s) to (n, D).
        norm: "unit", or the largest length of ψ.
    """

    kind = "embedding"

    def __init__(self, embed: Callable[[np.ndarray], Any], norm: str | float = "unit") -> None:
        if not callable(embed):
            raise InvalidFeatures(
                f"embed must be callable, got {type(embed).__name__}: give a function from states "
                "(n, s) to (n, D)",
                code="bad-embed",
            )
        if norm != "unit":
            number("norm", norm, 0.0, "or give 'unit'", strict=True, error=InvalidFeatures)
        self.embed, self.norm = embed, norm
        self._probe: np.ndarray | None = None

    def bind(self, env: Bindable) -> Any:
        self._probe = probe_states(env) if hasattr(env, "state_dim") else None
        bound = super().bind(env)
        self._probe = bound._probe = None
        return bound

    def prepare(self, state_dim: int) -> int:
        states = np.zeros((1, state_dim)) if self._probe is None else self._probe
        return int(self.psi(states).shape[1])

    def psi(self, states: np.ndarray) -> np.ndarray:
        psi = np.asarray(self.embed(states), np.float64)
        if psi.ndim != 2 or len(psi) != len(states) or not np.isfinite(psi).all():
            raise InvalidFeatures(
                f"the embedding gave shape {psi.shape} for {plural(len(states), 'state')}: "
                "return finite numbers (n, D), always with the same D",
                code="bad-embedding",
            )
        lengths = np.linalg.norm(psi, axis=1, keepdims=True)
        if self.norm == "unit":
            return psi / np.where(lengths > 0.0, lengths, 1.0)
        by = float(self.norm)
        if lengths.size and lengths.max() > by * (1.0 + NORM_TOLERANCE):
            raise InvalidFeatures(
                f"the embedding has length {lengths.max():.10g} at a state, above norm = "
                f"{by:.10g}: give a larger norm=, or norm='unit'",
                code="norm-too-small",
            )
        return psi / by


class TorchFeatures(EmbeddingFeatures):
    """φ(x,a) = e_a ⊗ module(x) with a frozen PyTorch module (no gradients, eval mode).

    Args:
        module: A `torch.nn.Module` from states (n, s) to (n, D).
        norm: "unit", or the largest length of its output.
    """

    kind = "torch"

    def __init__(self, module: Any, norm: str | float = "unit") -> None:
        try:
            torch = import_module("torch")
        except ImportError:
            raise InvalidFeatures(
                "TorchFeatures needs PyTorch: pip install torch", code="torch-missing"
            ) from None
        if not isinstance(module, torch.nn.Module):
            raise InvalidFeatures(
                f"module must be a torch.nn.Module, got {type(module).__name__}", code="bad-module"
            )
        frozen = module.eval()
        weights = next(frozen.parameters(), None)
        kind = torch.float32 if weights is None else weights.dtype

        def embed(states: np.ndarray) -> np.ndarray:
            with torch.no_grad():
                out = frozen(torch.as_tensor(np.ascontiguousarray(states), dtype=kind))
            found: np.ndarray = out.to(torch.float64).numpy()
            return found

        super().__init__(embed, norm)
        self._given = {"module": module, "norm": norm}


class SklearnFeatures(EmbeddingFeatures):
    """φ(x,a) = e_a ⊗ transform(x) with a fitted scikit-learn transformer or pipeline.

    A scaler followed by RBFSampler or Nystroem, fitted on observed states, is typical.

    Args:
        transformer: Has `transform`, from states (n, s) to (n, D).
        norm: "unit", or the largest length of its output.
    """

    kind = "scikit-learn"
    fitted = True

    def __init__(self, transformer: Any, norm: str | float = "unit") -> None:
        if not hasattr(transformer, "transform"):
            raise InvalidFeatures(
                f"transformer must have a method transform(), got {type(transformer).__name__}",
                code="bad-transformer",
            )

        def embed(states: np.ndarray) -> Any:
            found = transformer.transform(states)
            return found.toarray() if hasattr(found, "toarray") else found

        super().__init__(embed, norm)
        self._given = {"transformer": transformer, "norm": norm}


class DescribedFeatures(FeatureMap):
    """A map on ℝ^s for finite states that are described by s numbers each: φ(x,a) = map(d_x, a).

    Args:
        features: The map.
        descriptions: d_x of every state, (S, s).
    """

    def __init__(self, features: FeatureMap, descriptions: Any) -> None:
        self._given = {"features": features, "descriptions": descriptions}
        self.inner = features
        self.descriptions = np.asarray(descriptions, np.float64)
        if self.descriptions.ndim != 2 or not np.isfinite(self.descriptions).all():
            raise InvalidFeatures(
                f"descriptions must be finite numbers (S, s), got shape {self.descriptions.shape}",
                code="bad-descriptions",
            )

    def __call__(self, states: np.ndarray) -> np.ndarray:
        raise unbound("described")

    def bind(self, env: Bindable) -> TableFeatures:
        n_states = finite_states("described", env)
        if len(self.descriptions) != n_states:
            raise InvalidFeatures(
                f"descriptions cover {plural(len(self.descriptions), 'state')}, but {env.name} "
                f"has {states_of(env)}: describe every state",
                code="bad-descriptions",
            )
        described = _Described(env, self.descriptions)
        return TableFeatures(resolve(self.inner, described)(self.descriptions))


class _Described:
    """An environment seen through the descriptions of its states."""

    def __init__(self, env: Bindable, descriptions: np.ndarray) -> None:
        self.name, self.n_actions = env.name, env.n_actions
        self.state_dim = descriptions.shape[1]
        self.low, self.high = descriptions.min(axis=0), descriptions.max(axis=0)
        self._descriptions = descriptions

    def default_features(self) -> FeatureMap:
        raise InvalidFeatures(
            f"{self.name} has no default features on descriptions", code="no-default-features"
        )

    def probe(self, n: int) -> np.ndarray:
        """A few descriptions."""
        return self._descriptions[:n]
