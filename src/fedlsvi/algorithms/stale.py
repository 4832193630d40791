"""One-shot synchronisation with stale responses: an ablation, Fed-LSVI in one round trip.

The trigger and the messages are Fed-LSVI's, but every agent uploads all H steps at once, so b_h is
made with the V_{h+1} of the model that it held *before* the synchronisation. The same scalars
travel in 1 round trip instead of H, and what is learned at step h reaches step h − 1 one round
later. At H = 1 there is no next value and the two protocols are the same.

Everything here is derived from Fed-LSVI itself; there is no other source to check it against.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedlsvi.algorithms.shared.comparator import Comparator
from fedlsvi.algorithms.shared.settings import ServedSettings
from fedlsvi.config import cohort_count
from fedlsvi.envs.base import Environment
from fedlsvi.learner import scalars as scalars  # the same messages as Fed-LSVI's
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.cohorts import cohorts_of
from fedlsvi.protocol.messages import Model, Upload
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.session import FederatedPlayer, Player
from fedlsvi.protocol.transport import InProcess


@dataclass(frozen=True)
class StaleSettings(ServedSettings):
    """Settings of the ablation, in addition to `ServedSettings`.

    Attributes:
        gamma: Trigger threshold γ ≥ 1; "auto" is max(T/(Md), 1).
    """

    gamma: float | Literal["auto"] = "auto"


class StaleCohort(Cohort):
    """Agents that prepare all H uploads before they see any of the new model."""

    def stop(self, t: int) -> Upload:
        """The round ends: every b_h is made with the values of the round that ends."""
        self.experience.close(t - self.experience.t)
        H = self.horizon
        self._ready = {h: super(StaleCohort, self).upload(h) for h in range(H, 0, -1)}
        return self._ready.pop(H)

    def update(self, model: Model) -> Upload | None:
        """Take the new model of a step; the next upload was prepared before it came."""
        self.renew(model.h, model.w, model.gram)
        if model.h > 1:
            return self._ready.pop(model.h - 1)
        self.experience.begin(self.experience.t + self.experience.length)
        return None


class Stale(Comparator):
    """Fed-LSVI with one-shot stale responses. Settings: as `FedLSVI`."""

    name = "stale"
    settings_type = StaleSettings
    worlds = (Environment,)
    masks = "reported"

    def play(self, plan: Plan, cohorts: int | None, keep_models: bool) -> Player:
        p = plan.parameters
        here = [
            StaleCohort(c.agents, c.horizon, c.packing, c.values, c.experience, c.trigger)
            for c in cohorts_of(plan, cohort_count(cohorts, p.n_agents))
        ]
        return FederatedPlayer(p, InProcess(here, p.trigger), plan, here, self.name)
