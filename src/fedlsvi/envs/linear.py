"""Linear MDPs (Definition 1): P_h(·|x,a) = ⟨φ(x,a), μ_h(·)⟩ and r_h(x,a) = ⟨φ(x,a), θ_h⟩."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.validation import (
    STEPPED,
    TOLERANCE,
    as_array,
    check_finite,
    count,
    horizon_of,
    snapped,
)
from fedlsvi.errors import InvalidEnvironment
from fedlsvi.features.tabular import TableFeatures


class LinearMDP(FiniteMDP):
    """A finite MDP built from φ (S, A, d), μ (H or 1, d, S) and θ (H or 1, d), and checked:

        ‖φ(x,a)‖ ≤ 1,  ‖θ_h‖ ≤ √d,  ‖μ_h(X)‖ ≤ √d,  every ⟨φ, μ_h⟩ a law,  every ⟨φ, θ_h⟩ in [0, 1],

    all to 1e-9. μ and θ may be signed and may come without their leading axis where stationary.
    """

    def __init__(
        self,
        phi: Any,
        mu: Any,
        theta: Any,
        *,
        horizon: int | None = None,
        initial: Any = 0,
        name: str = "LinearMDP",
    ) -> None:
        features = TableFeatures(phi)
        n_states, dim = features.n_states, features.dim
        self.mu = _per_step("mu", mu, (dim, n_states), features.table.shape)
        self.theta = _per_step("theta", theta, (dim,), features.table.shape)
        self.dim = dim
        _check_norms("theta", self.theta, dim)
        _check_norms("mu", self.mu.sum(axis=-1), dim)
        P = np.einsum("xai,hiy->hxay", features.table, self.mu, optimize=True)
        r = np.einsum("xai,hi->hxa", features.table, self.theta, optimize=True)
        super().__init__(
            snapped("⟨phi, mu⟩", P, STEPPED, np.inf, ": make every product a distribution"),
            snapped("⟨phi, theta⟩", r, STEPPED, 1.0, ": keep every product in [0, 1]"),
            horizon=horizon_of(horizon, {"mu": len(self.mu), "theta": len(self.theta)}),
            initial=initial,
            phi=features.table,
            name=name,
        )
        for array in (self.mu, self.theta):
            array.setflags(write=False)

    @property
    def phi(self) -> np.ndarray:
        """φ (S, A, d)."""
        table: np.ndarray = self.default_features().table  # type: ignore[attr-defined]
        return table


def _per_step(
    field: str, value: Any, shape: tuple[int, ...], phi_shape: tuple[int, ...]
) -> np.ndarray:
    """The array with its leading axis of steps."""
    array = as_array(field, value)
    if array.ndim == len(shape):
        array = array[None]
    if array.shape[1:] != shape or array.ndim != len(shape) + 1 or not len(array):
        raise InvalidEnvironment(
            f"{field} has shape {np.shape(value)}, but phi has shape {phi_shape}: give {field} of "
            f"shape {shape} or (H, {', '.join(map(str, shape))})",
            code=f"bad-{field}",
        )
    check_finite(field, array, ("h", "i", "x"))
    return array


def _check_norms(field: str, vectors: np.ndarray, dim: int) -> None:
    """‖vectors[h]‖ ≤ √d."""
    norms = np.linalg.norm(vectors, axis=-1)
    h = int(norms.argmax())
    if norms[h] > np.sqrt(dim) + TOLERANCE:
        what = "theta" if field == "theta" else "mu(X)"
        raise InvalidEnvironment(
            f"{what}[h={h + 1}] has norm {norms[h]:.10g} > sqrt(d) = {np.sqrt(dim):.10g}: "
            f"scale {field} down, or scale phi up and {field} down together",
            code=f"bad-{field}",
        )


class RandomLinearMDP(LinearMDP):
    """A random linear MDP with features on the simplex.

        φ(x,a) ~ Dirichlet(0.3·1_d), with φ = e_i on d anchor pairs,
        μ_{h,i} ~ Dirichlet(0.1·1_S),   θ_h ~ U[0,1]^d.

    The anchors make every direction reachable. ‖φ‖ ≤ ‖φ‖₁ = 1, ‖μ_h(X)‖ = √d, r ∈ [0, 1].
    """

    registry_name = "random-linear"

    def __init__(
        self,
        n_states: int = 20,
        n_actions: int = 4,
        dim: int = 8,
        horizon: int = 5,
        seed: int = 0,
        initial: Any = 0,
    ) -> None:
        n_states, n_actions = count("n_states", n_states), count("n_actions", n_actions)
        dim, horizon = count("dim", dim), count("horizon", horizon)
        seed = count("seed", seed, 0)
        if n_states * n_actions < dim:
            raise InvalidEnvironment(
                f"dim is {dim}, but {plural(n_states, 'state')} and {plural(n_actions, 'action')} "
                f"make only {n_states * n_actions} pairs: give dim = {n_states * n_actions} at "
                "most",
                code="bad-dim",
            )
        rng = np.random.default_rng(seed)
        phi = rng.dirichlet(np.full(dim, 0.3), size=n_states * n_actions)
        phi[rng.permutation(n_states * n_actions)[:dim]] = np.eye(dim)
        mu = rng.dirichlet(np.full(n_states, 0.1), size=(horizon, dim))
        theta = rng.random((horizon, dim))
        super().__init__(
            phi.reshape(n_states, n_actions, dim),
            mu,
            theta,
            horizon=horizon,
            initial=initial,
            name="RandomLinearMDP",
        )
        self.record(
            n_states=n_states,
            n_actions=n_actions,
            dim=dim,
            horizon=horizon,
            seed=seed,
            initial=initial,
        )
