"""Agents whose MDPs are ξ-close to one linear MDP (Definition 2).

    ‖P^m_h(·|x,a) − ⟨φ(x,a), μ_h⟩‖_TV ≤ ξ   and   |r^m_h(x,a) − ⟨φ(x,a), θ_h⟩| ≤ ξ,

with ‖p − q‖_TV = ½ Σ|p − q|.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.linear import LinearMDP
from fedlsvi.envs.validation import count, fraction
from fedlsvi.errors import InvalidEnvironment, UnknownName

MODES = ("mix", "exact")
NOISES = ("linear", "point")


class XiCloseMDP(FiniteMDP):
    """Agent m's own MDP: P^m = (1−w)P + wN^m and r^m = (1−w)r + wu^m, around `reference`.

    The features are the reference's φ; noise is drawn from (seed, agent). Both distances are
    measured on the arrays at construction: `kernel_distance` and `reward_distance`, (steps, S, A).

    Args:
        reference: The linear MDP in the middle, or its `spec()`.
        agent: m.
        xi: ξ.
        mode: "mix" has w = ξ, so distances are at most ξ. "exact" has w(x,a) = min(1, ξ/distance),
            so they are exactly ξ wherever N^m and u^m are that far away, and smaller elsewhere.
        noise: "linear" has N^m = ⟨φ, ν^m⟩ with ν^m_i ~ Dirichlet(0.1) and u^m = ⟨φ, ϑ^m⟩ with ϑ^m
            uniform; mixed by "mix" the agent is itself linear in φ. It needs features on the
            simplex. "point" draws point masses N^m and u^m of 0 or 1 per step, state and action,
            which are not linear in φ.
        seed: Of the noise.
    """

    registry_name = "xi-close"

    def __init__(
        self,
        reference: LinearMDP | dict[str, Any],
        agent: int = 0,
        xi: float = 0.1,
        mode: str = "mix",
        noise: str = "linear",
        seed: int = 0,
    ) -> None:
        if isinstance(reference, dict):
            from fedlsvi.envs.registry import from_spec

            reference = from_spec(reference)  # type: ignore[assignment]
        if not isinstance(reference, LinearMDP):
            raise InvalidEnvironment(
                f"reference is of type {type(reference).__name__}: give a LinearMDP; the agents "
                "stay close to its phi, mu and theta",
                code="bad-reference",
            )
        self.agent, seed = count("agent", agent, 0), count("seed", seed, 0)
        self.xi = fraction("xi", xi, zero=True)
        if mode not in MODES:
            raise UnknownName("mode", str(mode), MODES)
        if noise not in NOISES:
            raise UnknownName("noise", str(noise), NOISES)
        self.reference = reference
        rng = np.random.default_rng([seed, 1 + self.agent])  # [seed, 0] is the reference's stream
        N, u = _linear(reference, rng) if noise == "linear" else _point(reference, rng)
        P, r = reference.P, reference.r
        w_P: np.ndarray | float = self.xi
        w_r: np.ndarray | float = self.xi
        if mode == "exact":
            w_P = _reach(self.xi, 0.5 * np.abs(N - P).sum(axis=-1))[..., None]
            w_r = _reach(self.xi, np.abs(u - r))
        super().__init__(
            P + w_P * (N - P) if self.xi else P,
            (r + w_r * (u - r)).clip(0.0, 1.0),
            horizon=reference.horizon,
            initial=reference.initial_laws,
            phi=reference.phi,
            name=f"XiClose({reference.name})",
        )
        self.record(
            reference=reference.spec(),
            agent=self.agent,
            xi=self.xi,
            mode=mode,
            noise=noise,
            seed=seed,
        )
        self.kernel_distance = 0.5 * np.abs(self.P - P).sum(axis=-1)
        self.reward_distance = np.abs(self.r - r)
        for field, distance in (("P", self.kernel_distance), ("r", self.reward_distance)):
            if distance.max() > self.xi + 1e-12:
                raise InvalidEnvironment(
                    f"{field} of agent {self.agent} is {distance.max():.10g} away from the "
                    f"reference, more than xi = {self.xi}: this is a bug, please report it",
                    code="not-xi-close",
                )

    def spec(self) -> dict[str, Any]:
        named = self.reference.spec()["name"] is not None
        return super().spec() | ({} if named else {"name": None})


def xi_close(
    env: LinearMDP,
    n_agents: int,
    xi: float,
    mode: str = "mix",
    noise: str = "linear",
    seed: int = 0,
) -> list[XiCloseMDP]:
    """One ξ-close MDP per agent around the linear MDP `env`; each has it as `.reference`."""
    agents = range(count("n_agents", n_agents))
    return [XiCloseMDP(env, m, xi, mode, noise, seed) for m in agents]


def _linear(env: LinearMDP, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """N = ⟨φ, ν⟩ and u = ⟨φ, ϑ⟩, with as many steps as the reference has."""
    if not env.default_features().simplex:
        raise InvalidEnvironment(
            f"noise is 'linear', but the features of {env.name} are not on the simplex, so ⟨phi, "
            "nu⟩ may not be a probability distribution: use noise='point'",
            code="bad-noise",
        )
    nu = rng.dirichlet(np.full(env.n_states, 0.1), size=(len(env.P), env.dim))
    vartheta = rng.random((len(env.r), env.dim))
    return (
        np.einsum("xai,hiy->hxay", env.phi, nu, optimize=True),
        np.einsum("xai,hi->hxa", env.phi, vartheta, optimize=True),
    )


def _point(env: LinearMDP, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Point masses and rewards of 0 or 1."""
    target = rng.integers(env.n_states, size=env.P.shape[:3])
    return np.eye(env.n_states)[target], rng.integers(2, size=env.r.shape).astype(np.float64)


def _reach(xi: float, distance: np.ndarray) -> np.ndarray:
    """The weight that makes w·distance = ξ, or 1 where even that is not enough."""
    far = distance > xi
    return np.where(far, xi / np.where(far, distance, 1.0), 1.0)
