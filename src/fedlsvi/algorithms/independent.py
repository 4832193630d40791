"""Independent LSVI-UCB: M agents that never communicate.

LSVI-UCB (Jin, Yang, Wang, Jordan 2020), once per agent: before each episode Λ_h = λI + Σφφᵀ,
b_h = Σφ(r + V_{h+1}(x')), backup, act greedily. It is the baseline for what learning together is
worth; its regret is M times that of one agent. A record covers many episodes; `run.counts` has the
policy switches, one after every episode but the last.

Checked: regret Õ(√(d³H³·steps)) is in the abstract of the paper; M = 1 equals a literal
implementation and Fed-LSVI at γ = 1 (tests). From memory: β = c·dH√log(2dT/p); we use Fed-LSVI's β
at the same c, and where ξ > 0 its width for one agent.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedlsvi.algorithms.low_switching import scalars
from fedlsvi.algorithms.shared.comparator import Comparator, Play, Segment
from fedlsvi.algorithms.shared.lsvi_sums import keeps_sums
from fedlsvi.algorithms.shared.planner import Planner
from fedlsvi.algorithms.shared.settings import SingleAgentSettings
from fedlsvi.algorithms.shared.single_agent import SingleAgentPlay, switch_counts
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.session import Player

__all__ = ["Independent", "scalars"]


class IndependentPlay(Play):
    """Every agent plays and replans, episode by episode."""

    algorithm = "independent"
    goes_on = True

    def __init__(self, plan: Plan, settings: SingleAgentSettings, keep_models: bool) -> None:
        super().__init__(plan, settings, keep_models)
        M = plan.parameters.n_agents
        self.agents = [Planner(plan, m, self.regret_meter.group([m])) for m in range(M)]
        self.values = self.agents[0].sums.values

    def parties(self) -> dict[str, Any]:
        return {f"agent{agent.m}": agent for agent in self.agents}

    def advance(self) -> Segment:
        last = min(self.t + self.segment_length, self.episodes)
        for agent in self.agents:
            spent = agent.planning
            for t in range(self.t + 1, last + 1):
                agent.episode(t)
                agent.plan()
            self.planning += agent.planning - spent
        # nobody follows the policy computed after the last episode
        self.counts = switch_counts([min(last, self.episodes - 1)] * len(self.agents))
        return Segment(last, rounds=last - self.t)

    def report(self) -> tuple[np.ndarray, np.ndarray]:
        sums = self.agents[0].sums
        return sums.w, sums.grams


class CohortIndependentPlay(SingleAgentPlay):
    """Where sums cannot be kept, as states are real vectors or very many: a threshold of 1 renews
    the policy after every episode."""

    algorithm = "independent"
    goes_on = True

    def __init__(self, plan: Plan, settings: SingleAgentSettings, keep_models: bool) -> None:
        # whatever an agent looked ahead would be dropped
        super().__init__(replace(plan, block=1), settings, keep_models)

    def log_threshold(self) -> float:
        return 0.0


class Independent(Comparator):
    """M separate copies of LSVI-UCB. Settings: as `FedLSVI`."""

    name = "independent"
    settings_type = SingleAgentSettings
    worlds = (FiniteMDP, ContinuousMDP, GymWorld)
    masks = "reported"
    published = True
    sums_of = "agents"
    counts_where_large = True

    def play(self, plan: Plan, cohorts: int | None, keep_models: bool) -> Player:
        dense = keeps_sums(plan)
        if plan.masked:  # sums have one mask, of all agents and known beforehand
            one = plan.same_masks(0, len(plan.envs))
            dense = dense and one and not isinstance(plan.envs[0], GymWorld)
        kind = IndependentPlay if dense else CohortIndependentPlay
        return kind(plan, self.settings, keep_models)
