"""Fed-UCBVI: federated value iteration with counts and a Bernstein bonus.

Labbi, Tiapkin, Mancini, Mangold, Moulines (2025), "Federated UCBVI: communication-efficient
federated regret minimization with heterogeneous agents", AISTATS 2025, arXiv 2410.22908. Tabular.
Agents keep their own counts of everything. A synchronisation goes backward through the steps, like
Fed-LSVI's: the server sends V_{h+1}, agent m answers with its visits n_m, mean reward r̂_m, p̂_mV and
p̂_mV² at every (x, a), and

    Q = min{Σ_m n_m(r̂_m + p̂_mV)/N + b, H},   b = c(H/N + √(Var/N)) for N ≥ 2, else H.

Then π and N go down. The next one is due when an agent has doubled its own visits of a cell, or,
where N ≥ S₀ = 14ε_pTHM + 182Mβ_c, when M times its new visits would double N.

Checked: the algorithm and its constants (public code, whose trackers are broadcast along the wrong
axis; not here), average regret Õ(√(H³SAT/M)) (abstract). From memory: the bonus of the theory has
further logarithms. A clip at the preset's ceiling c_h stands for H.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.algorithms.shared.comparator import Comparator
from fedlsvi.algorithms.shared.fedq import RoundsPlay, TabularAgents, TabularServer, count
from fedlsvi.algorithms.shared.settings import TabularSettings
from fedlsvi.checks import number
from fedlsvi.core.value import choose
from fedlsvi.protocol.plan import Plan
from fedlsvi.run import Run


@dataclass(frozen=True)
class UCBVISettings(TabularSettings):
    """Settings of Fed-UCBVI, in addition to `TabularSettings`.

    Attributes:
        epsilon: ε_p, how far apart the agents' transition probabilities may be.
    """

    algorithm = "fed-ucbvi"

    epsilon: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        number("epsilon", self.epsilon, 0.0, "epsilon=0 means that all agents share one MDP")


class UCBVIAgents(TabularAgents):
    """Agents that keep all their own counts."""

    def __init__(self, plan: Plan, late: float) -> None:
        super().__init__(plan)
        M, H, S = self.statistics.shape[1:]
        A = plan.envs[0].n_actions
        self.late = late
        self.visits, self.earned = np.zeros((M, H, S, A), np.int64), np.zeros((M, H, S, A))
        self.moves = np.zeros((M, H, S, A, S))
        self.total = np.zeros((H, S, A), np.int64)

    def begin(self, policy: np.ndarray, total: np.ndarray) -> None:
        """A round: Δn ≥ n_m(sync), or Δn ≥ N/M where N ≥ S₀, calls for the next synchronisation."""
        self.policy[:], self.total[:] = policy, total
        M, chosen = len(self.visits), policy[..., None].astype(np.int64)
        N = np.take_along_axis(total, chosen, axis=2)[..., 0]
        own = np.take_along_axis(self.visits, np.broadcast_to(chosen, (M, *chosen.shape)), axis=3)
        limit = np.where(self.late > N, own[..., 0], -(-N // M))
        np.maximum(limit, 1, out=self.limits)

    def remember(self) -> None:
        """The round is over."""
        log, actions, rewards = self.explorer.buffers
        count(log, self.length, actions, rewards, self.visits, self.earned, self.moves)

    def answer(self, h: int, following: np.ndarray) -> Message:
        """n, r̂, p̂V and p̂V² at step h for the V_{h+1} that came, each (M, S, A)."""
        n = self.visits[:, h - 1]
        once = np.maximum(n, 1)
        moves = self.moves[:, h - 1]
        r, v, v2 = self.earned[:, h - 1], moves @ following, moves @ following**2
        return n, r / once, v / once, v2 / once

    def state(self) -> dict[str, np.ndarray]:
        return {"visits": self.visits, "earned": self.earned, "moves": self.moves}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        for name, array in state.items():
            getattr(self, name)[:] = array


class UCBVIServer(TabularServer):
    """Averages, weighted by visits, and the bonus."""

    def __init__(self, plan: Plan, c: float) -> None:
        super().__init__(plan)
        self.c = c

    def back_up(self, h: int, n: np.ndarray, r: np.ndarray, v: np.ndarray, v2: np.ndarray) -> None:
        """Q_h, V_h and π_h from the agents' answers."""
        H, N = len(self.Q), n.sum(axis=0)
        once = np.maximum(N, 1)
        mean = (n * (r + v)).sum(axis=0) / once
        next_value = (n * v).sum(axis=0) / once
        variance = np.maximum((n * v2).sum(axis=0) / once - next_value**2, 0.0)
        bonus = np.where(N >= 2, self.c * (H / once + np.sqrt(variance / once)), H)
        self.Q[h - 1] = np.where(N > 0, np.minimum(mean + bonus, self.top[h - 1]), self.top[h - 1])
        self.N[h - 1] = N
        choose(self.Q[h - 1], self.policy[h - 1])
        self.values[h - 1] = self.Q[h - 1].max(axis=1)


class UCBVIPlay(RoundsPlay):
    """Rounds as in FedQ, synchronisations as in Fed-LSVI."""

    algorithm = "fed-ucbvi"

    def __init__(self, plan: Plan, settings: TabularSettings, keep_models: bool) -> None:
        super().__init__(plan, settings, keep_models)
        self.agents: UCBVIAgents = self.make_agents(plan)

    def make_agents(self, plan: Plan) -> UCBVIAgents:
        """Agents that know when the next synchronisation is due."""
        return UCBVIAgents(plan, late_threshold(plan, self.settings.epsilon))

    def make_tables(self) -> TabularServer:
        return UCBVIServer(self.plan, self.settings.scale)

    def begin_round(self) -> None:
        if self.t == 0:  # π = 0 and N = 0 are known to all
            self.agents.begin(self.tables.policy, self.tables.N)

    def synchronise(self) -> None:
        """h = H … 1: V_{h+1} down, statistics up; then π and N down."""
        self.agents.remember()
        server = self.tables
        for h in range(len(server.Q), 0, -1):
            (following,) = self.channel.broadcast("down_model", server.values[h])
            server.back_up(h, *self.channel.gather("up_stats", *self.agents.answer(h, following)))
        self.agents.begin(*self.channel.broadcast("down_model", server.policy, server.N))

    def resumed(self) -> None:
        self.agents.begin(self.tables.policy, self.tables.N)


def late_threshold(plan: Plan, epsilon: float) -> float:
    """S₀ = 14ε_pTHM + 182Mβ_c, β_c = log(6SAH/δ) + log(6e(2T + 1))."""
    p, env = plan.parameters, plan.envs[0]
    H, M, T = p.horizon, p.n_agents, p.episodes
    cells: Any = env.n_states * env.n_actions * H
    width = math.log(6.0 * cells / p.confidence) + math.log(6.0 * math.e * (2 * T + 1))
    return 14.0 * epsilon * T * H * M + 182.0 * M * width


class FedUCBVI(Comparator):
    """Federated value iteration on counts. Settings: `UCBVISettings`."""

    name = "fed-ucbvi"
    settings_type = UCBVISettings
    play_type = UCBVIPlay
    tabular = True
    sums_of = "agents"


def scalars(run: Run) -> dict[str, int]:
    """4MHSA up and M(2HS + HSA) down per synchronisation, and signals."""
    p, K = run.parameters, run.rounds
    pairs, states = p.horizon * p.dim, p.horizon * len(run.policy.table[0])
    signals = K * p.n_agents + 2 * sum(r.signals for r in run.records)
    down = K * p.n_agents * (2 * states + pairs)
    return {"signal": signals, "up_stats": 4 * K * p.n_agents * pairs, "down_model": down}
