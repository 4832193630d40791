"""UCBVI: optimistic value iteration on the counts of all agents, pooled after every episode.

Azar, Osband, Munos (2017), "Minimax regret bounds for reinforcement learning", ICML 2017. Tabular.
Fed-UCBVI (`fed_ucbvi`) is this algorithm with rare synchronisations, so it is Fed-UCBVI with one
after every episode: what its trigger saves, and what it costs.

Checked: Q = min{r̂ + p̂V + b, H} with a bonus that knows the variance of V, and regret Õ(√(H²SA·T))
for T steps (abstract). The bonus is Fed-UCBVI's, b = c(H/N + √(Var/N)), so that only the trigger
differs; the paper's has further logarithms and a correction of lower order (from memory).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlsvi.algorithms.fed_ucbvi import UCBVIAgents, UCBVIPlay, scalars
from fedlsvi.algorithms.shared.comparator import Comparator
from fedlsvi.algorithms.shared.settings import TabularSettings
from fedlsvi.protocol.plan import Plan

__all__ = ["UCBVI", "scalars"]


@dataclass(frozen=True)
class PooledUCBVISettings(TabularSettings):
    """Settings of UCBVI: `TabularSettings`."""

    algorithm = "ucbvi"


class EagerAgents(UCBVIAgents):
    """Agents that ask for the end of the round at their first visit."""

    def begin(self, policy: np.ndarray, total: np.ndarray) -> None:
        super().begin(policy, total)
        self.limits[:] = 1.0


class PooledUCBVIPlay(UCBVIPlay):
    """Fed-UCBVI's synchronisations, after every episode."""

    algorithm = "ucbvi"

    def make_agents(self, plan: Plan) -> UCBVIAgents:
        return EagerAgents(plan, np.inf)


class UCBVI(Comparator):
    """Optimistic value iteration on pooled counts. Settings: `PooledUCBVISettings`."""

    name = "ucbvi"
    settings_type = PooledUCBVISettings
    play_type = PooledUCBVIPlay
    tabular = True
    sums_of = "agents"
