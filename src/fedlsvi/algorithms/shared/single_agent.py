"""Agents on their own whose policy is frozen between switches: Fed-LSVI's machinery, each agent its
own server.

Exploration, trigger and backup are Algorithms 1 and 2 on a federation of one, with a private
transport that nobody pays for. Finite and continuous states both work. What differs between the
algorithms built on it is when a policy is renewed (`log_eta`, and whether Δt counts).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from fedlsvi.algorithms.shared.comparator import Play, Stretch
from fedlsvi.algorithms.shared.regret_meter import Ruler
from fedlsvi.core.trigger import TOLERANCE
from fedlsvi.experience.values import TabularValues
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.server import Server
from fedlsvi.protocol.transport import InProcess


class Private(InProcess):
    """Between an agent and itself: nothing is sent, and a round may be as long as it likes."""

    def __init__(self, cohorts: Sequence[Cohort], episodes: int) -> None:
        super().__init__(cohorts, float(episodes))
        self.ledger = Ledger(int(cohorts[-1].agents[-1]) + 1)  # nobody reads it


class Solo:
    """One agent; η is its threshold on determinants, with Δt in the trigger or without. It is held
    as log η: determinants in many dimensions grow beyond what a number can hold."""

    def __init__(self, plan: Plan, m: int, log_eta: float, clock: bool, ruler: Ruler) -> None:
        p = plan.parameters
        self.m, self.ruler, self.log_eta = m, ruler, log_eta
        self.cohort = plan.cohort(m, m + 1)
        self.cohort.experience.clock = int(clock)
        self.transport = Private([self.cohort], p.episodes)
        self.server = Server(replace(plan.layout, n_agents=1), p.lam, 1.0, p.beta, p.episodes)
        self.seat = ruler.seat([m])
        self.fired: list[tuple[int, int]] = []
        self.planning = 0.0

    @property
    def values(self) -> Any:
        """Its Q and π."""
        return self.cohort.values

    def start(self) -> None:
        """Before the first episode, or after a restart."""
        self.server.start(self.transport)
        self.cohort.log_gamma = self.log_eta

    def round(self) -> None:
        """Play until the policy is renewed."""
        values = self.values
        held = values.policy.copy() if isinstance(values, TabularValues) else values.frozen()
        began = perf_counter()
        done = self.server.round(self.transport)
        self.planning = perf_counter() - began - self.transport.explored
        self.seat.hold(done.first, self.server.t - done.first + 1, held)
        self.fired = [(self.m, int(h)) for h in done.signal.steps]

    def switches(self, last: int) -> int:
        """How often its policy was renewed up to episode `last`, for episodes that were left; it
        may have run ahead, to the end of its present round."""
        return self.server.k - (self.server.t > last or last == self.server.T)

    def state(self) -> dict[str, np.ndarray]:
        """Sums or history, the model, and where it stands."""
        experience, last = self.cohort.experience, self.server.t
        at = np.array([last, self.server.k, self.transport.last, *(h for _, h in self.fired)])
        own = {"w": self.server.w, "gram": self.server.gram, "at": at}
        return own | experience.state() | experience.history(0, last)

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `state` gave."""
        own = {k: v for k, v in state.items() if k not in ("w", "gram", "at")}
        self.server.w[:], self.server.gram[:] = state["w"], state["gram"]
        self.server.t, self.server.k, self.transport.last = (int(v) for v in state["at"][:3])
        self.fired = [(self.m, int(h)) for h in state["at"][3:]]
        if "actions" in own:
            self.cohort.experience.extend(0, own)
        else:
            self.cohort.experience.restore(own)


class SoloPlay(Play):
    """M agents side by side; a record ends where some policy is renewed."""

    clock = False

    def __init__(self, plan: Plan, settings: Any, keep_models: bool) -> None:
        super().__init__(plan, settings, keep_models)
        M, log_eta = plan.parameters.n_agents, self.log_threshold()
        self.agents = [Solo(plan, m, log_eta, self.clock, self.ruler) for m in range(M)]
        self.values = self.agents[0].values
        self.resumed()

    @abstractmethod
    def log_threshold(self) -> float:
        """log η of the trigger."""

    def parties(self) -> dict[str, Any]:
        return {f"agent{agent.m}": agent for agent in self.agents}

    def advance(self) -> Stretch:
        for agent in self.agents:  # policies are frozen, so an agent may run ahead of the others
            if agent.server.t == self.t:
                agent.round()
                self.planning += agent.planning
        last = min(agent.server.t for agent in self.agents)
        ended = [agent for agent in self.agents if agent.server.t == last]
        triggers = [pair for agent in ended for pair in agent.fired]
        self.counts = renewed([agent.switches(last) for agent in self.agents])
        return Stretch(last, triggers=triggers)

    def resumed(self) -> None:
        for agent in self.agents:
            agent.start()

    def report(self) -> tuple[np.ndarray, np.ndarray]:
        return self.agents[0].server.w, self.agents[0].server.gram

    def close(self) -> None:
        for agent in self.agents:
            agent.cohort.experience.workers.close()


def renewed(switches: Sequence[int]) -> dict[str, int]:
    """What `run.counts` says of policies that were renewed, from how often each agent's was."""
    return {"switches": sum(switches), "most_switches": max(switches)}


def above(log_eta: float) -> float:
    """A threshold that fires where a log ratio is strictly above log η, ties not included."""
    return log_eta + 2.0 * TOLERANCE
