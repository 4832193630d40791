"""Federated SARSA with linear functions: agents average their weights.

Zhang, Wang, Mitra, Anderson (2024), "Finite-time analysis of on-policy heterogeneous federated
reinforcement learning", ICLR 2024, arXiv 2401.15273. Every agent follows the softmax policy of its
own weights and learns after every step,

    θ_h += α φ(x, a) (r + θ_{h+1}ᵀφ(x', a') − θ_hᵀφ(x, a)),   a ~ softmax(θ_hᵀφ(x, ·)/temperature);

every `period` episodes all weights become their mean. It answers the question why one should send
Gram matrices and not simply average weights.

Checked: on-policy TD with linear functions, local steps and averages of θ (abstract); the softmax
as policy operator and the update in public code. There one θ learns in one endless trajectory and
is projected to a ball; here is one θ for each step of an episode, without a projection. The paper
bounds the distance to a point near the best policy of a given class, **not regret**.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numba import njit

from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.algorithms.shared.comparator import Comparator
from fedlsvi.algorithms.shared.local_learners import LocalAgent, LocalPlay, check_period
from fedlsvi.algorithms.shared.lsvi_sums import rebuild
from fedlsvi.algorithms.shared.regret_meter import GroupMeter
from fedlsvi.algorithms.shared.settings import SharedSettings
from fedlsvi.checks import number
from fedlsvi.core.statistics import identity, pack
from fedlsvi.experience.values import TabularValues
from fedlsvi.groups import CommonSettings
from fedlsvi.protocol.plan import Plan
from fedlsvi.run import Run


@dataclass(frozen=True)
class SARSASettings(SharedSettings, CommonSettings):
    """Settings of federated SARSA.

    Attributes:
        rate: Learning rate α in (0, 1).
        temperature: Of the softmax, in units of the largest value at the step; 0 is greedy.
        period: Episodes between two averages; 0 is never: every agent learns alone.
    """

    fixed: ClassVar = {"gamma": 1.0, "beta": 0.0, "lam": 1.0}

    rate: float = 0.1
    temperature: float = 0.05
    period: int = 30

    def check(self) -> None:
        """Rates are fractions, and so is the temperature."""
        super().check()
        number("rate", self.rate, 0.0, "a fraction between 0 and 1", strict=True, most=1.0)
        number("temperature", self.temperature, 0.0, "temperature=0 is greedy")
        check_period(self.period)


@njit(cache=True, nogil=True)
def softmax_table(theta, phi, index, temperatures, draws, policy):  # type: ignore[no-untyped-def]
    """policy[h, x] ~ softmax(θ_hᵀφ(x, ·)/temperature): the largest score with Gumbel noise, given
    a uniform number for each (h, x, a). `index` (S, A) is used where features are one-hot."""
    horizon, n_states = policy.shape
    one_hot = index.size > 0
    n_actions = index.shape[1] if one_hot else phi.shape[1]
    i = 0
    for h in range(horizon):
        for x in range(n_states):
            best, chosen = -np.inf, 0
            for a in range(n_actions):
                score = theta[h, index[x, a]] if one_hot else 0.0
                if not one_hot:
                    for j in range(phi.shape[2]):
                        score += theta[h, j] * phi[x, a, j]
                if temperatures[h] > 0.0:
                    noise = -np.log(-np.log(max(draws[i], 2.0**-60)))
                    score = score / temperatures[h] + noise
                i += 1
                if score > best:
                    best, chosen = score, a
            policy[h, x] = chosen


@njit(cache=True, nogil=True)
def sarsa_steps(theta, gram, phi, index, states, actions, rewards, rate):  # type: ignore[no-untyped-def]
    """One step of SARSA at every step of an episode, from the first to the last; Λ += φφᵀ, of
    which `gram` is the diagonal where features are one-hot."""
    horizon, dim = theta.shape
    one_hot = index.size > 0
    for h in range(horizon):
        x, a = states[h], actions[h]
        ahead, here = 0.0, 0.0
        if one_hot:
            here = theta[h, index[x, a]]
            if h + 1 < horizon:
                ahead = theta[h + 1, index[states[h + 1], actions[h + 1]]]
            theta[h, index[x, a]] += rate * (rewards[h] + ahead - here)
            gram.reshape(horizon, -1)[h, index[x, a]] += 1.0
            continue
        for j in range(dim):
            here += theta[h, j] * phi[x, a, j]
            if h + 1 < horizon:
                ahead += theta[h + 1, j] * phi[states[h + 1], actions[h + 1], j]
        step = rate * (rewards[h] + ahead - here)
        for j in range(dim):
            theta[h, j] += step * phi[x, a, j]
            for i in range(dim):
                gram.reshape(horizon, -1)[h, i * dim + j] += phi[x, a, i] * phi[x, a, j]


class SARSAAgent(LocalAgent):
    """An agent with weights θ (H, d), and Λ of what it saw, which decides nothing."""

    KEPT = ("theta", "gram")

    def __init__(
        self, plan: Plan, m: int, meter: GroupMeter, settings: SARSASettings, values: TabularValues
    ) -> None:
        env: Any = plan.envs[m]
        p, hot = plan.parameters, plan.parameters.packing == "diagonal"
        pairs = p.horizon * env.n_states * env.n_actions
        super().__init__(plan, m, meter, pairs if settings.temperature > 0.0 else 0)
        self.rate, self.temperatures = settings.rate, settings.temperature * p.ceilings
        self.phi = np.empty((0, 0, 0)) if hot else values.phi
        self.index = values.index if hot else np.empty((0, 0), np.int64)
        self.theta = np.zeros((p.horizon, p.dim))
        self.gram = np.stack([identity(p.dim, p.lam, p.packing)] * p.horizon)
        self.prepare()

    def renew(self, draws: np.ndarray) -> None:
        about = (self.theta, self.phi, self.index, self.temperatures)
        softmax_table(*about, draws, self.policy)

    def learn(self, states: np.ndarray, actions: np.ndarray, rewards: np.ndarray) -> None:
        about = (self.theta, self.gram, self.phi, self.index)
        sarsa_steps(*about, states, actions, rewards, self.rate)

    def message(self) -> Message:
        return (self.theta,)

    def receive(self, *average: np.ndarray) -> None:
        self.theta[:] = average[0]


class SARSAPlay(LocalPlay):
    """Local SARSA and means of weights."""

    algorithm = "fed-sarsa"

    def __init__(self, plan: Plan, settings: SARSASettings, keep_models: bool) -> None:
        super().__init__(plan, settings, keep_models)
        assert isinstance(self.values, TabularValues)
        self.agents = [
            SARSAAgent(plan, m, self.regret_meter.group([m]), settings, self.values)
            for m in range(plan.parameters.n_agents)
        ]

    def average(self, messages: list[Message]) -> Message:
        return (np.stack([message[0] for message in messages]).mean(axis=0),)

    def report(self) -> tuple[np.ndarray, np.ndarray]:
        """θ, and Λ of what agent 0 saw."""
        theta, gram = self.agents[0].theta, self.agents[0].gram
        packing = self.parameters.packing
        rebuild(self.values, theta, pack(gram, packing), packing)
        return theta, gram


class FedSARSA(Comparator):
    """Local SARSA and means of weights. Settings: `SARSASettings`."""

    name = "fed-sarsa"
    settings_type = SARSASettings
    play_type = SARSAPlay


def scalars(run: Run) -> dict[str, int]:
    """MHd up and down for every average."""
    p = run.parameters
    weights = run.rounds * p.n_agents * p.horizon * p.dim
    return {"up_stats": weights, "down_model": weights}
