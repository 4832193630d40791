"""Actions that can be numbered: a grid in a box, the combinations of several choices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from fedlsvi.checks import is_integer, plural
from fedlsvi.envs.gym.contract import is_kind
from fedlsvi.errors import InvalidEnvironment

MOST = 10_000
"""Actions; every one is scored in every state."""


class Combinations(gymnasium.ActionWrapper[Any, Any, Any]):  # type: ignore[misc]
    """Numbers the combinations of a `MultiDiscrete` action, in C order."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.sizes = tuple(env.action_space.nvec.ravel().tolist())
        self.action_space = gymnasium.spaces.Discrete(math.prod(self.sizes))

    def action(self, action: Any) -> np.ndarray:
        """The combination of a number."""
        inner = self.env.action_space
        chosen = np.reshape(np.unravel_index(int(action), self.sizes), inner.shape)
        return np.asarray(chosen + inner.start, inner.dtype)


def checked_actions(actions: Any) -> int | tuple[int, ...] | None:
    """`actions=`: a number of points, or one for each dimension."""
    many = actions if isinstance(actions, Sequence) and not isinstance(actions, str) else [actions]
    if actions is None:
        return None
    if not many or not all(is_integer(n) and n >= 1 for n in many):
        raise InvalidEnvironment(
            f"actions is {actions!r}: give how many points of each dimension of a Box may be "
            "chosen, as actions=5, or one number for each, as actions=(5, 3)",
            code="bad-actions",
        )
    return tuple(int(n) for n in many) if many is actions else int(actions)


def numbered(env: Any, name: str, actions: int | Sequence[int] | None) -> Any:
    """The environment with a `Discrete` action space, where that is what it has or can be given.

    Args:
        env: An environment.
        name: What to call it in messages.
        actions: Points of each dimension of a Box.
    """
    space: Any = getattr(env, "action_space", None)
    if is_kind(space, "Box") and actions is not None:
        return _grid(env, name, actions)
    if actions is not None:
        raise InvalidEnvironment(
            f"actions is {actions!r}, but {name} has a {type(space).__name__} action space: "
            "actions= turns a Box into a grid, leave it out",
            code="bad-actions",
        )
    if not is_kind(space, "MultiDiscrete"):
        return env
    _refuse_many(name, math.prod(space.nvec.ravel().tolist()))
    return Combinations(env)


def _grid(env: Any, name: str, actions: int | Sequence[int]) -> Any:
    """Gymnasium's own grid of a box."""
    from gymnasium.wrappers import DiscretizeAction

    space = env.action_space
    dims = int(np.prod(space.shape))
    bins = actions if isinstance(actions, int) else tuple(actions)
    _refuse_many(name, bins**dims if isinstance(bins, int) else math.prod(bins))
    try:
        return DiscretizeAction(env, bins)
    except ValueError as error:
        raise InvalidEnvironment(
            f"actions is {actions!r}, which does not fit the Box of {name} with {dims} dimensions "
            f"from {space.low.min():g} to {space.high.max():g}: {error}",
            code="bad-actions",
        ) from None


def _refuse_many(name: str, count: int) -> None:
    if count > MOST:
        raise InvalidEnvironment(
            f"{name} would have {plural(count, 'action')}, more than {MOST:,}: give fewer points "
            "of each dimension, actions=2, or fewer choices with a wrapper",
            code="too-many-actions",
        )


def make_numbered(
    make: Callable[..., Any], name: str, actions: Any, horizon: int, **more: Any
) -> Any:
    """A copy whose actions are numbers."""
    return numbered(make(horizon, **more), name, actions)
