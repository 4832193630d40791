"""Async-Coop-LSVI-UCB: one agent at a time, and only an agent that has learned something sends.

Min, He, Wang, Gu (2023), "Cooperative multi-agent reinforcement learning: asynchronous
communication and linear function approximation", ICML 2023, arXiv 2305.06446. In global episode
k = 1 … MT agent m_k plays greedily on a frozen Q. When det(Λ_m + Λloc) > (1 + α)·det(Λ_m) for some
h, it uploads its trajectories since its last upload; the server backs up on everything it has ever
received and sends that agent, and nobody else, (w, Λser). Nothing is synchronous.

An "episode" of the run is M global ones, so T per agent on average. Schedules: "round-robin",
"random" (uniform), "skewed" (agent m with weight 1/(1 + m)). The order has its own
random stream; agent m's i-th episode uses the draws (m, i) whenever it is played.

Checked: regret Õ(d^{3/2}H²√K), communication Õ(dHM²) and the lower bound Ω(dM) (abstract); a
determinant criterion, no aggregation from other agents. From memory: the protocol's details,
α = 1/M² and O(dH(M + 1/α)·log(1 + K/d)) messages. Q starts from w = 0 and Λ = λI, not from the
constant H.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal

import numpy as np

from fedlsvi.algorithms.centralised import start
from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.algorithms.shared.comparator import Comparator, Play, Segment
from fedlsvi.algorithms.shared.explorer import Explorer
from fedlsvi.algorithms.shared.lsvi_sums import LSVISums, rebuild
from fedlsvi.algorithms.shared.settings import ServedSettings
from fedlsvi.algorithms.shared.single_agent import strictly_above
from fedlsvi.checks import choice, number
from fedlsvi.core import theory
from fedlsvi.core.random import uniforms
from fedlsvi.core.trigger import Rule
from fedlsvi.experience.kinds import empty_values
from fedlsvi.experience.trigger_search import first_firing_counts
from fedlsvi.experience.values import TabularValues
from fedlsvi.protocol.plan import Plan
from fedlsvi.run import Run

Schedule = Literal["round-robin", "random", "skewed"]
STREAM = 3
"""Stream of the keyed generator for the order of the agents."""


@dataclass(frozen=True)
class AsyncSettings(ServedSettings):
    """Settings of Async-Coop-LSVI-UCB, in addition to `LinearSettings`.

    Attributes:
        alpha: α of the trigger; "auto" is 1/M², below 0 is every episode.
        schedule: Who plays when: "round-robin", "random" or "skewed".
    """

    alpha: float | Literal["auto"] = "auto"
    schedule: Schedule = "round-robin"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha != "auto":
            number("alpha", self.alpha, -1.0, '"auto" is 1/M²', strict=True)
        choice("schedule", self.schedule, ("round-robin", "random", "skewed"))


def order(schedule: Schedule, seed: int, M: int, T: int) -> np.ndarray:
    """m_k for k = 1 … MT, (MT,)."""
    if schedule == "round-robin":
        return np.tile(np.arange(M), T)
    weights = np.ones(M) if schedule == "random" else 1.0 / np.arange(1, M + 1)
    u = uniforms(seed, [0], 1, M * T, 1, stream=STREAM)[0, :, 0]
    agents: np.ndarray = np.searchsorted(np.cumsum(weights / weights.sum())[:-1], u, side="right")
    return agents


class AsyncAgent:
    """Plays on a frozen policy and knows when it has something to send."""

    def __init__(self, plan: Plan, m: int, alpha: float, budget: int) -> None:
        self.m, self.budget, self.packing = m, budget, plan.parameters.packing
        self._groups, self._pooled = plan.parameters.matrices, plan.parameters.stationary
        values = empty_values(plan)
        assert isinstance(values, TabularValues)
        self.values, self._explorer = values, Explorer(plan, np.array([m]))
        self._rule = Rule(np.inf, strictly_above(float(np.log(1.0 + alpha))))
        self.t, self.length, self.step, self.guess = 0, 0, 0, 1
        self.receive(*start(plan))

    def receive(self, w: np.ndarray, gram: np.ndarray) -> None:
        """The server's answer: a new policy, and a new Λ_m to compare with."""
        self.model = (w, gram)
        rebuild(self.values, w, gram, self.packing)
        self.t += self.length
        self.length = 0

    def play(self) -> None:
        """Episodes until the trigger fires at a step h, or (h = 0) until none is left."""
        left = self.budget - self.t
        n, when, steps = min(left, self.guess), np.zeros(1, np.int64), np.zeros(1, np.int64)
        table, sums = np.empty((0, 0, 0, 0), np.int64), np.empty((1, self._groups))
        seen: Message = ()
        while n > 0:
            seen = self._explorer.play(self.t + 1, n, self.values.policy)
            sums[:] = 0.0
            marks, log = self.values.marks, self._explorer.log
            first_firing_counts(0, 1, sums, 0, 0, n, log, table, marks, self._rule, when, steps)
            if when[0] > 0 or n == left:
                break
            n = min(2 * n, left)
        self.length = int(when[0]) if when[0] > 0 else left
        self.step = int(steps[0]) if when[0] > 0 else 0
        self.guess = self.length + 1
        if self._pooled and seen:
            seen = (self._explorer.log, *seen[1:])
        self.unsent = tuple(a[:, :, : self.length] for a in seen)

    def state(self) -> dict[str, np.ndarray]:
        """Its model and position; what it has seen since can be played again."""
        w, gram = self.model
        return {"w": w, "gram": gram, "t": np.array([self.t])}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `state` gave."""
        self.length = 0
        self.receive(state["w"], state["gram"])
        self.t = int(state["t"][0])


class AsyncPlay(Play):
    """Uploads in the order of the global episodes after which they happen."""

    algorithm = "async-coop"

    def __init__(self, plan: Plan, settings: AsyncSettings, keep_models: bool) -> None:
        super().__init__(plan, settings, keep_models)
        p = plan.parameters
        turns = order(settings.schedule, plan.seed, p.n_agents, p.episodes)
        self.turns = [np.flatnonzero(turns == m) for m in range(p.n_agents)]
        alpha = p.n_agents**-2.0 if settings.alpha == "auto" else float(settings.alpha)
        self.agents = [AsyncAgent(plan, m, alpha, len(k)) for m, k in enumerate(self.turns)]
        self.sums = LSVISums(plan)
        self.values = self.sums.values
        self.meters = [self.regret_meter.group([m]) for m in range(p.n_agents)]
        self.counts = {"events": 0, "uploaded": 0}
        self.due: list[tuple[int, int]] = []
        self._begun = False

    def parties(self) -> dict[str, Any]:
        return {f"agent{agent.m}": agent for agent in self.agents} | {"server": self.sums}

    def launch(self, agent: AsyncAgent, measure: bool = True) -> None:
        """Let an agent play up to its next upload; nothing it does until then depends on others."""
        m, first = agent.m, agent.t + 1
        agent.play()
        if agent.length > 0 and measure:
            when = self.turns[m][first - 1 : first - 1 + agent.length] // len(self.agents)
            self.meters[m].record_at(first, agent.length, agent.values.policy, when)
        if agent.step > 0:
            heapq.heappush(self.due, (int(self.turns[m][agent.t + agent.length - 1]), m))

    def advance(self) -> Segment:
        if not self._begun:
            self._begun = True
            for agent in self.agents:
                self.launch(agent)
        M, T, fired = len(self.agents), self.episodes, []
        wanted = self.due[0][0] // M + 1 if self.due else T
        last = min(max(wanted, self.t + self.segment_length), self.t + self.pause, T)
        while self.due and self.due[0][0] // M < last:
            agent = self.agents[heapq.heappop(self.due)[1]]
            fired.append((agent.m, agent.step))
            self.counts["events"] += 1
            self.counts["uploaded"] += agent.length
            self.sums.add(self.channel.send(agent.m, "up_raw", *agent.unsent))
            began = perf_counter()
            self.sums.backward_pass()
            self.planning += perf_counter() - began
            agent.receive(*self.channel.send(agent.m, "down_model", *self.sums.model()))
            self.launch(agent)
        return Segment(last, len(fired), fired, len(fired))

    def followed(self) -> np.ndarray:
        return self.agents[0].values.policy

    def report(self) -> tuple[np.ndarray, np.ndarray]:
        return self.sums.w, self.sums.grams

    def resumed(self) -> None:
        self.sums.backward_pass()
        self._begun = True
        for agent in self.agents:
            self.launch(agent, measure=False)


class AsyncCoop(Comparator):
    """Agents that upload one by one, when a determinant has grown. Other settings: as `FedLSVI`."""

    name = "async-coop"
    masks = "known"
    settings_type = AsyncSettings
    play_type = AsyncPlay
    sums_of = "server"
    published = True


def scalars(run: Run) -> dict[str, int]:
    """Per message after n_loc episodes: n_loc·Hρ up, H(P + d) down; where steps share their data
    n_loc·(Hρ + s) and P + Hd."""
    p, rho = run.parameters, run.raw_scalars_per_step
    model = theory.scalars_model(p.dim, p.horizon, p.packing, p.stationary, p.noisy)
    raw = run.counts["uploaded"] * (p.horizon * rho + (rho - 2 if p.stationary else 0))
    return {"up_raw": raw, "down_model": run.counts["events"] * model}
