"""PSRL: every agent plans in an MDP that it draws from the posterior of everybody's counts.

Osband, Russo, Van Roy (2013), "(More) efficient reinforcement learning via posterior sampling",
NeurIPS 2013. Tabular. Transitions of every (h, x, a) have a Dirichlet prior, mean rewards a Beta
prior. At the beginning of a round each agent draws one MDP, and follows its optimal policy until
some agent has doubled its share of a count, N_h(x, a)/M; then everybody sends the counts of the
round, and gets the sums.

Checked: one draw for each episode of a single agent, its optimal policy (paper). For several
agents: rounds in the place of episodes, so that counts travel rarely, and a draw for each agent,
which makes them explore differently (derived here). A reward r in [0, 1] counts as r successes and
1 − r failures of the Beta law, which for random rewards is more cautious than their own (from
memory: Agrawal and Goyal toss a coin of bias r). Its guarantee is on the expected regret over the
prior.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.algorithms.shared.comparator import Comparator, Play, Segment
from fedlsvi.algorithms.shared.contract import Stateless
from fedlsvi.algorithms.shared.explorer import Explorer
from fedlsvi.algorithms.shared.fedq import as_model, count, first_reaching
from fedlsvi.algorithms.shared.regret_meter import GroupMeter
from fedlsvi.algorithms.shared.settings import SharedSettings
from fedlsvi.checks import number
from fedlsvi.core.value import choose
from fedlsvi.groups import CommonSettings
from fedlsvi.protocol.plan import Plan
from fedlsvi.run import Run

STREAM = 6
"""Keeps these draws apart from those of other streams of the same seed."""


@dataclass(frozen=True)
class PSRLSettings(SharedSettings, CommonSettings):
    """Settings of posterior sampling.

    Attributes:
        prior: How many transitions the Dirichlet prior is worth, spread over all next states.
    """

    fixed: ClassVar = {"gamma": 1.0, "beta": 0.0, "lam": 1.0, "packing": "diagonal"}

    prior: float = 0.25

    def check(self) -> None:
        """The prior is worth something."""
        super().check()
        number("prior", self.prior, 0.0, "prior=1 is worth one transition", strict=True)


class Counts:
    """Visits, rewards and transitions of every (h, x, a), summed.

    Attributes:
        visits, earned: (H, S, A).
        moves: (H, S, A, S).
    """

    def __init__(self, plan: Plan) -> None:
        env: Any = plan.envs[0]
        H, S, A = env.horizon, env.n_states, env.n_actions
        self.visits, self.earned = np.zeros((H, S, A), np.int64), np.zeros((H, S, A))
        self.moves = np.zeros((H, S, A, S))

    def add(self, message: Message) -> None:
        """Add the counts of a round."""
        visits, earned, moves = message
        self.visits += visits
        self.earned += earned
        self.moves += moves

    def message(self) -> Message:
        """All of them."""
        return self.visits, self.earned, self.moves

    def state(self) -> dict[str, np.ndarray]:
        """All arrays."""
        return {"visits": self.visits, "earned": self.earned, "moves": self.moves}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `state` gave."""
        for name, array in self.state().items():
            array[:] = state[name]


class PSRLAgent(Stateless):
    """One agent: it draws, plays, and counts what it saw in the round.

    Attributes:
        Q: Of the MDP that it drew, (H, S, A).
        policy: Optimal there, (H, S).
    """

    def __init__(self, plan: Plan, m: int, meter: GroupMeter, prior: float) -> None:
        env: Any = plan.envs[m]
        p, S, A = plan.parameters, env.n_states, env.n_actions
        self.m, self.seed, self.prior, self.meter = m, plan.seed, prior / S, meter
        self.n_agents, self.ceilings = p.n_agents, p.ceilings
        self._explorer = Explorer(plan, np.array([m]))
        self.Q = np.zeros((p.horizon, S, A))
        self.policy = np.zeros((p.horizon, S), np.int32)
        self._limits = np.ones((1, p.horizon, S))

    def draw(self, counts: Message, episode: int) -> None:
        """An MDP from the posterior, and its optimal policy; keyed by the episode that follows."""
        visits, earned, moves = counts
        rng = np.random.default_rng([self.seed, STREAM, self.m, episode])
        reward = rng.beta(1.0 + earned, 1.0 + visits - earned)
        weights = rng.standard_gamma(moves + self.prior)
        # so small a prior that every weight underflows: nothing is known there
        total = weights.sum(axis=3, keepdims=True)
        law = np.where(
            total > 0.0, weights / np.where(total > 0.0, total, 1.0), 1.0 / len(moves[0])
        )
        following = np.zeros(self.policy.shape[1])
        for h in range(len(self.Q) - 1, -1, -1):
            self.Q[h] = np.minimum(reward[h] + law[h] @ following, self.ceilings[h])
            choose(self.Q[h], self.policy[h])
            following = self.Q[h].max(axis=1)
        chosen = np.take_along_axis(visits, self.policy[..., None].astype(np.int64), axis=2)
        self._limits[0] = np.maximum(1, -(-chosen[..., 0] // self.n_agents))

    def play(self, first: int, n: int) -> tuple[int, int]:
        """Play n episodes; the first that calls for the end of the round (1 … n), and the step, or
        zeros."""
        self._explorer.play(first, n, self.policy)
        when, steps = np.zeros(1, np.int64), np.zeros(1, np.int64)
        first_reaching(self._explorer.log, n, self._limits, when, steps)
        return int(when[0]), int(steps[0])

    def counted(self, n: int) -> Message:
        """Counts of the first n episodes of those played last."""
        log, actions, rewards = self._explorer.buffers
        shape = (1, *self.Q.shape)
        visits, earned = np.zeros(shape, np.int64), np.zeros(shape)
        moves = np.zeros((*shape, shape[2]))
        count(log, n, actions, rewards, visits, earned, moves)
        return visits[0], earned[0], moves[0]


class PSRLPlay(Play):
    """Draw, play until a count has doubled, add."""

    algorithm = "psrl"

    def __init__(self, plan: Plan, settings: PSRLSettings, keep_models: bool) -> None:
        super().__init__(plan, settings, keep_models)
        self.agents = [
            PSRLAgent(plan, m, self.regret_meter.group([m]), settings.prior)
            for m in range(plan.parameters.n_agents)
        ]
        self.server, self._guess = Counts(plan), 1
        self.draw(self.server.message(), 1)

    def draw(self, counts: Message, episode: int) -> None:
        """Everybody draws for the round that begins with this episode."""
        for agent in self.agents:
            agent.draw(counts, episode)

    def parties(self) -> dict[str, Any]:
        return {f"agent{agent.m}": agent for agent in self.agents} | {"server": self.server}

    def advance(self) -> Segment:
        left = self.episodes - self.t
        n = min(left, self._guess)
        while True:
            ends = [agent.play(self.t + 1, n) for agent in self.agents]
            length = min((when for when, _ in ends if when), default=0)
            if length or n == left:
                break
            n = min(2 * n, left)
        length = length or left
        self._guess, last = length + 1, self.t + length
        fired = [(m, h) for m, (when, h) in enumerate(ends) if when == length]
        for agent in self.agents:
            agent.meter.record(self.t + 1, length, agent.policy)
        if last == self.episodes:  # the budget ends the round for everybody
            fired = [(agent.m, 0) for agent in self.agents]
        self.channel.signal(np.array([m for m, _ in fired]), last)
        self.channel.stop(last)
        began = perf_counter()
        for agent in self.agents:
            self.server.add(self.channel.send(agent.m, "up_stats", *agent.counted(length)))
        sums = self.channel.broadcast("down_model", *self.server.message())
        self.draw(sums, last + 1)
        self.planning += perf_counter() - began
        return Segment(last, 1, fired, len(fired))

    def followed(self) -> np.ndarray:
        return self.agents[0].policy

    def report(self) -> tuple[np.ndarray, np.ndarray]:
        return as_model(self.values, self.agents[0].Q, self.server.visits)

    def resumed(self) -> None:
        self.draw(self.server.message(), self.t + 1)


class PSRL(Comparator):
    """Posterior sampling from pooled counts. Settings: `PSRLSettings`."""

    name = "psrl"
    settings_type = PSRLSettings
    play_type = PSRLPlay
    tabular = True
    sums_of = "agents"


def scalars(run: Run) -> dict[str, int]:
    """MHSA(S + 2) up and down per round, and signals."""
    p, K = run.parameters, run.rounds
    table = K * p.n_agents * p.horizon * p.dim * (len(run.policy.table[0]) + 2)
    signals = K * p.n_agents + 2 * sum(r.signals for r in run.records)
    return {"signal": signals, "up_stats": table, "down_model": table}
