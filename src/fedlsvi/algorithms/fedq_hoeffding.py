"""FedQ-Hoeffding: federated Q-learning with a Hoeffding bonus and logarithmic communication.

Zheng, Gao, Xue, Yang (2024), "Federated Q-learning: linear regret speedup with low communication
cost", ICLR 2024, arXiv 2312.15023. Tabular. In a round all agents follow π^k and stop when one of
them has visited some (h, x) max{1, ⌊N_h(x, π)/(MH(H + 1))⌋} times. They send r, n and v, the mean
of V_{h+1} at the next states; the server applies as many steps of Q-learning with rate
α_t = (H + 1)/(H + t) and bonus b_t = c√(H³ι/t) as there were visits: one visit at a time while
N < 2MH(H + 1), with the average of all visits from then on.

Checked: the algorithm and its regret Õ(√(H⁴SAMT)) in steps (paper). The two cases of its update are
the same loop here, because n steps towards one target are its α_agg step. From memory:
ι = log(2SAHMT/p). Rewards may be random: means are sent. V is clipped at c_h, the preset's ceiling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit

from fedlsvi.algorithms.shared import fedq
from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.algorithms.shared.comparator import Comparator
from fedlsvi.algorithms.shared.fedq import FedQPlay, TabularServer
from fedlsvi.algorithms.shared.settings import TabularSettings
from fedlsvi.protocol.plan import Plan
from fedlsvi.run import Run


@dataclass(frozen=True)
class HoeffdingSettings(TabularSettings):
    """Settings of FedQ-Hoeffding: `TabularSettings`."""

    algorithm = "fedq-hoeffding"


@njit(cache=True, nogil=True)
def learn(Q, N, policy, visits, reward, value, scale):  # type: ignore[no-untyped-def]
    """Q-learning steps at (h, x, π_h(x)); visits, reward and value are (M, H, S)."""
    n_agents, horizon, n_states = visits.shape
    for h in range(horizon):
        for x in range(n_states):
            a = policy[h, x]
            n = visits[:, h, x].sum()
            if n == 0:
                continue
            t, q = N[h, x, a], Q[h, x, a]
            one_by_one = t < 2 * n_agents * horizon * (horizon + 1)
            target = 0.0
            for m in range(n_agents):
                target += visits[m, h, x] * (reward[m, h, x] + value[m, h, x]) / n
            for m in range(n_agents):
                if one_by_one:
                    target = reward[m, h, x] + value[m, h, x]
                for _ in range(visits[m, h, x]):
                    t += 1
                    rate = (horizon + 1.0) / (horizon + t)
                    q = (1.0 - rate) * q + rate * (target + scale / np.sqrt(t))
            Q[h, x, a], N[h, x, a] = q, t


class HoeffdingServer(TabularServer):
    """Q-learning from the averages of a round."""

    def __init__(self, plan: Plan, c: float) -> None:
        super().__init__(plan)
        p = plan.parameters
        H, S, A = self.Q.shape
        self.H, self.M = H, p.n_agents
        self.iota = math.log(2.0 * S * A * H * p.n_agents * p.episodes / p.confidence)
        self.c = c

    def update(self, visits: np.ndarray, reward: np.ndarray, value: np.ndarray) -> None:
        """The end of a round: visits n^m, mean rewards r^m and mean next values v^m."""
        scale = self.c * math.sqrt(self.H**3 * self.iota)
        learn(self.Q, self.N, self.policy, visits, reward, value, scale)
        self.greedy()


class HoeffdingPlay(FedQPlay):
    """Down: π, N(x, π(x)) and V.  Up: n, r and v."""

    algorithm = "fedq-hoeffding"

    def make_tables(self) -> TabularServer:
        return HoeffdingServer(self.plan, self.settings.scale)

    def begin_round(self) -> None:
        server, p = self.tables, self.plan.parameters
        policy, N, V = self.channel.broadcast(
            "down_model", server.policy, server.at_policy(server.N), server.values[:-1]
        )
        H = p.horizon
        self.agents.receive(policy, np.maximum(1, N // (p.n_agents * H * (H + 1))), V)

    def answers(self) -> Message:
        n, r, v, _ = self.agents.means()
        return n.astype(np.int64), r, v


class FedQHoeffding(Comparator):
    """Federated Q-learning with a Hoeffding bonus. Settings: `TabularSettings`."""

    name = "fedq-hoeffding"
    settings_type = HoeffdingSettings
    play_type = HoeffdingPlay
    tabular = True


def scalars(run: Run) -> dict[str, int]:
    """6MHS per round, and signals."""
    return fedq.scalars(run, up=3, down=3)
