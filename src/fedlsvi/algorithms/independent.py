"""Independent LSVI-UCB: M agents that never speak.

LSVI-UCB (Jin, Yang, Wang, Jordan 2020), once per agent: before each episode Λ_h = λI + Σφφᵀ,
b_h = Σφ(r + V_{h+1}(x')), backup, act greedily. What learning together is worth is measured against
this; its regret is M times that of one agent. A record stands for many episodes; `run.counts` has
the switches of policies, one after every episode but the last.

Checked: regret Õ(√(d³H³·steps)) is in the abstract of the paper; M = 1 equals a literal code and
Fed-LSVI at γ = 1 (tests). From memory: β = c·dH√log(2dT/p); we use Fed-LSVI's β at the same c.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from fedlsvi.algorithms.low_switching import scalars
from fedlsvi.algorithms.shared.comparator import Comparator, Play, Stretch
from fedlsvi.algorithms.shared.explorer import Explorer
from fedlsvi.algorithms.shared.lsvi_sums import Memory
from fedlsvi.algorithms.shared.regret_meter import Ruler
from fedlsvi.algorithms.shared.settings import LinearSettings
from fedlsvi.algorithms.shared.single_agent import SoloPlay, renewed
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.session import Player

__all__ = ["Independent", "Planner", "scalars"]


class Planner:
    """One agent that replans after every episode, from everything it remembers."""

    def __init__(self, plan: Plan, m: int, ruler: Ruler) -> None:
        self.m, self.t = m, 0
        self.memory, self._explorer = self.remember(plan), Explorer(plan, np.array([m]))
        self.seat = ruler.seat([m])
        self.planning = 0.0
        self.plan()

    def remember(self, plan: Plan) -> Memory:
        """Where its episodes go."""
        return Memory(plan)

    @property
    def policy(self) -> np.ndarray:
        """What it follows now."""
        return self.memory.values.policy

    def episode(self, t: int) -> tuple[np.ndarray, ...]:
        """Play episode t and remember it: (states, actions, rewards), still its own."""
        seen = self._explorer.play(t, 1, self.policy)
        self.seat.hold(t, 1, self.policy)
        self.memory.add(seen)
        self.t = t
        return seen

    def plan(self) -> None:
        """The policy of the next episode."""
        began = perf_counter()
        self.renew()
        self.planning += perf_counter() - began

    def renew(self) -> None:
        """How it plans."""
        self.memory.replan()

    def state(self) -> dict[str, np.ndarray]:
        """What it remembers."""
        return self.memory.state() | {"t": np.array([self.t])}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `state` gave."""
        self.t = int(state["t"][0])
        self.memory.restore(state)
        self.plan()


class IndependentPlay(Play):
    """Every agent plays and replans, episode by episode."""

    algorithm = "independent"

    def __init__(self, plan: Plan, settings: LinearSettings, keep_models: bool) -> None:
        super().__init__(plan, settings, keep_models)
        self.agents = [Planner(plan, m, self.ruler) for m in range(plan.parameters.n_agents)]
        self.values = self.agents[0].memory.values

    def parties(self) -> dict[str, Any]:
        return {f"agent{agent.m}": agent for agent in self.agents}

    def advance(self) -> Stretch:
        last = min(self.t + self.stretch, self.episodes)
        for agent in self.agents:
            spent = agent.planning
            for t in range(self.t + 1, last + 1):
                agent.episode(t)
                agent.plan()
            self.planning += agent.planning - spent
        # the policy after the last episode is for nobody
        self.counts = renewed([min(last, self.episodes - 1)] * len(self.agents))
        return Stretch(last, rounds=last - self.t)

    def report(self) -> tuple[np.ndarray, np.ndarray]:
        memory = self.agents[0].memory
        return memory.w, memory.gram


class ContinuousIndependentPlay(SoloPlay):
    """Where states are real vectors: a threshold of 1 renews the policy after every episode."""

    algorithm = "independent"

    def log_threshold(self) -> float:
        return 0.0


class Independent(Comparator):
    """M separate copies of LSVI-UCB. Settings: as `FedLSVI`."""

    name = "independent"
    settings_type = LinearSettings
    worlds = (FiniteMDP, ContinuousMDP)

    def sums(self, n_agents: int) -> int:
        return n_agents

    def play(self, plan: Plan, cohorts: int | None, keep_models: bool) -> Player:
        finite = isinstance(plan.envs[0], FiniteMDP)
        kind = IndependentPlay if finite else ContinuousIndependentPlay
        return kind(plan, self.settings, keep_models)
