"""What an environment shows and which actions it takes, in words that JSON knows.

With them a policy is asked with the environment's own observations and answers with its own
actions, also after it was saved. An observation is described by one of

    {"choices": [n, …], "first": […], "shape": […]}    Discrete, MultiDiscrete
    {"numbers": [shape], "dtype": …}                   Box, MultiBinary
    {"parts": [descriptions, or by name]}              Tuple, Dict
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.errors import InvalidInput

Description = dict[str, Any]


@dataclass(frozen=True)
class Spaces:
    """Sizes that the learner counts, and how the environment itself writes them."""

    observation: Description
    n_actions: int | None
    """None where an older file does not say."""
    n_states: int | None = None
    """Where states are numbers; the one after the end of an episode is among them."""
    state_dim: int | None = None
    """Where they are vectors."""
    first_action: int = 0
    after_end: bool | None = None
    """Whether the last state is the one after the end, never observed; None where an older file
    does not say."""

    @classmethod
    def of(cls, env: Any) -> Spaces:
        """Those of an environment of this package, or of a Gymnasium one behind it."""
        n_actions, first = int(env.n_actions), int(getattr(env, "first_action", 0))
        if hasattr(env, "n_states"):
            n, after = int(env.n_states), bool(getattr(env, "after_end", False))
            seen = numbered(n - after, int(getattr(env, "first_observation", 0)))
            return cls(seen, n_actions, n_states=n, first_action=first, after_end=after)
        space = getattr(env, "space", None)
        space = None if _kind(space) is None else space
        dim = int(env.state_dim)
        plain = space is None or (_kind(space) == "Box" and len(space.shape) == 1)
        # what has no description is asked for as the vector that it is flattened into
        known = None if plain else describe(space)
        return cls(known or vectors(dim), n_actions, state_dim=dim, first_action=first)

    def state(self, observation: Any) -> np.ndarray:
        """An observation as a batch of one state: int (1,), or float (1, s)."""
        if self.n_states is not None:
            number = int(_choices("state", self.observation, observation))
            return np.array([number - self.observation["first"][0]])
        return self.states(flatten(self.observation, observation)[None])

    def states(self, batch: Any) -> np.ndarray:
        """A batch of states as the learner sees them: numbers (n,) from 0, or vectors (n, s)."""
        if self.n_states is not None:
            array = _integers("states", batch)
            if array.ndim != 1:
                raise InvalidInput(f"states have shape {array.shape}: give (n,) numbers of states")
            return _within("state", array, np.zeros_like(array), self.n_states)
        array = _array("states", batch).astype(np.float64)
        if array.ndim != 2 or array.shape[1] != self.state_dim:
            raise InvalidInput(f"states have shape {array.shape}: give (n, {self.state_dim})")
        if not np.isfinite(array).all():
            raise InvalidInput(
                f"state holds {array[~np.isfinite(array)][0]}: replace it by a finite number"
            )
        return array

    def fits(self, world: Any) -> bool:
        """Whether a Gymnasium world, which has a state after the end, is of this size."""
        seen = getattr(world, "n_states", None)
        sizes = {None: (0, 1), True: (0,), False: (1,)}[self.after_end]
        numbers = self.n_states in [None if seen is None else seen - less for less in sizes]
        actions = self.n_actions in (None, world.n_actions)
        return numbers and actions and self.state_dim == getattr(world, "state_dim", None)

    def words(self) -> str:
        """16 states and 4 actions."""
        states = f"observations of {plural(self.state_dim or 0, 'number')}"
        if self.n_states is not None:
            states = plural(self.observation["choices"][0], "state")
        if self.n_actions is None:
            return states
        return f"{states} and {plural(self.n_actions, 'action')}"


def check_same(policy: Any, world: Any) -> None:
    """Refuse a world of another size than the one in which a policy was learned."""
    own: Spaces | None = getattr(policy, "spaces", None)  # what only acts has none
    if own is not None and not own.fits(world):
        raise InvalidInput(
            f"{world.name} has {Spaces.of(world).words()}, the policy was learned with "
            f"{own.words()}: give the environment that it was learned in"
        )


def numbered(n: int, first: int = 0) -> Description:
    """Observations first … first+n−1."""
    return {"choices": [n], "first": [first], "shape": []}


def vectors(dim: int) -> Description:
    """Observations of `dim` numbers."""
    return {"numbers": [dim], "dtype": "float64"}


def describe(space: Any) -> Description | None:
    """A Gymnasium space in words; None where it is none of the above."""
    kind = _kind(space)
    if kind == "Discrete":
        return numbered(int(space.n), int(space.start))
    if kind == "MultiDiscrete":
        first = np.broadcast_to(getattr(space, "start", 0), space.nvec.shape)
        sizes = {"choices": space.nvec.ravel().tolist(), "first": first.ravel().tolist()}
        return {**sizes, "shape": list(space.nvec.shape)}
    if kind in ("Box", "MultiBinary"):
        return {"numbers": [int(n) for n in space.shape], "dtype": np.dtype(space.dtype).name}
    if kind == "Tuple":
        row = [describe(part) for part in space.spaces]
        return None if None in row else {"parts": row}
    if kind == "Dict":
        named = {key: describe(part) for key, part in space.spaces.items()}
        written = all(isinstance(key, str) for key in named)
        return {"parts": named} if written and None not in named.values() else None
    return None


def _kind(space: Any) -> str | None:
    """The class of `gymnasium.spaces` that a space is of, without importing Gymnasium."""
    known = ("Discrete", "MultiDiscrete", "Box", "MultiBinary", "Tuple", "Dict")
    return next((cls.__name__ for cls in type(space).__mro__ if cls.__name__ in known), None)


def flatten(space: Description, observation: Any, field: str = "state") -> np.ndarray:
    """The numbers of an observation as `gymnasium.spaces.flatten` lays them out."""
    if "parts" in space:
        return np.concatenate([flatten(*part) for part in _parts(field, space, observation)])
    if "choices" in space:
        chosen = _choices(field, space, observation).ravel() - np.array(space["first"], np.int64)
        ends = np.cumsum(space["choices"])
        one_hot = np.zeros(ends[-1])
        one_hot[ends - space["choices"] + chosen] = 1.0
        return one_hot
    array = _shaped(field, _array(field, observation), space["numbers"])
    return array.astype(space["dtype"]).astype(np.float64).ravel()


def _parts(field: str, space: Description, observation: Any) -> list[tuple[Description, Any, str]]:
    """(description, observation, name) of every part."""
    parts = space["parts"]
    if isinstance(parts, dict):
        if not isinstance(observation, Mapping) or set(observation) != set(parts):
            raise InvalidInput(f"{field} is {observation!r}: give a dictionary with {list(parts)}")
        return [(part, observation[key], f"{field}[{key!r}]") for key, part in parts.items()]
    whole = isinstance(observation, Sequence | np.ndarray) and len(observation) == len(parts)
    if not whole or isinstance(observation, str):
        raise InvalidInput(f"{field} is {observation!r}: give a tuple of {len(parts)}")
    return [(part, observation[i], f"{field}[{i}]") for i, part in enumerate(parts)]


def _choices(field: str, space: Description, value: Any) -> np.ndarray:
    """Whole numbers, each within its own range."""
    array = _shaped(field, _integers(field, value), space["shape"])
    first = np.reshape(space["first"], space["shape"])
    return _within(field, array, first, np.reshape(space["choices"], space["shape"]))


def _within(field: str, array: np.ndarray, first: Any, sizes: Any) -> np.ndarray:
    first, sizes = np.broadcast_to(first, array.shape), np.broadcast_to(sizes, array.shape)
    wrong = (array < first) | (array >= first + sizes)
    if wrong.any():
        low, n, got = (int(part[wrong][0]) for part in (first, sizes, array))
        raise InvalidInput(f"{field} must be from {low} to {low + n - 1}, got {got}")
    return array


def _integers(field: str, value: Any) -> np.ndarray:
    array = _array(field, value)
    if array.dtype.kind == "f" and not (np.isfinite(array) & (array == np.floor(array))).all():
        raise InvalidInput(f"{field} is {value!r}: give whole numbers, the numbers of states")
    return array.astype(np.int64)


def _shaped(field: str, array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The array in this shape; a number alone may stand for an array of one, and the reverse."""
    if array.shape != tuple(shape) and not array.size == 1 == np.prod(shape):
        raise InvalidInput(
            f"{field} has shape {array.shape}: give the environment's own, of shape {tuple(shape)}"
        )
    return array.reshape(shape)


def _array(field: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:  # ragged
        array = np.array(None)
    if array.dtype.kind not in "biuf":
        raise InvalidInput(f"{field} is {value!r}: give numbers")
    return array
