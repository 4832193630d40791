"""φ(x,a) = e_a ⊗ ψ(x): one block of the features per action, on continuous states."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.errors import InvalidFeatures
from fedlsvi.features.base import Bindable, FeatureMap, unbound


class BlockFeatures(FeatureMap):
    """φ(x,a) = e_a ⊗ ψ(x) with ψ: ℝ^s → ℝ^D, so d = A·D and ‖φ(x,a)‖ = ‖ψ(x)‖.

    Unbound until `bind`. Subclasses define `prepare`, which fixes ψ once s is known, and `psi`.
    """

    kind: str

    @abstractmethod
    def prepare(self, state_dim: int) -> int:
        """Fix ψ for states of this dimension and return D."""

    @abstractmethod
    def psi(self, states: np.ndarray) -> np.ndarray:
        """ψ of states (n, s), shape (n, D), with ‖ψ‖ ≤ 1."""

    def psi_names(self, inputs: list[str]) -> list[str]:
        """(D,) what each coordinate of ψ is, given the names of a state's numbers."""
        return [f"ψ{i}" for i in range(self.dim // self.n_actions)]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        if not self.dim:
            raise unbound(self.kind)
        inputs = [f"x{i}" for i in range(self.state_dim)]
        if input_features is not None:
            inputs = [str(name) for name in input_features]
            if len(inputs) != self.state_dim:
                raise InvalidFeatures(
                    f"input_features has {len(inputs)} names, but a state has "
                    f"{plural(self.state_dim, 'number')}: give one for each",
                    code="bad-input_features",
                )
        psi = self.psi_names(inputs)
        return np.array([f"{name}, action {a}" for a in range(self.n_actions) for name in psi],
                        object)  # fmt: skip

    def __call__(self, states: np.ndarray) -> np.ndarray:
        phi = np.empty((len(states), self.n_actions, self.dim))
        self.fill(states, phi)
        return phi

    def fill(self, states: np.ndarray, out: np.ndarray) -> None:
        if not self.dim:
            raise unbound(self.kind)
        psi = self.psi(states)
        width = psi.shape[1]
        out[...] = 0.0
        for a in range(self.n_actions):
            out[:, a, a * width : (a + 1) * width] = psi

    def chosen(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        psi = self.psi(states)
        n, width = psi.shape
        phi = np.zeros((n, self.n_actions, width))
        phi[np.arange(n), actions] = psi
        return phi.reshape(n, self.dim)

    def shared(self) -> Callable[[np.ndarray], np.ndarray] | None:
        own, here = type(self), BlockFeatures
        as_written = own.fill is here.fill and own.__call__ is here.__call__
        return self.psi if as_written else None  # a map may do something else with ψ

    def bind(self, env: Bindable) -> Self:
        state_dim: int | None = getattr(env, "state_dim", None)
        if state_dim is None:
            raise InvalidFeatures(
                f"{self.kind} features need a continuous state space, but {env.name} has a finite "
                "one: use one-hot or table features",
                code="needs-continuous-states",
            )
        bound = copy.copy(self)
        bound.n_actions, bound.state_dim = env.n_actions, state_dim
        bound.dim = env.n_actions * bound.prepare(state_dim)
        return bound
