"""The greedy policy of a model, to act with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
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

    @classmethod
    def of(cls, session: Session) -> Policy:
        """The policy after the last synchronisation."""
        values: Values = session.values  # type: ignore[assignment]
        return cls(lambda: values, session.plan.parameters.horizon)

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
        if not 1 <= step <= self.horizon:
            raise InvalidInput(f"step must be from 1 to {self.horizon}, got {step!r}")
        if isinstance(self.values, TabularValues):
            n_states = self.values.policy.shape[1]
            if not 0 <= int(state) < n_states:
                raise InvalidInput(f"state must be from 0 to {n_states - 1}, got {state!r}")
            return int(self.values.policy[step - 1, int(state)])
        batch = np.asarray(state, dtype=np.float64).reshape(1, -1)
        return int(self.values.act(step, batch)[0])
