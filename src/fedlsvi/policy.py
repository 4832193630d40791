"""The greedy policy of a model, to act with, to save and to load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np

from fedlsvi.errors import InvalidInput
from fedlsvi.session import Session
from fedlsvi.values import BlockValues, TabularValues

Values = TabularValues | BlockValues


@dataclass(frozen=True)
class Policy:
    """π_h(x) = argmax_a φᵀw_h + β‖φ‖_{Λ_h⁻¹}: the one the agents would follow next.

    `build` gives the model when the policy is first asked: one read from a folder needs its
    environment only then.
    """

    build: Callable[[], Values]
    horizon: int
    environment: dict[str, Any] | None = None
    """How the environment it was learned in was made, where that is known."""

    @classmethod
    def of(cls, session: Session) -> Policy:
        """The policy after the last synchronisation."""
        values: Values = session.values  # type: ignore[assignment]
        plan = session.plan
        return cls(lambda: values, plan.parameters.horizon, plan.describe()[0])

    @classmethod
    def load(cls, path: str | PathLike[str], features: Any = None) -> Policy:
        """What `save` wrote. Features that no name can rebuild have to be given again."""
        from fedlsvi.policy_file import read

        return read(path, features)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a folder with policy.json and policy.safetensors: all that is needed to act."""
        from fedlsvi.policy_file import write

        write(self, path)

    @cached_property
    def values(self) -> Values:
        """The model in force."""
        return self.build()

    @property
    def table(self) -> np.ndarray:
        """(H, S) actions, where states are finite."""
        if isinstance(self.values, TabularValues):
            return self.values.policy
        raise InvalidInput("table needs a finite state space; use action(state, step)")

    def action(self, state: Any, step: int) -> int:
        """The action in `state` at step h = 1 … H."""
        if isinstance(self.values, TabularValues):
            return int(self.actions(step, np.array([int(state)]))[0])
        return int(self.actions(step, np.asarray(state, dtype=np.float64).reshape(1, -1))[0])

    def actions(self, step: int, states: np.ndarray) -> np.ndarray:
        """The actions in a batch of states, int (n,) or float (n, s), at step h = 1 … H."""
        if not 1 <= step <= self.horizon:
            raise InvalidInput(f"step must be from 1 to {self.horizon}, got {step!r}")
        if isinstance(self.values, TabularValues):
            n_states = self.values.policy.shape[1]
            wrong = (states < 0) | (states >= n_states)
            if wrong.any():
                raise InvalidInput(
                    f"state must be from 0 to {n_states - 1}, got {states[wrong][0]!r}"
                )
        return self.values.act(step, states)
