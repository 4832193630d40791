"""Federated Q-learning that averages Q-tables, with equal or importance weights.

Khodadadian, Sharma, Joshi, Maguluri (2022), "Federated reinforcement learning: linear speedup under
Markovian sampling", ICML 2022; Woo, Joshi, Chi (2025), "The blessing of heterogeneity in federated
Q-learning: linear speedup and beyond", JMLR 26. Tabular. Agent m learns alone with rate η,

    Q_h(x, a) += η (r + max_a' Q_{h+1}(x', a') − Q_h(x, a)),

acts ε-greedily, and every `period` episodes all tables become Σ_m α_m Q_m, with α_m = 1/M, or
α_m(h, x, a) = (1 − η)^{−N_m} / Σ_j (1 − η)^{−N_j}, N_m the visits of agent m since the last time:
an agent that has not been at (h, x, a) then hardly counts there.

Checked: both weights and their purpose (abstracts; the exponents in public code). The papers learn
Q* of a discounted MDP from given behaviour; here is a table for every step of an episode, and
ε-greedy exploration in the place of that behaviour. So there is **no guarantee on regret**: the
algorithm answers what plain averaging does on the problems that the others explore.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numba import njit

from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.algorithms.shared.comparator import Comparator
from fedlsvi.algorithms.shared.fedq import as_model
from fedlsvi.algorithms.shared.local_learners import LocalAgent, LocalPlay, check_period
from fedlsvi.algorithms.shared.regret_meter import GroupMeter
from fedlsvi.algorithms.shared.settings import SharedSettings
from fedlsvi.checks import choice, number
from fedlsvi.core.value import choose
from fedlsvi.groups import CommonSettings
from fedlsvi.protocol.plan import Plan
from fedlsvi.run import Run


@dataclass(frozen=True)
class QAvgSettings(SharedSettings, CommonSettings):
    """Settings of averaged Q-learning.

    Attributes:
        rate: Learning rate η in (0, 1).
        epsilon: ε, the chance of a random action.
        period: Episodes between two averages; 0 is never: every agent learns alone.
        weights: "equal", or "importance", which sends visits too.
        optimism: The first value of every Q_h(x, a), in units of the largest value at step h.
    """

    fixed: ClassVar = {"gamma": 1.0, "beta": 0.0, "lam": 1.0, "packing": "diagonal"}

    rate: float = 0.8
    epsilon: float = 2.0**-11
    period: int = 10
    weights: Literal["equal", "importance"] = "importance"
    optimism: float = 1.0

    def check(self) -> None:
        """Rates are fractions."""
        super().check()
        hint = "a fraction between 0 and 1"
        number("rate", self.rate, 0.0, hint, strict=True, most=1.0)
        number("epsilon", self.epsilon, 0.0, hint, most=1.0)
        number("optimism", self.optimism, 0.0, hint, most=1.0)
        check_period(self.period)
        choice("weights", self.weights, ("equal", "importance"))


@njit(cache=True, nogil=True)
def q_steps(Q, N, states, actions, rewards, rate):  # type: ignore[no-untyped-def]
    """One step of Q-learning at every step of an episode, from the first to the last."""
    horizon = Q.shape[0]
    for h in range(horizon):
        x, a = states[h], actions[h]
        following = Q[h + 1, states[h + 1]].max() if h + 1 < horizon else 0.0
        Q[h, x, a] += rate * (rewards[h] + following - Q[h, x, a])
        N[h, x, a] += 1


@njit(cache=True, nogil=True)
def mix(policy, draws, epsilon, n_actions):  # type: ignore[no-untyped-def]
    """With probability ε a random action takes the place of policy[h, x]."""
    flat = policy.reshape(-1)
    for i in range(flat.size):
        if draws[2 * i] < epsilon:
            flat[i] = int(draws[2 * i + 1] * n_actions)


class QAgent(LocalAgent):
    """An agent with a Q-table and its visits, in all and since the last average."""

    KEPT = ("Q", "N", "recent")

    def __init__(self, plan: Plan, m: int, meter: GroupMeter, settings: QAvgSettings) -> None:
        env: Any = plan.envs[m]
        p, S, A = plan.parameters, env.n_states, env.n_actions
        super().__init__(plan, m, meter, 2 * p.horizon * S if settings.epsilon > 0.0 else 0)
        self.settings = settings
        self.Q = np.repeat(settings.optimism * p.ceilings, S * A).reshape(p.horizon, S, A)
        self.N, self.recent = np.zeros(self.Q.shape, np.int64), np.zeros(self.Q.shape, np.int64)
        self.prepare()

    def renew(self, draws: np.ndarray) -> None:
        choose(self.Q.reshape(self.policy.size, -1), self.policy.reshape(-1))
        if len(draws):
            mix(self.policy, draws, self.settings.epsilon, self.Q.shape[2])

    def learn(self, states: np.ndarray, actions: np.ndarray, rewards: np.ndarray) -> None:
        q_steps(self.Q, self.recent, states, actions, rewards, self.settings.rate)

    def message(self) -> Message:
        if self.settings.weights == "equal":
            return (self.Q,)
        return self.Q, self.recent

    def receive(self, *average: np.ndarray) -> None:
        self.Q[:] = average[0]
        self.N += self.recent
        self.recent[:] = 0


def importance(visits: np.ndarray, rate: float) -> np.ndarray:
    """α_m of visits (M, H, S, A): (1 − η)^{−N_m}, normalised over m; computed in logs."""
    log = -np.log1p(-rate) * visits
    shares = np.exp(log - log.max(axis=0))
    weights: np.ndarray = shares / shares.sum(axis=0)
    return weights


class QAvgPlay(LocalPlay):
    """Local Q-learning and averages."""

    algorithm = "q-avg"

    def __init__(self, plan: Plan, settings: QAvgSettings, keep_models: bool) -> None:
        super().__init__(plan, settings, keep_models)
        self.agents = [
            QAgent(plan, m, self.regret_meter.group([m]), settings)
            for m in range(plan.parameters.n_agents)
        ]

    def average(self, messages: list[Message]) -> Message:
        Q = np.stack([message[0] for message in messages])
        if self.settings.weights == "equal":
            return (Q.mean(axis=0),)
        visits = np.stack([message[1] for message in messages])
        return ((importance(visits, self.settings.rate) * Q).sum(axis=0),)

    def report(self) -> tuple[np.ndarray, np.ndarray]:
        agent = self.agents[0]
        return as_model(self.values, agent.Q, agent.N + agent.recent)


class QAvg(Comparator):
    """Local Q-learning and averages of Q-tables. Settings: `QAvgSettings`."""

    name = "q-avg"
    settings_type = QAvgSettings
    play_type = QAvgPlay
    tabular = True


def scalars(run: Run) -> dict[str, int]:
    """MHSA up and down for every average, and as much again up for importance weights."""
    p = run.parameters
    table = run.rounds * p.n_agents * p.horizon * p.dim
    up = 2 if run.settings.weights == "importance" else 1
    return {"up_stats": up * table, "down_model": table}
