"""Agents that learn alone, after every step of an episode, and sometimes average what they learned.

This is what most people mean by federated reinforcement learning: no statistics are summed, but
parameters are. An agent explores by chance, ε-greedily or by a softmax. Since step h of an episode
visits one state only, drawing the action of every (h, x) before the episode is the same law as
drawing it on arrival, and an episode follows a table, whose regret is exact. Draws are keyed by
(seed, agent, episode).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.algorithms.shared.comparator import Play, Segment
from fedlsvi.algorithms.shared.explorer import Explorer
from fedlsvi.algorithms.shared.regret_meter import GroupMeter
from fedlsvi.checks import integer
from fedlsvi.core.random import fill_uniforms
from fedlsvi.protocol.plan import Plan

STREAM = 5
"""Stream of the keyed generator; the environments draw from stream 0."""


class LocalAgent(ABC):
    """One agent with a table for the next episode, which it renews after each.

    Args:
        plan: The run.
        m: The agent.
        meter: Records its regret.
        draws: Random numbers that a table takes.
    """

    KEPT: ClassVar[tuple[str, ...]]
    """The arrays that it learns, by name."""

    def __init__(self, plan: Plan, m: int, meter: GroupMeter, draws: int) -> None:
        env: Any = plan.envs[m]
        self.m, self.seed, self.t, self.meter = m, plan.seed, 0, meter
        self._explorer = Explorer(plan, np.array([m]))
        self.policy = np.zeros((plan.parameters.horizon, env.n_states), np.int32)
        self._draws = np.empty((draws, 1))

    @abstractmethod
    def renew(self, draws: np.ndarray) -> None:
        """Fill `policy` for the next episode, given its random numbers."""

    @abstractmethod
    def learn(self, states: np.ndarray, actions: np.ndarray, rewards: np.ndarray) -> None:
        """Learn from an episode: states (H + 1,), actions (H,) and rewards (H,)."""

    @abstractmethod
    def message(self) -> Message:
        """What it sends when it synchronises."""

    @abstractmethod
    def receive(self, *average: np.ndarray) -> None:
        """Take over what everybody learned."""

    def prepare(self) -> None:
        """Choose the table of the next episode."""
        if len(self._draws):
            stream = np.int64(STREAM)
            fill_uniforms(self.seed, stream, self.m, self.t + 1, np.int64(1), self._draws)
        self.renew(self._draws[:, 0])

    def episode(self) -> None:
        """Play the next episode, and learn from it."""
        self._explorer.play(self.t + 1, 1, self.policy)
        self.meter.record(self.t + 1, 1, self.policy)
        self.t += 1
        states, actions, rewards = self._explorer.buffers
        self.learn(states[0, :, 0], actions[0, :, 0], rewards[0, :, 0])

    def state(self) -> dict[str, np.ndarray]:
        """What it learned."""
        return {name: getattr(self, name) for name in self.KEPT} | {"t": np.array([self.t])}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `state` gave."""
        for name in self.KEPT:
            getattr(self, name)[:] = state[name]
        self.t = int(state["t"][0])


class LocalPlay(Play):
    """Agents side by side, which average every `period` episodes and after the last one."""

    agents: list[Any]

    @abstractmethod
    def average(self, messages: list[Message]) -> Message:
        """What the server makes of the messages of all agents."""

    @property
    def period(self) -> int:
        """Episodes between two synchronisations; 0 is never."""
        period: int = self.settings.period
        return period

    def parties(self) -> dict[str, Any]:
        return {f"agent{agent.m}": agent for agent in self.agents}

    def advance(self) -> Segment:
        last = min(self.t + self.segment_length, self.episodes)
        rounds = 0
        for t in range(self.t + 1, last + 1):
            for agent in self.agents:
                agent.episode()
            if self.period and (t % self.period == 0 or t == self.episodes):
                self.synchronise()
                rounds += 1
            for agent in self.agents:
                agent.prepare()
        return Segment(last, rounds=rounds)

    def synchronise(self) -> None:
        """Everybody sends, the server averages, everybody receives."""
        sent = [self.channel.send(a.m, "up_stats", *a.message()) for a in self.agents]
        averages = self.channel.broadcast("down_model", *self.average(sent))
        for agent in self.agents:
            agent.receive(*averages)

    def followed(self) -> np.ndarray:
        policy: np.ndarray = self.agents[0].policy
        return policy

    def resumed(self) -> None:
        for agent in self.agents:
            agent.prepare()


def check_period(period: int) -> None:
    """Refuse a negative or fractional period."""
    integer("period", period, 0, "the episodes between two synchronisations; 0 is never")
