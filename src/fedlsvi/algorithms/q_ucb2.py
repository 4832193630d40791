"""Q-learning with UCB2 exploration: each agent alone, with a policy that changes rarely.

Bai, Xie, Jiang, Wang (2019), "Provably efficient Q-learning with low switching cost", NeurIPS 2019.
Tabular. A running table Q̃ learns after every step with rate α_t = (H + 1)/(H + t) and bonus
b_t = c√(H³ι/t), t the visits of (h, x, a); Ṽ = min(H, max Q̃). The table that is acted on, Q, takes
over the row of x only at visits t ∈ {1, …, τ(r*)} ∪ {τ(r* + 1), τ(r* + 2), …}, τ(r) = ⌈(1 + η)^r⌉,
η = 1/(2H(H + 1)) and r* = ⌈log(10H²)/log(1 + η)⌉.

Checked: regret Õ(√(H⁴SA·steps)) of the Hoeffding form and O(H³SA log K) switches per agent
(abstract). From memory: the sequence, its constants, that a row is taken over and not an entry, and
ι = log(2SAHMT/p). V is clipped at c_h, the preset's ceiling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.algorithms.shared.comparator import Comparator, Segment
from fedlsvi.algorithms.shared.fedq import as_model
from fedlsvi.algorithms.shared.local_learners import LocalAgent, LocalPlay
from fedlsvi.algorithms.shared.regret_meter import GroupMeter
from fedlsvi.algorithms.shared.settings import TabularSettings
from fedlsvi.algorithms.shared.single_agent import switch_counts
from fedlsvi.core.value import choose
from fedlsvi.protocol.plan import Plan
from fedlsvi.run import Run


@dataclass(frozen=True)
class UCB2Settings(TabularSettings):
    """Settings of Q-learning with UCB2 exploration: `TabularSettings`."""

    algorithm = "q-ucb2"


def renewals(horizon: int, most: int) -> np.ndarray:
    """(most + 1,) whether a row is taken over at visit t = 0 … most."""
    eta = 1.0 / (2.0 * horizon * (horizon + 1))
    last = math.ceil(math.log(10.0 * horizon**2) / math.log1p(eta))
    due = np.zeros(most + 1, np.bool_)
    r, t = last, math.ceil((1.0 + eta) ** last)
    due[1 : t + 1] = True
    while t <= most:
        due[t] = True
        r += 1
        t = math.ceil((1.0 + eta) ** r)
    return due


@njit(cache=True, nogil=True)
def ucb2_steps(Q, running, N, top, due, states, actions, rewards, scale):  # type: ignore[no-untyped-def]
    """Learn from an episode; returns whether some row of Q changed."""
    horizon, changed = Q.shape[0], False
    for h in range(horizon):
        x, a = states[h], actions[h]
        following = 0.0
        if h + 1 < horizon:
            following = min(top[h + 1], running[h + 1, states[h + 1]].max())
        N[h, x, a] += 1
        t = N[h, x, a]
        rate = (horizon + 1.0) / (horizon + t)
        target = rewards[h] + following + scale / np.sqrt(t)
        running[h, x, a] = (1.0 - rate) * running[h, x, a] + rate * target
        if due[t]:
            changed |= (Q[h, x] != running[h, x]).any()
            Q[h, x] = running[h, x]
    return changed


class UCB2Agent(LocalAgent):
    """An agent with a running table and the one that it acts on."""

    KEPT = ("Q", "running", "N", "switches")

    def __init__(self, plan: Plan, m: int, meter: GroupMeter, settings: UCB2Settings) -> None:
        super().__init__(plan, m, meter, 0)
        env: Any = plan.envs[m]
        p, S, A = plan.parameters, env.n_states, env.n_actions
        H, T = p.horizon, p.episodes
        iota = math.log(2.0 * S * A * H * p.n_agents * T / p.confidence)
        self.scale, self.top = settings.scale * math.sqrt(H**3 * iota), p.ceilings
        self.Q = np.repeat(p.ceilings, S * A).reshape(H, S, A)
        self.running, self.N = self.Q.copy(), np.zeros(self.Q.shape, np.int64)
        self.switches, self._due = np.zeros(1, np.int64), renewals(H, T)
        self.prepare()

    def renew(self, draws: np.ndarray) -> None:
        choose(self.Q.reshape(self.policy.size, -1), self.policy.reshape(-1))

    def learn(self, states: np.ndarray, actions: np.ndarray, rewards: np.ndarray) -> None:
        tables = (self.Q, self.running, self.N, self.top, self._due)
        before = self.policy.copy()
        if ucb2_steps(*tables, states, actions, rewards, self.scale):
            self.prepare()
            self.switches += not np.array_equal(before, self.policy)

    def message(self) -> Message:
        return ()

    def receive(self, *average: np.ndarray) -> None:
        """Nobody sends anything."""


class UCB2Play(LocalPlay):
    """Agents that never meet."""

    algorithm = "q-ucb2"
    period = 0

    def __init__(self, plan: Plan, settings: UCB2Settings, keep_models: bool) -> None:
        super().__init__(plan, settings, keep_models)
        self.agents = [
            UCB2Agent(plan, m, self.regret_meter.group([m]), settings)
            for m in range(plan.parameters.n_agents)
        ]

    def average(self, messages: list[Message]) -> Message:
        return ()

    def advance(self) -> Segment:
        done = super().advance()
        self.counts = switch_counts([int(agent.switches[0]) for agent in self.agents])
        return Segment(done.last)

    def report(self) -> tuple[np.ndarray, np.ndarray]:
        return as_model(self.values, self.agents[0].Q, self.agents[0].N)


class QUCB2(Comparator):
    """Q-learning with UCB2 exploration, each agent alone. Settings: `UCB2Settings`."""

    name = "q-ucb2"
    settings_type = UCB2Settings
    play_type = UCB2Play
    tabular = True


def scalars(run: Run) -> dict[str, int]:
    """Nothing is sent."""
    return {}
