"""Features of finite state spaces: an (S, A, d) table, and its special case, one-hot."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.errors import InvalidFeatures
from fedlsvi.features.base import Bindable, FeatureMap, as_features, check_norms, flags, unbound


def finite_states(what: str, env: Bindable) -> int:
    """The number of states of `env`; refuses continuous states."""
    n_states: int | None = getattr(env, "n_states", None)
    if n_states is None:
        raise InvalidFeatures(
            f"{what} features need a finite state space, but {env.name} has a continuous one: "
            "give a callable, or features named hat, rbf or fourier",
            code="needs-finite-states",
        )
    return n_states


def states_of(env: Any) -> str:
    """'4 states', and why, where that is one more than the environment itself numbers."""
    n = env.n_states
    more = f" ({n - 1} and, last, the one after the end of an episode)"
    return f"{plural(n, 'state')}{more if getattr(env, 'after_end', False) else ''}"


def tabulated(features: FeatureMap, env: Any) -> TableFeatures:
    """The table (S, A, d) of a map at all states of a finite `env`."""
    try:
        table = features.checked(np.arange(env.n_states))
    except IndexError as error:
        raise InvalidFeatures(
            f"features raised IndexError ({error}), but {env.name} has {states_of(env)}: "
            "return features for every state",
            code="too-few-states",
        ) from error
    bound = TableFeatures(table).bind(env)
    bound.made_as, bound.privileged = features.spec(), features.privileged
    return bound


def check_table_shape(shape: tuple[int, ...], env: Bindable) -> None:
    """Refuse a table of another size than the environment's, before its norms mean anything."""
    expected = (finite_states("table", env), env.n_actions)
    if shape[:2] != expected:
        raise InvalidFeatures(
            f"features have shape {shape}, but {env.name} has {states_of(env)} and "
            f"{plural(expected[1], 'action')}: give an array of shape ({expected[0]}, "
            f"{expected[1]}, d)",
            code="bad-shape",
        )


class TableFeatures(FeatureMap):
    """φ(x,a) = table[x, a].

    Args:
        table: An (S, A, d) array with ‖φ‖ ≤ 1; copied and made read-only.
    """

    def __init__(self, table: Any) -> None:
        given = as_features("features", table)
        check_norms("features", given)
        self.table = given.copy()
        self.table.setflags(write=False)
        self.n_states, self.n_actions, self.dim = given.shape
        self.one_hot, self.nonnegative, self.simplex = flags(given)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.table.setflags(write=False)  # a pickle forgets it

    @cached_property
    def index(self) -> np.ndarray:
        """(S, A): the coordinate that is 1, if the map is one-hot; pairs may share one."""
        return np.ascontiguousarray(self.table.argmax(axis=2))

    def __call__(self, states: np.ndarray) -> np.ndarray:
        phi: np.ndarray = self.table[states]
        return phi

    def bind(self, env: Bindable) -> TableFeatures:
        check_table_shape(self.table.shape, env)
        return self


class OneHot(FeatureMap):
    """φ(x,a) = e_{x·A+a}, d = S·A: any finite MDP is linear in these. Unbound until `bind`."""

    one_hot = nonnegative = simplex = True

    def __init__(self, n_states: int = 0, n_actions: int = 0) -> None:
        self.n_states, self.n_actions, self.dim = n_states, n_actions, n_states * n_actions

    @cached_property
    def index(self) -> np.ndarray:
        """(S, A): the coordinate that is 1."""
        return np.arange(self.dim).reshape(self.n_states, self.n_actions)

    @cached_property
    def table(self) -> np.ndarray:
        """The (S, A, S·A) table, built on first use: it has (S·A)² entries."""
        if not self.dim:
            raise unbound("one-hot")
        table = np.eye(self.dim).reshape(self.n_states, self.n_actions, self.dim)
        table.setflags(write=False)
        return table

    def __call__(self, states: np.ndarray) -> np.ndarray:
        phi = np.empty((len(states), self.n_actions, self.dim))
        self.fill(states, phi)
        return phi

    def fill(self, states: np.ndarray, out: np.ndarray) -> None:
        if not self.dim:
            raise unbound("one-hot")
        out[...] = 0.0
        actions = np.arange(self.n_actions)
        rows = np.arange(len(states))[:, None]
        out[rows, actions, np.asarray(states)[:, None] * self.n_actions + actions] = 1.0

    def bind(self, env: Bindable) -> OneHot:
        expected = (finite_states("one-hot", env), env.n_actions)
        if self.dim and (self.n_states, self.n_actions) != expected:
            raise InvalidFeatures(
                f"OneHot has {plural(self.n_states, 'state')} and "
                f"{plural(self.n_actions, 'action')}, but {env.name} has {expected[0]} and "
                f"{expected[1]}: write OneHot(), and the sizes are filled in",
                code="bad-shape",
            )
        return OneHot(*expected)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        pairs = ((x, a) for x in range(self.n_states) for a in range(self.n_actions))
        return np.array([f"state {x}, action {a}" for x, a in pairs], object)

    def spec(self) -> dict[str, Any]:
        """Registered name and parameters, ready for JSON."""
        return {"name": "one-hot", "params": {}}
