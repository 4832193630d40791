"""A small zoo of problems on which fast runs are compared with the literal reference.

Each is small enough for the reference to be quick, and each has a reason to be here: exact ties,
time-dependent kernels, rewards on transitions, starts per agent, agents that differ, real states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedlsvi.envs.allowed import restrict
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.continuous_linear import ContinuousLinearMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.features.base import CallableFeatures, FeatureMap
from literal import Array, Features, LiteralRun, literal_fed_lsvi

SETTINGS = (
    *("gamma", "value_range", "packing", "overshoot"),
    *("cap", "min_round", "rounds", "scalars", "stationary", "aggregation", "exchange"),
    *("participation", "present", "policy", "pessimism", "diversity", "taper", "bonus"),
)
"""Options of a comparison that are settings of FedLSVI."""


@dataclass(frozen=True)
class Problem:
    """Environments and the feature map, as the reference wants it and as the library gets it."""

    name: str
    envs: Any  # one environment, or a list with one per agent
    phi: Features  # (S, A, d) or a function of a batch of states
    features: Any = None  # what `learn` receives; None is the environment's own map

    @property
    def one(self) -> Any:
        return self.envs[0] if isinstance(self.envs, list) else self.envs

    @property
    def finite(self) -> bool:
        return hasattr(self.one, "n_states")

    @property
    def horizon(self) -> int:
        return int(self.one.horizon)

    def literal(self, s: Setting, **options: Any) -> LiteralRun:
        clip, beta = options.pop("clip", None), options.pop("beta", s.beta)
        return literal_fed_lsvi(
            self.envs, self.phi, s.M, s.T, self.horizon, s.seed, s.lam, beta, s.gamma, clip,
            **options,
        )  # fmt: skip

    def learn(self, s: Setting, preset: Any = "paper", **options: Any) -> Any:
        """The library's run; settings go to FedLSVI, the rest to `learn`."""
        from fedlsvi import FedLSVI

        own = {key: options.pop(key) for key in SETTINGS if key in options}
        given = {"gamma": s.gamma, "beta": s.beta, "lam": s.lam, "preset": preset, "diversity": 0}
        given |= own
        learner = FedLSVI(n_agents=s.M, **given)
        return learner.learn(
            self.envs, episodes=s.T, seed=s.seed, features=self.features, progress=False,
            keep_models=True, **options,
        )  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """The numbers of a run, in the paper's symbols."""

    M: int = 2
    T: int = 30
    gamma: float = 4.0
    seed: int = 0
    lam: float = 1.0
    beta: float = 1.0

    def but(self, **changes: Any) -> Setting:
        return replace(self, **changes)


def _laws(rng: np.random.Generator, *shape: int, spread: float = 0.5) -> Array:
    """Random probability vectors along the last axis."""
    return rng.dirichlet(np.full(shape[-1], spread), size=shape[:-1])


def one_hot_table(S: int, A: int) -> Array:
    """φ(x, a) = e_{xA + a}."""
    return np.eye(S * A).reshape(S, A, S * A)


def simplex(
    seed: int = 0, S: int = 6, A: int = 3, d: int = 4, H: int = 3, anchors: bool = False
) -> Problem:
    """A linear MDP with simplex features and a kernel of its own at each step. Anchors φ = e_i have
    equal norms, so at w = 0 they tie exactly."""
    rng = np.random.default_rng([seed, 1])
    phi = _laws(rng, S, A, d)
    if anchors:
        phi.reshape(S * A, d)[rng.permutation(S * A)[:d]] = np.eye(d)
    mu, theta = _laws(rng, H, d, S, spread=0.2), rng.random((H, d))
    P, r = np.einsum("xad,hdy->hxay", phi, mu), np.einsum("xad,hd->hxa", phi, theta)
    P /= P.sum(axis=-1, keepdims=True)
    starts = _laws(rng, S, spread=1.0)
    env = FiniteMDP(P, np.clip(r, 0.0, 1.0), horizon=H, initial=starts, phi=phi)
    return Problem("simplex with anchors" if anchors else "simplex", env, phi)


def one_hot(seed: int = 0, S: int = 4, A: int = 2, H: int = 3) -> Problem:
    """A stationary random MDP with its default features: counting."""
    rng = np.random.default_rng([seed, 2])
    env = FiniteMDP(_laws(rng, S, A, S), rng.random((S, A)), horizon=H, initial=0)
    return Problem("one-hot", env, one_hot_table(S, A))


def transition_rewards(seed: int = 0, S: int = 4, A: int = 2, H: int = 3) -> Problem:
    """Rewards that depend on the next state, and sparse transitions."""
    rng = np.random.default_rng([seed, 3])
    P = _laws(rng, H, S, A, S, spread=0.15)
    P = np.where(P < 0.05, 0.0, P)
    P /= P.sum(axis=-1, keepdims=True)
    env = FiniteMDP(P, rng.random((S, A, S)), horizon=H, initial=_laws(rng, S))
    return Problem("transition rewards", env, one_hot_table(S, A))


def chain(S: int = 4, H: int = 5) -> Problem:
    """A deterministic corridor, left and right, pay at the far end: ties everywhere."""
    P, r = np.zeros((S, 2, S)), np.zeros((S, 2))
    for x in range(S):
        P[x, 0, max(x - 1, 0)] = P[x, 1, min(x + 1, S - 1)] = 1.0
    r[0, 0], r[S - 1, 1] = 0.05, 1.0
    return Problem("chain", FiniteMDP(P, r, horizon=H, initial=0), one_hot_table(S, 2))


def deterministic(seed: int = 0, S: int = 5, A: int = 3, d: int = 4, H: int = 3) -> Problem:
    """Deterministic moves under features of both signs that know nothing about them."""
    rng = np.random.default_rng([seed, 4])
    phi = rng.normal(size=(S, A, d))
    phi *= rng.uniform(0.4, 1.0, size=(S, A, 1)) / np.linalg.norm(phi, axis=2, keepdims=True)
    P = np.eye(S)[rng.integers(S, size=(S, A))]
    env = FiniteMDP(P, rng.random((S, A)), horizon=H, initial=int(rng.integers(S)), phi=phi)
    return Problem("deterministic", env, phi)


def starts_per_agent(seed: int = 0, H: int = 3) -> Problem:
    """Agent m starts in its own state (entry m modulo three)."""
    base = simplex(seed, H=H)
    env = FiniteMDP(base.one.P, base.one.r, initial=[4, 0, 2], horizon=H, phi=base.phi)
    return Problem("starts per agent", env, base.phi)


def heterogeneous(seed: int = 0, M: int = 8, H: int = 3, closeness: float = 0.2) -> Problem:
    """A list of environments around a common one, each with moves and pay of its own."""
    base, rng = simplex(seed, H=H), np.random.default_rng([seed, 5])
    P, r, envs = np.asarray(base.one.P), np.asarray(base.one.r), []
    for _ in range(M):
        noise, pay = _laws(rng, *P.shape), rng.random(r.shape)
        mixed = (1 - closeness) * P + closeness * noise
        envs.append(
            FiniteMDP(
                mixed / mixed.sum(axis=-1, keepdims=True),
                (1 - closeness) * r + closeness * pay,
                initial=int(rng.integers(P.shape[-1])),
                horizon=H,
                phi=base.phi,
            )
        )
    return Problem("heterogeneous", envs, base.phi, features=base.phi)


class Drift(ContinuousMDP):
    """A point on the circle [0, 1) that actions push by different amounts, with or without noise.
    Its values have no closed form: zeros stand for them, and its regret says nothing."""

    def __init__(self, horizon: int, noise: float, push: Sequence[float] = (-0.11, 0.05, 0.23)):
        self.name = "Drift"
        self.horizon, self.n_actions, self.state_dim = horizon, len(push), 1
        self.draws_at_reset, self.draws_per_step = 2, 3
        self._noise, self._push = noise, np.asarray(push)

    def reset(self, u: Array, agents: Array) -> Array:
        """Two draws, averaged, so that a reset that consumes one too few is noticed."""
        return ((u[:, :1] + u[:, 1:2]) / 2 + 0.1 * agents[:, None]) % 1.0

    def step(self, h: int, x: Array, a: Array, u: Array) -> tuple[Array, Array]:
        pay = 0.5 + 0.5 * np.sin(2 * np.pi * (x[:, 0] + 0.1 * h)) * (0.5 + 0.5 * u[:, 2])
        kick = self._noise * (u[:, 0] + u[:, 1] - 1.0)
        return pay, ((x[:, 0] + self._push[a] + kick) % 1.0)[:, None]

    def default_features(self) -> FeatureMap:
        return CallableFeatures(bumps(self.n_actions, 5), simplex=True).bind(self)

    def optimal_values_at(self, x: Array) -> Array:
        return np.zeros(len(x))

    def policy_values_at(self, policy: Any, x: Array) -> Array:
        return np.zeros(len(x))


def bumps(n_actions: int, d: int) -> Callable[[Array], Array]:
    """Normalised Gaussian bumps on uneven knots, seen through another warp by every action: no two
    actions have features of equal norm, so round-off decides nothing."""
    knots = np.linspace(0.0, 1.0, d) ** 1.3

    def phi(states: Array) -> Array:
        a = np.arange(n_actions)
        y = (states[:, :1] * (1.0 + 0.3 * a) + 0.37 * a) % 1.0
        raw = np.exp(-(((y[..., None] - knots) / 0.25) ** 2))
        return np.asarray(raw / raw.sum(axis=-1, keepdims=True))

    return phi


def continuous(noise: float = 0.1, d: int = 5, H: int = 3) -> Problem:
    """Real states; without noise the only randomness is the start."""
    env, phi = Drift(H, noise), bumps(3, d)
    return Problem("continuous" if noise else "continuous deterministic", env, phi, features=phi)


def half(h: int, x: Array) -> Array:
    """On the left half of [0, 1] no action 2, on the right none 0; at step 2 action 1 as well."""
    table = np.ones((len(x), 3), bool)
    table[x[:, 0] < 0.5, 2] = False
    table[x[:, 0] >= 0.5, 0] = False
    table[:, 1] &= h != 2
    return table


def masked() -> Problem:
    """`continuous` with those actions alone that `half` allows."""
    free = continuous()
    return Problem("masked", restrict(free.envs, half), free.phi, free.features)


def mask(seed: int, *shape: int) -> Array:
    """Half of the actions, at random, and at least one in every state."""
    table = np.random.default_rng(seed).random(shape) < 0.5
    table[..., seed % shape[-1]] |= ~table.any(axis=-1)
    return table


def masks_of_their_own(M: int = 3) -> tuple[Problem, list[Array]]:
    """Agents that differ, also in what they may do; and their masks (S, A)."""
    apart = heterogeneous(0, M=M)
    tables = [mask(m, apart.one.n_states, apart.one.n_actions) for m in range(M)]
    envs = [restrict(env, table) for env, table in zip(apart.envs, tables, strict=True)]
    return Problem("each its own", envs, apart.phi, apart.features), tables


def continuous_linear(seed: int = 0, H: int = 3) -> Problem:
    """The library's own linear MDP on [0, 1], whose V* and V^π are known. With three actions and
    five knots no two actions see hat features of equal norm."""
    env = ContinuousLinearMDP(dim=5, n_actions=3, horizon=H, seed=seed, points=64)
    return Problem("continuous linear", env, env.default_features())


def finite_zoo() -> list[Problem]:
    """One of each finite kind; agents beyond a list's length never occur (M ≤ 8)."""
    return [
        simplex(0), simplex(1, anchors=True), one_hot(0), transition_rewards(0), chain(),
        deterministic(0), starts_per_agent(0),
    ]  # fmt: skip
