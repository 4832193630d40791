"""What an environment shows and which actions it takes, in a form that JSON knows.

So a policy takes the environment's own observations and answers with its own actions, also after it
was saved. An observation is described by one of

    {"choices": [n, …], "first": […], "shape": […]}    Discrete, MultiDiscrete
    {"numbers": [shape], "dtype": …}                   Box, MultiBinary
    {"parts": [descriptions, or by name]}              Tuple, Dict

Observations that are made of choices alone are finite: `numbers` counts them in C order.
"""

from __future__ import annotations

import math
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
    n_actions: int
    n_states: int | None = None
    """Where states are numbers; the one after the end of an episode is among them."""
    state_dim: int | None = None
    """Where they are vectors."""
    first_action: int = 0
    after_end: bool = False
    """Whether the last state is the one after the end, which is never observed."""

    @classmethod
    def of(cls, env: Any) -> Spaces:
        """Those of an environment of this package, or of a Gymnasium one behind it."""
        n_actions, first = int(env.n_actions), int(getattr(env, "first_action", 0))
        if hasattr(env, "n_states"):
            n, after = int(env.n_states), bool(getattr(env, "after_end", False))
            seen = getattr(env, "observations", None)  # of a Gymnasium world
            if seen is None:
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
            return numbers(self.observation, [observation])
        return self.states(flatten(self.observation, observation)[None])

    def states(self, batch: Any) -> np.ndarray:
        """A batch of states as the learner sees them: numbers (n,) from 0, or vectors (n, s)."""
        if self.n_states is not None:
            array = _integers("states", batch)
            if array.ndim != 1:
                raise _bad(f"states have shape {array.shape}: give (n,) numbers of states")
            return _within("state", array, np.zeros_like(array), self.n_states)
        array = _array("states", batch).astype(np.float64)
        if array.ndim != 2 or array.shape[1] != self.state_dim:
            raise _bad(f"states have shape {array.shape}: give (n, {self.state_dim})")
        if not np.isfinite(array).all():
            raise _bad(
                f"state holds {array[~np.isfinite(array)][0]}: replace it by a finite number"
            )
        return array

    def fits(self, world: Any) -> bool:
        """Whether a Gymnasium world, which has a state after the end, is of this size."""
        seen = getattr(world, "n_states", None)
        if seen is not None and not self.after_end:
            seen -= 1
        sizes = (self.n_states, self.n_actions, self.state_dim)
        return sizes == (seen, world.n_actions, getattr(world, "state_dim", None))

    def words(self) -> str:
        """16 states and 4 actions."""
        states = f"observations of {plural(self.state_dim or 0, 'number')}"
        if self.n_states is not None:
            states = plural(count_observations(self.observation) or 0, "state")
        return f"{states} and {plural(self.n_actions, 'action')}"


def check_same(policy: Any, world: Any) -> None:
    """Refuse a world of another size than the one in which a policy was learned."""
    own: Spaces | None = getattr(policy, "spaces", None)  # what only acts has none
    if own is not None and not own.fits(world):
        raise InvalidInput(
            f"{world.name} has {Spaces.of(world).words()}, but the policy was learned with "
            f"{own.words()}: give the environment it was learned in",
            code="wrong-environment",
        )


def numbered(n: int, first: int = 0) -> Description:
    """Observations first … first+n−1."""
    return {"choices": [n], "first": [first], "shape": []}


def vectors(dim: int) -> Description:
    """Observations of `dim` numbers."""
    return {"numbers": [dim], "dtype": "float64"}


def count_observations(space: Description) -> int | None:
    """How many different observations there are; None where they hold numbers."""
    if "parts" in space:
        parts = space["parts"]
        sizes = [
            count_observations(p) for p in (parts.values() if isinstance(parts, dict) else parts)
        ]
        return None if None in sizes else math.prod(sizes)  # type: ignore[arg-type]
    return math.prod(space["choices"]) if "choices" in space else None


def numbers(space: Description, batch: Sequence[Any], field: str = "state") -> np.ndarray:
    """The places (n,) of a batch of observations among all of their space, in C order."""
    if "parts" in space:
        columns = zip(*(_parts(field, space, one) for one in batch), strict=True)
        place = np.zeros(len(batch), np.int64)
        for column in columns:
            part, _, name = column[0]
            place *= count_observations(part) or 1
            place += numbers(part, [one for _, one, _ in column], name)
        return place
    chosen = _choices(field, space, batch)
    found: np.ndarray = np.ravel_multi_index(tuple(chosen.T), space["choices"])
    return found


def describe(space: Any) -> Description | None:
    """A Gymnasium space as a description; None where it is none of the above."""
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
        chosen = _choices(field, space, [observation])[0]
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
            raise _bad(f"{field} is {observation!r}: give a dictionary with {list(parts)}")
        return [(part, observation[key], f"{field}[{key!r}]") for key, part in parts.items()]
    whole = isinstance(observation, Sequence | np.ndarray) and len(observation) == len(parts)
    if not whole or isinstance(observation, str):
        raise _bad(f"{field} is {observation!r}: give a tuple of {len(parts)}")
    return [(part, observation[i], f"{field}[{i}]") for i, part in enumerate(parts)]


def _choices(field: str, space: Description, batch: Sequence[Any]) -> np.ndarray:
    """The choices (n, k) of a batch, counted from 0, each within its own range."""
    array, first = _integers(field, batch), np.array(space["first"], np.int64)
    n, shape = len(batch), tuple(space["shape"])
    # a number alone may stand for an array of one, and the reverse
    if array.shape != (n, *shape) and not array.size == n == n * len(first):
        raise _misshapen(field, array.shape[1:], shape)
    chosen: np.ndarray = _within(field, array.reshape(n, -1), first, space["choices"]) - first
    return chosen


def _within(field: str, array: np.ndarray, first: Any, sizes: Any) -> np.ndarray:
    first, sizes = np.broadcast_to(first, array.shape), np.broadcast_to(sizes, array.shape)
    wrong = (array < first) | (array >= first + sizes)
    if wrong.any():
        low, n, got = (int(part[wrong][0]) for part in (first, sizes, array))
        raise _bad(f"{field} must be from {low} to {low + n - 1}, got {got}")
    return array


def _integers(field: str, value: Any) -> np.ndarray:
    array = _array(field, value)
    if array.dtype.kind == "f" and not (np.isfinite(array) & (array == np.floor(array))).all():
        raise _bad(f"{field} is {value!r}: give state numbers, which are integers")
    return array.astype(np.int64)


MOST_AXES = 64
"""Of an array of NumPy."""


def _shaped(field: str, array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The array in this shape; a number alone may stand for an array of one, and the reverse."""
    whole = len(shape) <= MOST_AXES and array.size == 1 == np.prod(shape)
    if array.shape != tuple(shape) and not whole:
        raise _misshapen(field, array.shape, shape)
    return array.reshape(shape)


def _misshapen(field: str, shape: Sequence[int], wanted: Sequence[int]) -> InvalidInput:
    return _bad(
        f"{field} has shape {tuple(shape)}: give the environment's own, of shape {tuple(wanted)}"
    )


def _array(field: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:  # ragged
        array = np.array(None)
    if array.dtype.kind not in "biuf":
        raise _bad(f"{field} is {value!r}: give numbers")
    return array


def _bad(message: str) -> InvalidInput:
    return InvalidInput(message, code="bad-state")
