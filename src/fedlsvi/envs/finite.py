"""Finite Markov decision processes given by arrays, and backward induction in them:

    Q_h(x,a) = r_h(x,a) + Σ_{x'} P_h(x'|x,a) V_{h+1}(x'),   V_{H+1} = 0.

P is (1 or H, S, A, S) and r is (1 or H, S, A); a leading 1 means the same at every step. Values are
(H+1, S): row h−1 belongs to step h, the last row is zero.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlsvi.envs.base import Environment
from fedlsvi.envs.policy_table import not_a_policy
from fedlsvi.envs.validation import (
    count,
    horizon_of,
    initial_laws,
    mask_table,
    rewards,
    transitions,
)
from fedlsvi.errors import InvalidEnvironment, InvalidInput
from fedlsvi.features.base import FeatureMap
from fedlsvi.features.tabular import OneHot, TableFeatures

if TYPE_CHECKING:
    from fedlsvi.core.alias import AliasTables


class FiniteMDP(Environment):
    """An MDP with states 0..S−1 and actions 0..A−1.

    `P`, `r` (mean rewards) and `reward_on_transition` keep a leading axis of 1 where stationary.
    Draw 0 of an episode picks the first state, draw h the transition out of step h.

    Args:
        P: Laws of the next state, (S, A, S), or (H, S, A, S) with one per step.
        r: Rewards in [0, 1], (S, A) or (H, S, A); or per transition, (S, A, S) or (H, S, A, S).
        horizon: H; may be left out where P or r has a leading axis of H > 1 steps.
        initial: A state; a law of floats (S,); a list of states or laws (M, S), one per agent
            (agent m uses entry m mod M); or "uniform". Integers are states, floats are laws.
        phi: Features (S, A, d) in which the problem is linear, if any; else features are one-hot.
        name: What reports call it.
        allowed: Actions that may be taken, booleans (S, A) or (H, S, A); None is all of them. V* is
            that of the allowed actions.
    """

    finite = True
    mixture: np.ndarray | None = None
    """φ(x'|x,a) of a linear mixture, with its coordinates on the first axis, (d, S, A, S); None
    where there is none."""

    def __init__(
        self,
        P: Any,
        r: Any,
        *,
        horizon: int | None = None,
        initial: Any = 0,
        phi: Any = None,
        name: str = "FiniteMDP",
        allowed: Any = None,
    ) -> None:
        self.name = name
        self.P = transitions(P)
        self.n_states, self.n_actions = self.P.shape[1:3]
        known = {count("horizon", horizon)} if horizon is not None else {len(self.P)} - {1}
        given = rewards(r, self.n_states, self.n_actions, known, P_is_stepped=np.ndim(P) == 4)
        self.horizon = horizon_of(horizon, {"P": len(self.P), "r": len(given)})
        self.reward_on_transition: np.ndarray | None = None
        if given.ndim == 4:
            # the mean depends on h as soon as P or r does; both arrays then have H steps
            steps = max(len(self.P), len(given))
            per_step = np.broadcast_to(given, (steps, *given.shape[1:]))
            self.reward_on_transition = np.ascontiguousarray(per_step)
            given = np.einsum("hxay,hxay->hxa", self.P, per_step).clip(0.0, 1.0)
        self.r = np.ascontiguousarray(given)
        self._initial = initial_laws(initial, self.n_states)
        self._features: FeatureMap = OneHot() if phi is None else TableFeatures(phi)
        self._features = self._features.bind(self)
        if allowed is not None:
            self.allowed = mask_table(allowed, self.n_states, self.n_actions, self.horizon)
        self.freeze()

    def freeze(self) -> None:
        """Nobody writes into what an environment is made of."""
        known = vars(self)
        computed = [known.get(name, ()) for name in ("tables", "initial_tables", "_optimum")]
        made_of = (self.P, self.r, self.reward_on_transition, self._initial, self.allowed)
        for array in chain(made_of, *computed):
            if array is not None:
                array.setflags(write=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # arrays come out of a pickle writable, which compiled kernels take for another type
        vars(self).update(state)
        self.freeze()

    @cached_property
    def stationary(self) -> bool:  # type: ignore[override]
        """Whether P and r are the same at every step."""
        per_step = (self.P, self.r if self.reward_on_transition is None else None)
        arrays = (*per_step, self.reward_on_transition)
        return all(a is None or len(a) == 1 or bool((a == a[0]).all()) for a in arrays)

    @cached_property
    def repeats(self) -> bool:  # type: ignore[override]
        """Whether every pair (x, a) has a single next state."""
        return bool((self.P.max(axis=-1) == 1.0).all())

    @property
    def phi(self) -> np.ndarray | None:
        """Its own features (S, A, d), or None where they are one-hot."""
        return self._features.table if isinstance(self._features, TableFeatures) else None

    def default_features(self) -> FeatureMap:
        return self._features

    def transition(self, h: int) -> np.ndarray:
        """P_h (S, A, S)."""
        return at(self.P, self._step(h))

    def reward(self, h: int) -> np.ndarray:
        """Mean rewards r_h (S, A)."""
        return at(self.r, self._step(h))

    @property
    def initial_laws(self) -> np.ndarray:
        """The laws of the first state (entries, S); agent m uses entry m mod entries."""
        return self._initial

    def initial_law(self, agent: int) -> np.ndarray:
        """The law (S,) of the first state of `agent`."""
        law: np.ndarray = self._initial[agent % len(self._initial)]
        return law

    # ── values ──────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def _optimum(self) -> tuple[np.ndarray, np.ndarray]:
        optimum = optimal(self.P, self.r, self.horizon, self.allowed)
        for array in optimum:
            array.setflags(write=False)
        return optimum

    def optimal_values(self) -> np.ndarray:
        """V* (H+1, S): row h−1 is step h, the last row is zero."""
        return self._optimum[0]

    def greedy_policy(self) -> np.ndarray:
        """An optimal policy (H, S)."""
        return self._optimum[1]

    def policy_values(self, policy: Any) -> np.ndarray:
        """V^π (H+1, S) of actions, int (H, S), or of action probabilities, float (H, S, A)."""
        pi = np.asarray(policy)
        shape = (self.horizon, self.n_states)
        if pi.dtype.kind in "iu":
            if pi.shape != shape or pi.min() < 0 or pi.max() >= self.n_actions:
                raise not_a_policy(pi, self)
        elif pi.dtype.kind != "f" or pi.shape != (*shape, self.n_actions):
            raise InvalidInput(
                f"policy has shape {pi.shape} and type {pi.dtype}: give integers of shape {shape} "
                f"or probabilities of shape {(*shape, self.n_actions)}",
                code="bad-policy",
            )
        elif not (pi.min() >= 0.0 and np.abs(pi.sum(axis=-1) - 1.0).max() <= 1e-9):
            raise InvalidInput(
                "policy has rows that are not probabilities: make each policy[h, x] non-negative "
                "with sum 1",
                code="bad-policy",
            )
        if pi.ndim == 2 and self._cells is not None:
            from fedlsvi.envs import sparse_planning

            values = np.zeros((self.horizon + 1, self.n_states))
            sparse_planning.evaluate(*self._cells, self.r, pi, len(self.P) == 1, values)
            return values
        return evaluate(self.P, self.r, self.horizon, pi)

    @cached_property
    def _cells(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """The entries of P that are not zero, where there are many states and few of these."""
        if self.n_states < 128:  # spares the import
            return None
        from fedlsvi.envs import sparse_planning

        return sparse_planning.cells(self.P)

    def uniform_values(self) -> np.ndarray:
        """V of the policy that draws every allowed action with the same probability."""
        return self.policy_values(self.uniform_policy())

    def uniform_policy(self) -> np.ndarray:
        """(H, S, A): every allowed action has the same probability."""
        shape = (self.horizon, self.n_states, self.n_actions)
        if self.allowed is None:
            return np.full(shape, 1.0 / self.n_actions)
        share = self.allowed / self.allowed.sum(axis=-1, keepdims=True)
        return np.ascontiguousarray(np.broadcast_to(share, shape))

    # ── sampling ────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def tables(self) -> AliasTables:
        """Alias tables of the rows of P: row ((h−1)·S + x)·A + a, without h where stationary."""
        from fedlsvi.core import alias

        return alias.build(self.P.reshape(-1, self.n_states))

    @cached_property
    def initial_tables(self) -> AliasTables:
        """Alias tables of the laws of the first state; agent m uses row m mod rows."""
        from fedlsvi.core import alias

        return alias.build(self._initial)

    def first_state(self, agent: int, u: float) -> int:
        """The first state of `agent` at the uniform u."""
        from fedlsvi.core import alias

        return alias.draw(self.initial_tables, agent % len(self._initial), u)

    def step(self, h: int, x: int, a: int, u: float) -> tuple[float, int]:
        """(reward, next state) of action a in state x at step h, at the uniform u."""
        from fedlsvi.core import alias

        offset = self._step(h) - 1 if len(self.P) > 1 else 0
        y = alias.draw(self.tables, (offset * self.n_states + x) * self.n_actions + a, u)
        if self.reward_on_transition is not None:
            return float(at(self.reward_on_transition, h)[x, a, y]), y
        return float(at(self.r, h)[x, a]), y

    # ── identity ────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that determines its trajectories and default features."""
        digest = hashlib.sha256(f"{self.horizon}".encode())
        parts = [self.P, self.r, self.reward_on_transition, self._initial, self.phi]
        for array in parts if self.allowed is None else [*parts, self.allowed]:
            digest.update(b"none" if array is None else f"{array.shape}".encode() + array.tobytes())
        return digest.hexdigest()

    def describe(self) -> dict[str, Any]:
        if self.made_with is not None:
            return super().describe()
        sizes = {key: getattr(self, key) for key in ("n_states", "n_actions", "horizon")}
        return self.titled() | sizes | {"fingerprint": self.fingerprint}

    @property
    def shown(self) -> dict[str, Any]:
        """What arrays do not tell of the environment that was read into them."""
        return {
            "reward_range": self.reward_range, "first_observation": self.first_observation,
            "first_action": self.first_action, "after_end": self.after_end,
        }  # fmt: skip

    def titled(self) -> dict[str, str]:
        """{"title": name}, where arrays were given a name."""
        return {} if self.name == "FiniteMDP" else {"title": self.name}

    def _step(self, h: int) -> int:
        if not 1 <= h <= self.horizon:
            raise InvalidEnvironment(
                f"h is {h}: give a step from 1 to {self.horizon}", code="bad-step"
            )
        return h


def at(array: np.ndarray, h: int) -> np.ndarray:
    """The slice of step h (1-based) of an array whose leading axis is 1 or H."""
    part: np.ndarray = array[h - 1 if len(array) > 1 else 0]
    return part


def optimal(
    P: np.ndarray, r: np.ndarray, horizon: int, allowed: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """V* (H+1, S) and the greedy policy (H, S); ties go to the lowest action. `allowed` is a mask
    (1 or H, S, A)."""
    n_states = P.shape[-1]
    values = np.zeros((horizon + 1, n_states))
    policy = np.empty((horizon, n_states), np.int64)
    for h in range(horizon, 0, -1):
        q = at(r, h) + at(P, h) @ values[h]
        if allowed is not None:
            q = np.where(at(allowed, h), q, -np.inf)
        policy[h - 1] = q.argmax(axis=1)
        values[h - 1] = q.max(axis=1)
    return values, policy


def evaluate(P: np.ndarray, r: np.ndarray, horizon: int, policy: np.ndarray) -> np.ndarray:
    """V^π (H+1, S) of actions int (H, S) or of action probabilities float (H, S, A)."""
    n_states, n_actions = P.shape[1:3]
    values = np.zeros((horizon + 1, n_states))
    if policy.ndim == 3:
        for h in range(horizon, 0, -1):
            q = at(r, h) + at(P, h) @ values[h]
            values[h - 1] = np.einsum("xa,xa->x", policy[h - 1], q)
        return values
    # only the S rows that the policy visits are gathered: S² entries instead of S²·A
    laws = P.reshape(-1, n_states)
    means = r.reshape(-1)
    rows = np.arange(n_states) * n_actions + policy
    step = n_states * n_actions
    p_offset = step if len(P) > 1 else 0
    r_offset = step if len(r) > 1 else 0
    for h in range(horizon - 1, -1, -1):
        chosen = laws.take(rows[h] + h * p_offset, axis=0)
        values[h] = means.take(rows[h] + h * r_offset) + chosen @ values[h + 1]
    return values
