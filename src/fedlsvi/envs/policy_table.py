"""What a policy of a finite state space is: integers (H, S), actions that exist."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from fedlsvi.errors import InvalidInput


class Sizes(Protocol):
    """H, S and A of an environment."""

    @property
    def horizon(self) -> int: ...
    @property
    def n_states(self) -> int: ...
    @property
    def n_actions(self) -> int: ...


def is_integer_table(policy: Any, shape: tuple[int, ...]) -> bool:
    """Whether it is an array of integers of this shape."""
    return isinstance(policy, np.ndarray) and policy.shape == shape and policy.dtype.kind in "iu"


def not_a_policy(policy: Any, env: Sizes) -> InvalidInput:
    """The error for a table that is not a policy (H, S) of the environment."""
    if np.shape(policy) != (env.horizon, env.n_states):
        fault = f"has shape {np.shape(policy)}"
    elif not is_integer_table(policy, np.shape(policy)):
        fault = f"has entries of type {np.asarray(policy).dtype}"
    else:
        fault = f"has actions from {np.min(policy)} to {np.max(policy)}"
    return InvalidInput(
        f"the policy {fault}: it must be an integer array of shape (H, S) = "
        f"{(env.horizon, env.n_states)} with actions 0 … {env.n_actions - 1}",
        code="bad-policy",
    )
