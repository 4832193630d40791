"""All cohorts in this process: a message is a call."""

from __future__ import annotations

from collections.abc import Sequence

from fedlsvi.agent import Cohort
from fedlsvi.messages import Reply, Request
from fedlsvi.transports.base import Transport


class InProcess(Transport):
    """Calls each cohort in turn. One cohort of all agents is the fastest; several give the same."""

    def __init__(self, cohorts: Sequence[Cohort], gamma: float, overshoot: str = "cut") -> None:
        super().__init__(sum(len(c.agents) for c in cohorts), gamma, overshoot)
        self.cohorts = cohorts

    def deliver(self, message: Request) -> Sequence[Reply]:
        return [cohort.receive(message) for cohort in self.cohorts]
