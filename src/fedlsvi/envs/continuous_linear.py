"""A linear MDP on [0, 1] whose V* is known exactly."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from fedlsvi.envs.continuous import ContinuousMDP, Policy
from fedlsvi.envs.quantiles import QuantileLaws, beta_laws
from fedlsvi.envs.validation import as_array, count
from fedlsvi.errors import InvalidEnvironment
from fedlsvi.features.hat import HatFeatures

FINEST = 10_000_000
"""Points and cells at most: a grid of 80 MB."""


class ContinuousLinearMDP(ContinuousMDP):
    """A linear MDP on [0, 1] with hat features on d knots.

        φ(x,a): hat functions at T_a(x) = 1 − |2·frac(x + a/A) − 1|   (simplex, two non-zeros)
        P(·|x,a) = Σ_i φ_i(x,a) μ_i,   r_h(x,a) = ⟨φ(x,a), θ_h⟩,   θ_h ~ U[0,1]^d.

    μ_i is Beta(a_i, b_i) cut into `cells` equally likely pieces, uniform inside each: that is the
    law that is sampled (pick i ~ φ, then x' by its quantile table) and the law that is integrated,
    so the values below belong to the very process simulated. V*_h is piecewise linear, and
    w_h = θ_h + ∫V*_{h+1} dμ is computed piece by piece: V* is exact up to rounding (about 1e-13).
    V^π asks the policy at `points` places and at every kink and bisects each change of action that
    it sees; it is good to about 1e-9 when no action comes back between two neighbouring places.

    Args:
        dim: d, the number of knots.
        n_actions: A.
        horizon: H.
        seed: Of the laws and rewards.
        initial: A state in [0, 1], "uniform", or a list of states, one per agent.
        points: Places at which V^π asks the policy.
        cells: Pieces into which each law is cut.
    """

    registry_name = "continuous-linear"
    state_dim = 1
    draws_per_step = 2

    def __init__(
        self,
        dim: int = 8,
        n_actions: int = 3,
        horizon: int = 5,
        seed: int = 0,
        initial: Any = "uniform",
        points: int = 1024,
        cells: int = 1024,
    ) -> None:
        self.name = "ContinuousLinearMDP"
        self.dim, self.n_actions = count("dim", dim, 2), count("n_actions", n_actions)
        self.horizon, self.points = count("horizon", horizon), count("points", points, 2, FINEST)
        seed, cells = count("seed", seed, 0), count("cells", cells, 1, FINEST)
        self._initial = _initial_states(initial)
        rng = np.random.default_rng(seed)
        self.a = 1.0 + 9.0 * rng.random(self.dim)
        self.b = 1.0 + 9.0 * rng.random(self.dim)
        self.theta = rng.random((self.horizon, self.dim))
        self.laws: QuantileLaws = beta_laws(self.a, self.b, cells)
        for array in (self.a, self.b, self.theta):
            array.setflags(write=False)
        self.record(
            dim=self.dim,
            n_actions=self.n_actions,
            horizon=self.horizon,
            seed=seed,
            initial=initial,
            points=self.points,
            cells=cells,
        )

    def default_features(self) -> HatFeatures:
        return HatFeatures(self.dim, self.n_actions)

    def reset(self, u: np.ndarray, agents: np.ndarray) -> np.ndarray:
        if self._initial is None:
            return np.array(u[:, :1], dtype=np.float64)
        states: np.ndarray = self._initial[np.asarray(agents) % len(self._initial), None]
        return states

    def step(
        self, h: int, x: np.ndarray, a: np.ndarray, u: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        from fedlsvi.envs import continuous_linear_kernels

        if not 1 <= h <= self.horizon:
            raise InvalidEnvironment(
                f"h is {h}: give a step from 1 to {self.horizon}", code="bad-step"
            )
        reward, following = np.empty(len(x)), np.empty((len(x), 1))
        continuous_linear_kernels.step(
            self.theta[h - 1], self.laws.edges, self.n_actions, x, a, u, reward, following
        )
        return reward, following

    # ── values ──────────────────────────────────────────────────────────────────────────────────

    def optimal_values_at(self, x: np.ndarray) -> np.ndarray:
        values: np.ndarray = self._q(x, self.optimal_weights[0]).max(axis=1)
        return values

    def greedy_policy(self, h: int, x: np.ndarray) -> np.ndarray:
        """An optimal policy; ties go to the lowest action."""
        actions: np.ndarray = self._q(x, self.optimal_weights[h - 1]).argmax(axis=1)
        return actions

    def uniform_values_at(self, x: np.ndarray) -> np.ndarray:
        """V₁ (n,) of the policy that draws every action with probability 1/A."""
        left, right = self.laws.weights(self._kinks)
        w = np.zeros(self.dim)
        for h in range(self.horizon, 0, -1):
            v = self._q(self._kinks, w).mean(axis=1)
            w = self.theta[h - 1] + (left @ v[:-1] + right @ v[1:] if h < self.horizon else 0.0)
        values: np.ndarray = self._q(x, w).mean(axis=1)
        return values

    def policy_values_at(self, policy: Policy, x: np.ndarray) -> np.ndarray:
        w = self.policy_weights(policy)[0]
        values: np.ndarray = np.take_along_axis(self._q(x, w), policy(1, x)[:, None], 1)[:, 0]
        return values

    @cached_property
    def optimal_weights(self) -> np.ndarray:
        """w*_h (H, d) with Q*_h = ⟨φ, w*_h⟩."""
        weights = np.empty((self.horizon, self.dim))
        weights[-1] = self.theta[-1]
        for h in range(self.horizon - 1, 0, -1):
            z = self._envelope(weights[h])
            left, right = self.laws.weights(z)
            v = self._q(z, weights[h]).max(axis=1)
            weights[h - 1] = self.theta[h - 1] + left @ v[:-1] + right @ v[1:]
        weights.setflags(write=False)
        return weights

    def policy_weights(self, policy: Policy) -> np.ndarray:
        """w^π_h (H, d) with Q^π_h = ⟨φ, w^π_h⟩."""
        z = self._grid
        left, right = self._grid_weights
        weights = np.empty((self.horizon, self.dim))
        weights[-1] = self.theta[-1]
        for h in range(self.horizon - 1, 0, -1):
            actions = np.asarray(policy(h + 1, z[:, None]))
            first, last = actions[:-1], actions[1:]
            q = self._q(z, weights[h])
            cell = np.arange(len(first))
            w = left @ q[cell, first] + right @ q[cell + 1, first]
            # where the action changes inside a cell, the part behind each change is put right
            cell = np.flatnonzero(first != last)
            low, high, before, end = z[cell], z[cell + 1], first[cell], last[cell]
            for _ in range(self.n_actions):
                if not len(low):
                    break
                s = self._change(policy, h + 1, low, high, before)
                after = np.asarray(policy(h + 1, s[:, None]))
                w += self._tails(s, high, *self._gains(s, high, before, after, weights[h]))
                left_over = after != end
                low, high, before, end = (v[left_over] for v in (s, high, after, end))
            weights[h - 1] = self.theta[h - 1] + w
        return weights

    def _q(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        """⟨φ(x,a), w⟩ (n, A): linear interpolation of w over the knots, at T_a(x)."""
        y = np.reshape(x, -1)[:, None] + np.arange(self.n_actions) / self.n_actions
        t = 1.0 - np.abs(2.0 * (y - np.floor(y)) - 1.0)
        q: np.ndarray = np.interp(t, np.linspace(0.0, 1.0, self.dim), w)
        return q

    @cached_property
    def _kinks(self) -> np.ndarray:
        """Where some T_a(x) meets a knot: between two of these every Q(·,a) is linear."""
        turns = np.arange(2 * (self.dim - 1)) / (2.0 * (self.dim - 1))
        shifts = np.arange(self.n_actions) / self.n_actions
        return _distinct(np.append((turns[:, None] - shifts).ravel() % 1.0, (0.0, 1.0)))

    @cached_property
    def _grid(self) -> np.ndarray:
        return _distinct(np.append(self._kinks, np.linspace(0.0, 1.0, self.points + 1)))

    @cached_property
    def _grid_weights(self) -> tuple[np.ndarray, np.ndarray]:
        return self.laws.weights(self._grid)

    def _envelope(self, w: np.ndarray) -> np.ndarray:
        """The kinks and every crossing of two actions: max_a Q(·,a) is linear in between."""
        z = self._kinks
        q = self._q(z, w)
        gap = q[:, :, None] - q[:, None, :]
        low, high = gap[:-1], gap[1:]
        crossing = low * high < 0.0
        cell = np.nonzero(crossing)[0]
        t = low[crossing] / (low[crossing] - high[crossing])
        return _distinct(np.append(z, z[cell] + t * (z[cell + 1] - z[cell])))

    def _change(
        self, policy: Policy, h: int, low: np.ndarray, high: np.ndarray, action: np.ndarray
    ) -> np.ndarray:
        """The first place found, above low, where the policy has left `action`; by bisection."""
        for _ in range(24):  # 2⁻²⁴ of a cell of width ≤ 1/points: about 6e-11
            middle = 0.5 * (low + high)
            same = np.asarray(policy(h, middle[:, None])) == action
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        return high

    def _gains(
        self, s: np.ndarray, z: np.ndarray, before: np.ndarray, after: np.ndarray, w: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Q(·, after) − Q(·, before) at s and at z."""
        rows = np.arange(len(s))
        at_s, at_z = self._q(s, w), self._q(z, w)
        return at_s[rows, after] - at_s[rows, before], at_z[rows, after] - at_z[rows, before]

    def _tails(
        self, s: np.ndarray, z: np.ndarray, at_s: np.ndarray, at_z: np.ndarray
    ) -> np.ndarray:
        """Σ_k ∫ over [s_k, z_k] of the linear function from at_s to at_z, under each law."""
        (mass_s, moment_s), (mass_z, moment_z) = self.laws.primitives(s), self.laws.primitives(z)
        mass, width = mass_z - mass_s, z - s
        slope = np.divide(at_z - at_s, width, out=np.zeros_like(s), where=width > 0.0)
        tails: np.ndarray = mass @ at_s + (moment_z - moment_s - s * mass) @ slope
        return tails


def _distinct(z: np.ndarray) -> np.ndarray:
    """Sorted, without points that differ only by rounding; 0 and 1 stay."""
    z = np.sort(z)
    keep = np.append(True, np.diff(z) > 1e-13)
    z = z[keep]
    z[-1] = 1.0
    return z


def _initial_states(initial: Any) -> np.ndarray | None:
    """One state per entry, or None for uniform."""
    if isinstance(initial, str):
        if initial == "uniform":
            return None
        raise InvalidEnvironment(
            f"initial is '{initial}': give a state in [0, 1], a list of them, or 'uniform'",
            code="bad-initial",
        )
    states = np.atleast_1d(as_array("initial", initial))
    if states.ndim != 1 or not states.size:
        raise InvalidEnvironment(
            f"initial has shape {states.shape}: give a state in [0, 1] or a list of them",
            code="bad-initial",
        )
    bad = ~((states >= 0.0) & (states <= 1.0))
    if bad.any():
        m = int(np.flatnonzero(bad)[0])
        raise InvalidEnvironment(
            f"initial[agent={m}] is {states[m]}: give a state in [0, 1]", code="bad-initial"
        )
    states.setflags(write=False)
    return states
