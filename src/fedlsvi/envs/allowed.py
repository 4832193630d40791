"""Which actions are allowed in which state: A_x ⊂ A.

A mask is a boolean table (1 or H, S, A) where states are numbers, and a function
mask(h, x (n, s)) → (n, A) where they are vectors. An environment has it as `allowed`; None allows
everything. Every state must allow at least one action.

A black box tells its masks with `info["action_mask"]`; see `fedlsvi.envs.gym`.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from fedlsvi.envs.base import Environment
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.validation import mask_table
from fedlsvi.errors import InvalidEnvironment

RESTRICTED = "restricted"
"""Name of the registry's row."""


def restrict(env: Environment, allowed: Any) -> Any:
    """The same environment, in which only some actions are allowed.

    Args:
        env: An environment of this package. Where it has a mask already, both hold.
        allowed: Booleans (S, A) or (H, S, A); or a function from (h, states) to booleans (n, A):
            states are numbers (n,) where they are finite, else vectors (n, s).

    Returns:
        A copy with the mask. V* is that of the allowed actions, where states are finite.
    """
    if isinstance(env, FiniteMDP):
        size = (env.n_states, env.n_actions, env.horizon)
        table = mask_table(tabulated_mask(allowed, *size), *size)
        made = copy(env)
        for computed in ("_optimum", "fingerprint"):
            vars(made).pop(computed, None)
        made.allowed = table if env.allowed is None else mask_table(table & env.allowed, *size)
        made.freeze()
        inner = env.spec()
        made.record(RESTRICTED, env=inner, allowed=_written(table))
        if inner["name"] is None:  # nor can this one be made again by name
            made.made_as, made.made_with = None, None
        return made
    if isinstance(env, ContinuousMDP):
        if not callable(allowed):
            raise InvalidEnvironment(
                f"the states of {env.name} are vectors: give allowed=f with f(h, states (n, s)) "
                "→ booleans (n, A)",
                code="bad-allowed",
            )
        other = copy(env)
        before = env.allowed
        given = allowed
        if before is not None:
            given = lambda h, x: np.asarray(allowed(h, x), bool) & before(h, x)  # noqa: E731
        other.given_mask = given
        other.made_with, other.made_as = {}, None  # a function: no name makes it again
        return other
    raise InvalidEnvironment(
        f'{env.name} is of type {type(env).__name__}: use allowed="env" with a Gymnasium '
        'environment, which gives its masks in info["action_mask"]; for a log, give allowed= '
        "where it is read",
        code="bad-allowed",
    )


def tabulated_mask(allowed: Any, n_states: int, n_actions: int, horizon: int) -> Any:
    """A mask of finite states as an array; a function is asked at all steps and states."""
    if not callable(allowed):
        return allowed
    states = np.arange(n_states)
    return np.stack([np.asarray(allowed(h, states)) for h in range(1, horizon + 1)])


def _written(table: np.ndarray) -> list[Any]:
    """The mask as lists of 0 and 1; one for all steps without the axis of steps."""
    whole: list[Any] = table.astype(int).tolist()
    return whole[0] if len(whole) == 1 else whole


def restricted(env: Any = None, allowed: Any = None) -> Environment:
    """`restrict` by the environment's own record, as run folders and settings files write it.

    Args:
        env: An environment, or its `spec()`; left out, a small chain.
        allowed: As in `restrict`; left out, every action but the last is allowed.
    """
    from fedlsvi.envs.registry import from_spec

    if env is None:
        env = {"name": "garnet", "params": {}}
    inner: Any = from_spec(env) if isinstance(env, dict) else env
    if allowed is None:
        allowed = np.ones((inner.n_states, inner.n_actions), bool)
        allowed[:, -1] = inner.n_actions == 1
    made: Environment = restrict(inner, allowed)
    return made


def same_mask(one: Any, other: Any) -> bool:
    """Whether two environments' masks are the same."""
    if one is other or (callable(one) and callable(other) and one == other):
        return True
    arrays = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
    return arrays and one.shape == other.shape and bool((one == other).all())


def draw_allowed(u: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """One of the allowed actions of each row of mask (n, A), all with the same chance, from
    uniforms (n,)."""
    return take_allowed(mask, (u * mask.sum(axis=1)).astype(np.int64))


def take_allowed(mask: np.ndarray, k: np.ndarray) -> np.ndarray:
    """The k-th allowed action of each row of mask (n, A); k counts from 0 and starts again."""
    k = k % mask.sum(axis=1)
    found: np.ndarray = (np.cumsum(mask, axis=1) > k[:, None]).argmax(axis=1)
    return found
