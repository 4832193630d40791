"""Linear mixture MDPs: P_h(x'|x,a) = ⟨φ(x'|x,a), θ_h⟩ = Σ_i θ_{h,i} K_i(x'|x,a).

The kernels K_i are known and their weights θ_h are not. That is another class than linear MDPs,
whose features do not depend on x'. Rewards are known to algorithms for this class.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.validation import STEPPED, as_array, check_finite, count, horizon_of, snapped
from fedlsvi.errors import InvalidEnvironment


class LinearMixtureMDP(FiniteMDP):
    """A finite MDP built from kernels (d, S, A, S) and weights (H or 1, d), and checked: every
    Σ_i θ_{h,i} K_i(·|x,a) is a law. Kernels need not be laws, and weights may be signed.

    Args:
        kernels: φ(x'|x,a), with its coordinates on the first axis.
        weights: θ, (d,), or (H, d) with one per step.
        r: Rewards, as in `FiniteMDP`.
        horizon: H; may be left out where weights or rewards have a leading axis of H > 1 steps.
        initial: As in `FiniteMDP`.
        name: What reports call it.
    """

    def __init__(
        self,
        kernels: Any,
        weights: Any,
        r: Any,
        *,
        horizon: int | None = None,
        initial: Any = 0,
        name: str = "LinearMixtureMDP",
    ) -> None:
        basis = as_array("kernels", kernels)
        if basis.ndim != 4 or basis.shape[1] != basis.shape[3] or 0 in basis.shape:
            raise InvalidEnvironment(
                f"kernels has shape {basis.shape}: give (d, S, A, S), the next state last",
                code="bad-kernels",
            )
        check_finite("kernels", basis, ("i", "x", "a", "y"))
        theta = as_array("weights", weights)
        theta = theta[None] if theta.ndim == 1 else theta
        if theta.ndim != 2 or theta.shape[1] != len(basis) or not len(theta):
            raise InvalidEnvironment(
                f"weights has shape {np.shape(weights)}, but there are {len(basis)} kernels: give "
                f"({len(basis)},) or (H, {len(basis)})",
                code="bad-weights",
            )
        check_finite("weights", theta, ("h", "i"))
        law = np.einsum("hi,ixay->hxay", theta, basis, optimize=True)
        law = snapped("⟨weights, kernels⟩", law, STEPPED, np.inf, ": make every sum a distribution")
        steps = {"weights": len(theta)} | ({"r": len(r)} if np.ndim(r) == 3 else {})
        super().__init__(law, r, horizon=horizon_of(horizon, steps), initial=initial, name=name)
        self.mixture, self.weights = np.ascontiguousarray(basis), theta
        for array in (self.mixture, self.weights):
            array.setflags(write=False)


class RandomLinearMixtureMDP(LinearMixtureMDP):
    """A random linear mixture MDP.

        K_i(·|x,a) ~ Dirichlet(0.1·1_S),   θ_h ~ Dirichlet(1_d),   r_h(x,a) ~ U[0,1]^4.

    Mixtures of laws are laws. The power makes most rewards small, so that it matters where one is.
    """

    registry_name = "random-linear-mixture"

    def __init__(
        self,
        n_states: int = 20,
        n_actions: int = 4,
        dim: int = 8,
        horizon: int = 5,
        seed: int = 0,
        initial: Any = 0,
    ) -> None:
        sizes = {"n_states": n_states, "n_actions": n_actions, "dim": dim, "horizon": horizon}
        S, A, d, H = (count(name, value) for name, value in sizes.items())
        rng = np.random.default_rng(count("seed", seed, 0))
        super().__init__(
            rng.dirichlet(np.full(S, 0.1), size=(d, S, A)),
            rng.dirichlet(np.ones(d), size=H),
            rng.random((H, S, A)) ** 4,
            horizon=H,
            initial=initial,
            name="RandomLinearMixtureMDP",
        )
        self.record(**sizes, seed=seed, initial=initial)
