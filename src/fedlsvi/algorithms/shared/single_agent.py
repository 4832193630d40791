"""Single agents whose policy is frozen between switches: each is a Fed-LSVI federation of one.

Exploration, trigger and backup are Algorithms 1 and 2; nothing crosses a network, so nothing is
counted. Finite and continuous states both work, and environments that can only be stepped. The
algorithms built on it differ in when they renew a policy (`log_eta`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from fedlsvi.algorithms.shared.comparator import Play, Segment
from fedlsvi.algorithms.shared.regret_meter import GroupMeter
from fedlsvi.core.trigger import TOLERANCE, Trigger
from fedlsvi.experience.values import TabularValues
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.cohorts import cohort_of
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.server import Server
from fedlsvi.protocol.transport import InProcess


class LoopbackTransport(InProcess):
    """Between an agent and itself: nothing is sent, and rounds have no maximal length."""

    def __init__(self, cohorts: Sequence[Cohort], episodes: int) -> None:
        super().__init__(cohorts, Trigger(math.inf, episodes))
        self.ledger = Ledger(int(cohorts[-1].agents[-1]) + 1)  # never read


class SingleAgent:
    """One agent that renews its policy when a determinant has grown by η, whatever Δt is.

    Args:
        plan: The run.
        m: The agent.
        log_eta: log η; in many dimensions η itself overflows.
        meter: Records its regret.
    """

    def __init__(self, plan: Plan, m: int, log_eta: float, meter: GroupMeter) -> None:
        p = plan.parameters
        self.m, self.log_eta, self.meter = m, log_eta, meter
        self.cohort = cohort_of(plan, m, m + 1)
        self.transport = LoopbackTransport([self.cohort], p.episodes)
        size, top = replace(plan.layout, n_agents=1), p.ceilings if p.noisy else None
        self.server = Server(size, p.lam, 1.0, p.beta, p.episodes, ceilings=top)
        self.fired: list[tuple[int, int]] = []
        self.planning = 0.0

    @property
    def values(self) -> Any:
        """Its Q and π."""
        return self.cohort.values

    def start(self) -> None:
        """Prepare for the first episode, or for the next one after a restart."""
        self.server.start(self.transport)
        self.cohort.trigger = Trigger(math.inf, self.server.T, self.log_eta)

    def round(self) -> None:
        """Play until the policy is renewed."""
        values = self.values
        followed = values.policy.copy() if isinstance(values, TabularValues) else values.frozen()
        began = perf_counter()
        done = self.server.round(self.transport)
        self.planning = perf_counter() - began - self.transport.explored
        plan = self.meter.whole.plan
        if not plan.knows_values:
            played: Any = self.cohort.experience
            plan.returns.put([self.m], done.first, played.returns(done.first - 1, self.server.t))
        self.meter.record(done.first, self.server.t - done.first + 1, followed)
        self.fired = [(self.m, int(h)) for h in done.signal.steps]

    def switches(self, last: int) -> int:
        """How often its policy was renewed up to episode `last` and used after it; the agent may
        have run ahead, to the end of its current round."""
        return self.server.k - (self.server.t > last or last == self.server.T)

    def state(self) -> dict[str, np.ndarray]:
        """Sums or history, the model, and the position in the run."""
        experience, last = self.cohort.experience, self.server.t
        at = np.array([last, self.server.k, self.transport.last, *(h for _, h in self.fired)])
        own = {"w": self.server.weights, "gram": self.server.gram, "at": at}
        return own | experience.state() | experience.history(0, last)

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `state` gave."""
        own = {k: v for k, v in state.items() if k not in ("w", "gram", "at")}
        self.server.w[:], self.server.gram[:] = (
            state["w"][:, : self.server.w.shape[1]],
            state["gram"],
        )
        self.server.noise[:] = state["w"][:, self.server.w.shape[1] :].ravel()
        self.server.t, self.server.k, self.transport.last = (int(v) for v in state["at"][:3])
        self.fired = [(self.m, int(h)) for h in state["at"][3:]]
        if "actions" in own:
            self.cohort.experience.extend(0, own)
        else:
            self.cohort.experience.restore(own)


class SingleAgentPlay(Play):
    """M agents side by side; a record ends where some policy is renewed."""

    def __init__(self, plan: Plan, settings: Any, keep_models: bool) -> None:
        super().__init__(plan, settings, keep_models)
        M, log_eta = plan.parameters.n_agents, self.log_threshold()
        self.agents = [
            SingleAgent(plan, m, log_eta, self.regret_meter.group([m])) for m in range(M)
        ]
        self.values = self.agents[0].values
        self.resumed()

    @abstractmethod
    def log_threshold(self) -> float:
        """log η of the trigger."""

    def parties(self) -> dict[str, Any]:
        return {f"agent{agent.m}": agent for agent in self.agents}

    def advance(self) -> Segment:
        for agent in self.agents:  # policies are frozen, so an agent may run ahead of the others
            if agent.server.t == self.t:
                agent.round()
                self.planning += agent.planning
        last = min(agent.server.t for agent in self.agents)
        ended = [agent for agent in self.agents if agent.server.t == last]
        triggers = [pair for agent in ended for pair in agent.fired]
        self.counts = switch_counts([agent.switches(last) for agent in self.agents])
        return Segment(last, triggers=triggers)

    def resumed(self) -> None:
        for agent in self.agents:
            agent.start()

    def report(self) -> tuple[np.ndarray, np.ndarray]:
        return self.agents[0].server.w, self.agents[0].server.gram

    def close(self) -> None:
        for agent in self.agents:
            agent.cohort.experience.workers.close()


def switch_counts(switches: Sequence[int]) -> dict[str, int]:
    """`run.counts` of an algorithm that renews policies, from the number of switches per agent."""
    return {"switches": sum(switches), "most_switches": max(switches)}


def strictly_above(log_eta: float) -> float:
    """The threshold of a trigger that fires where a log ratio exceeds log η, but not at a tie."""
    return log_eta + 2.0 * TOLERANCE
