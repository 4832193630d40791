"""One agent on a table that plans again after every episode.

`independent` has M of them that never meet; `coop-lsvi` adds what the others send.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from fedlsvi.algorithms.shared.explorer import Explorer
from fedlsvi.algorithms.shared.lsvi_sums import LSVISums
from fedlsvi.algorithms.shared.regret_meter import GroupMeter
from fedlsvi.protocol.plan import Plan


class Planner:
    """One agent that replans after every episode, from everything it has seen."""

    def __init__(self, plan: Plan, m: int, meter: GroupMeter) -> None:
        self.m, self.t, self.meter, self.pooled = m, 0, meter, plan.parameters.stationary
        self.sums, self._explorer = LSVISums(plan), Explorer(plan, np.array([m]))
        self.planning = 0.0
        self.plan()

    @property
    def policy(self) -> np.ndarray:
        """The table that it follows now, (H, S)."""
        return self.sums.values.policy

    def episode(self, t: int) -> tuple[np.ndarray, ...]:
        """Play episode t and add it to the sums; returns (states, actions, rewards), with the state
        after step H where steps share their data."""
        seen = self._explorer.play(t, 1, self.policy)
        if self.pooled:
            seen = (self._explorer.log[:, :, :1], *seen[1:])
        self.meter.record(t, 1, self.policy)
        self.sums.add(seen)
        self.t = t
        return seen

    def plan(self) -> None:
        """Compute the policy of the next episode."""
        began = perf_counter()
        self.renew()
        self.planning += perf_counter() - began

    def renew(self) -> None:
        """One backward pass; subclasses plan in other ways."""
        self.sums.backward_pass()

    def state(self) -> dict[str, np.ndarray]:
        """Its sums, and the last episode."""
        return self.sums.state() | {"t": np.array([self.t])}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `state` gave."""
        self.t = int(state["t"][0])
        self.sums.restore(state)
        self.plan()
