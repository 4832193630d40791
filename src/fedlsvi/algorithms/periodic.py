"""Periodic synchronisation: Fed-LSVI without its trigger, an ablation.

Agents send the same statistics, stepwise backward through the horizon, but at fixed times: after
every p-th episode and after the last. No signals are needed. p = 1 is LSVI-UCB on pooled data, sent
as statistics; it is Fed-LSVI at γ = 1 without the signals.

Everything here is derived from Fed-LSVI itself; there is no other source to check it against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from fedlsvi.algorithms.shared.comparator import Comparator
from fedlsvi.algorithms.shared.settings import ServedSettings
from fedlsvi.checks import integer
from fedlsvi.config import cohort_count
from fedlsvi.core import theory
from fedlsvi.envs.base import Environment
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.cohorts import cohorts_of
from fedlsvi.protocol.messages import Signal
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.session import FederatedPlayer, Player
from fedlsvi.protocol.transport import InProcess
from fedlsvi.run import Run


@dataclass(frozen=True)
class PeriodicSettings(ServedSettings):
    """Settings of the ablation, in addition to `ServedSettings`.

    Attributes:
        period: Episodes between two synchronisations.
    """

    period: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("period", self.period, 1, "period=1 synchronises after every episode")


class PeriodicTransport(InProcess):
    """Every agent stops by itself at the end of a period."""

    def __init__(self, cohorts: Sequence[Cohort], period: int) -> None:
        super().__init__(cohorts, cohorts[0].trigger)
        self.period, self.playing = period, cohorts

    def may_end(self, t: int) -> bool:
        """Whether T is not beyond the period."""
        return self.trigger.episodes - t <= self.period - t % self.period

    def wait(self, t: int, left: int) -> Signal:
        """Explore up to the next multiple of the period; there is nothing to wait for."""
        began = perf_counter()
        n = min(left, self.period - t % self.period)
        for cohort in self.playing:
            world, rest = cohort.experience, n
            while rest > 0:
                world.explore(min(rest, world.block))
                rest -= min(rest, world.block)
        self.explored, self.last = perf_counter() - began, n
        nobody = np.empty(0, np.int64)
        return Signal(t + n, nobody, nobody)

    def enter(self, category: str, scalars: int) -> None:
        """The end of a period is known to all: no message says it."""
        if category != "signal":
            super().enter(category, scalars)


class Periodic(Comparator):
    """Synchronise after every `period` episodes. Other settings: as `FedLSVI`."""

    name = "periodic"
    settings_type = PeriodicSettings
    worlds = (Environment,)
    masks = "reported"

    def play(self, plan: Plan, cohorts: int | None, keep_models: bool) -> Player:
        here = cohorts_of(plan, cohort_count(cohorts, plan.parameters.n_agents))
        transport = PeriodicTransport(here, self.settings.period)
        return FederatedPlayer(plan.parameters, transport, plan, here, self.name)


def scalars(run: Run) -> dict[str, int]:
    """M(H(P + d) + 3) at the start and MH(P + d) each way per period; no signals."""
    p = run.parameters
    size = (p.dim, p.horizon, p.packing, p.stationary)
    up = p.n_agents * theory.scalars_model(*size, 2 * p.noisy)
    model = p.n_agents * theory.scalars_model(*size, p.noisy)
    K = -(-p.episodes // run.settings.period)
    return {"init": model + 3 * p.n_agents, "up_stats": K * up, "down_model": K * model}
