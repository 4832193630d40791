"""The greedy policy of a model, to act with, to save and to load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np

from fedlsvi.checks import integer
from fedlsvi.envs.spaces import Spaces
from fedlsvi.errors import InvalidInput
from fedlsvi.experience.values import BlockValues, TabularValues
from fedlsvi.protocol.session import Session

Values = TabularValues | BlockValues


@dataclass(frozen=True, repr=False)
class Policy:
    """π_h(x) = argmax_a φᵀw_h + β‖φ‖_{Λ_h⁻¹}: the one the agents would follow next.

    `build` gives the model and the environment's spaces when the policy is first asked: one read
    from a folder needs its environment only then.
    """

    build: Callable[[], tuple[Values, Spaces]]
    horizon: int
    environment: dict[str, Any] | None = None
    """How the environment it was learned in was made, where that is known."""

    @classmethod
    def of(cls, session: Session) -> Policy:
        """The policy after the last synchronisation."""
        values: Values = session.player.values
        plan = session.plan
        spaces = Spaces.of(plan.envs[0])
        return cls(lambda: (values, spaces), plan.parameters.horizon, plan.describe()[0])

    @classmethod
    def deployed_of(cls, session: Session) -> Policy | None:
        """The policy of the backward pass after the last round, where there was one."""
        values: Values | None = getattr(session.player, "deployed", None)
        if values is None:
            return None
        plan, spaces = session.plan, Spaces.of(session.plan.envs[0])
        return cls(lambda: (values, spaces), plan.parameters.horizon, plan.describe()[0])

    @classmethod
    def load(cls, path: str | PathLike[str], features: Any = None) -> Policy:
        """What `save` wrote. Features that no name can rebuild have to be given again."""
        from fedlsvi.storage.policy_file import read

        return read(path, features)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a folder with policy.json and policy.safetensors: all that is needed to act."""
        from fedlsvi.storage.policy_file import write

        write(self, path)

    @cached_property
    def _built(self) -> tuple[Values, Spaces]:
        return self.build()

    @property
    def values(self) -> Values:
        """The model in force."""
        return self._built[0]

    @property
    def spaces(self) -> Spaces:
        """What its environment shows and which actions it takes."""
        return self._built[1]

    @property
    def table(self) -> np.ndarray:
        """(H, S) actions, numbered from 0, where states are finite."""
        if isinstance(self.values, TabularValues):
            return self.values.policy
        raise InvalidInput("table needs a finite state space; use action(state, step)")

    def __repr__(self) -> str:
        where = self.environment and (self.environment["name"] or self.environment["params"])
        return f"<Policy of {self.horizon} steps" + (f" for {where}>" if where else ">")

    def action(self, state: Any, step: int) -> int:
        """The action at step h = 1 … H, as the environment numbers it, in a state as it shows it:
        a number, an array, or a tuple or dictionary of these."""
        chosen = self.actions(step, self.spaces.state(state))
        return int(chosen[0]) + self.spaces.first_action

    def actions(self, step: int, states: np.ndarray) -> np.ndarray:
        """The actions, numbered from 0, in a batch of states at step h = 1 … H.

        States are what the learner sees: numbers from 0, int (n,), or flattened, float (n, s).
        """
        h = integer("step", step, 1, most=self.horizon, error=InvalidInput)
        return self.values.act(h, self.spaces.states(states))
