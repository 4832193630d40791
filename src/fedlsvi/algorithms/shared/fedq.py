"""What the federated Q-learning algorithms share: rounds with a common policy, and counting.

In a round all agents follow π. An agent asks for the end of the round when it has visited some
(h, x, π_h(x)) as often as it may (`limits`); the round ends for everybody with that episode. Agents
then send sums at a = π_h(x) only, so a message has one number per (h, x) and statistic.
"""

from __future__ import annotations

from abc import abstractmethod
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from numba import njit

from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.algorithms.shared.comparator import Play, Segment
from fedlsvi.algorithms.shared.contract import Stateless
from fedlsvi.algorithms.shared.explorer import Explorer
from fedlsvi.algorithms.shared.lsvi_sums import rebuild
from fedlsvi.algorithms.shared.settings import TabularSettings
from fedlsvi.core.value import choose
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.experience.values import TabularValues
from fedlsvi.protocol.plan import Plan
from fedlsvi.run import Run


@njit(cache=True, nogil=True)
def first_reaching(log, n, limits, when, steps):  # type: ignore[no-untyped-def]
    """The first of n episodes in which some agent's visits of some (h, x) reach limits[i, h, x].

    when[i] is that episode (1 … n) for the agents that reach a limit in it, else 0; steps[i] is the
    lowest such h. Returns the episode, or 0.
    """
    horizon, n_states = limits.shape[1:]
    best = n + 1
    for i in range(log.shape[0]):
        when[i], steps[i] = 0, 0
        visits = np.zeros((horizon, n_states), np.int64)
        for e in range(min(n, best)):
            for h in range(horizon):
                x = log[i, h, e]
                visits[h, x] += 1
                if visits[h, x] >= limits[i, h, x] and when[i] == 0:
                    when[i], steps[i] = e + 1, h + 1
            if when[i] > 0:
                best = e + 1
                break
    for i in range(log.shape[0]):
        if when[i] > best:
            when[i] = 0
    return best if best <= n else 0


@njit(cache=True, nogil=True)
def visit_means(log, n, rewards, values, out):  # type: ignore[no-untyped-def]
    """out (4, m, H, S): visits n, and the means of r, V_{h+1}(x') and V²_{h+1}(x')."""
    horizon = rewards.shape[1]
    out[:] = 0.0
    for i in range(log.shape[0]):
        for h in range(horizon):
            for e in range(n):
                x = log[i, h, e]
                v = values[h + 1, log[i, h + 1, e]]
                out[0, i, h, x] += 1.0
                out[1, i, h, x] += rewards[i, h, e]
                out[2, i, h, x] += v
                out[3, i, h, x] += v * v
            for x in range(out.shape[3]):
                if out[0, i, h, x] > 0.0:
                    for k in range(1, 4):
                        out[k, i, h, x] /= out[0, i, h, x]


@njit(cache=True, nogil=True)
def count(log, n, actions, rewards, visits, earned, moves):  # type: ignore[no-untyped-def]
    """Add n episodes to visits and earned (m, H, S, A) and to moves (m, H, S, A, S)."""
    for i in range(log.shape[0]):
        for h in range(actions.shape[1]):
            for e in range(n):
                x, a = log[i, h, e], actions[i, h, e]
                visits[i, h, x, a] += 1
                earned[i, h, x, a] += rewards[i, h, e]
                moves[i, h, x, a, log[i, h + 1, e]] += 1


class TabularAgents(Stateless):
    """All M agents: they count their visits within a round and forget them after it."""

    def __init__(self, plan: Plan) -> None:
        env, p = plan.envs[0], plan.parameters
        assert isinstance(env, FiniteMDP | GymWorld)
        self.explorer = Explorer(plan, np.arange(p.n_agents))
        self.values = np.zeros((p.horizon + 1, env.n_states))
        self.policy = np.zeros((p.horizon, env.n_states), np.int32)
        self.limits = np.ones((p.n_agents, p.horizon, env.n_states))
        self.statistics = np.empty((4, p.n_agents, p.horizon, env.n_states))
        self.length, self._guess = 0, 1

    def receive(self, policy: np.ndarray, limits: np.ndarray, values: np.ndarray) -> None:
        """Take the server's message at the start of a round; V_{H+1} = 0 does not travel."""
        self.policy[:], self.limits[:], self.values[:-1] = policy, limits, values

    def play(self, t: int, left: int) -> list[tuple[int, int]]:
        """Play episodes t + 1 …, at most `left`; returns who ended the round, at which step."""
        m = self.statistics.shape[1]
        when, steps = np.zeros(m, np.int64), np.zeros(m, np.int64)
        n = min(left, self._guess)
        while True:
            self._seen = self.explorer.play(t + 1, n, self.policy)
            self.length = first_reaching(self.explorer.log, n, self.limits, when, steps)
            if self.length > 0 or n == left:
                break
            n = min(2 * n, left)
        self.length = self.length or left
        self._guess = self.length + 1
        return [(int(i), int(steps[i])) for i in np.flatnonzero(when)]

    def means(self) -> np.ndarray:
        """n, r̄, v̄ and the mean of V² of the round, (4, M, H, S)."""
        log, _, rewards = self.explorer.buffers
        visit_means(log, self.length, rewards, self.values, self.statistics)
        return self.statistics


class TabularServer:
    """The server's tables: Q, V, N and π."""

    def __init__(self, plan: Plan) -> None:
        p, env = plan.parameters, plan.envs[0]
        assert isinstance(env, FiniteMDP | GymWorld)
        self.top = p.ceilings
        self.Q = np.repeat(self.top, env.n_states * env.n_actions).reshape(
            p.horizon, env.n_states, env.n_actions
        )
        self.N = np.zeros(self.Q.shape, np.int64)
        self.values = np.zeros((p.horizon + 1, env.n_states))
        self.policy = np.zeros((p.horizon, env.n_states), np.int32)
        self.greedy()

    def greedy(self) -> None:
        """π = argmax Q, lowest index first; V = min(c_h, max Q)."""
        choose(self.Q.reshape(self.policy.size, -1), self.policy.reshape(-1))
        np.minimum(self.Q.max(axis=2), self.top[:, None], out=self.values[:-1])

    def at_policy(self, table: np.ndarray) -> np.ndarray:
        """table[h, x, π_h(x)]."""
        chosen: np.ndarray = np.take_along_axis(table, self.policy[..., None], axis=2)[..., 0]
        return chosen

    KEPT: ClassVar[tuple[str, ...]] = ("Q", "N", "values")

    def state(self) -> dict[str, np.ndarray]:
        """All tables."""
        return {name: getattr(self, name) for name in self.KEPT}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Put back what `state` gave."""
        for name in self.KEPT:
            getattr(self, name)[:] = state[name]
        self.greedy()


class RoundsPlay(Play):
    """Rounds: the server sends, the agents play until one has seen enough, and answer."""

    tables: Any

    def __init__(self, plan: Plan, settings: TabularSettings, keep_models: bool) -> None:
        super().__init__(plan, settings, keep_models)
        self.agents = TabularAgents(plan)
        self.meter = self.regret_meter.group(range(plan.parameters.n_agents))
        self.tables = self.make_tables()

    @abstractmethod
    def make_tables(self) -> Any:
        """The server's tables."""

    def begin_round(self) -> None:
        """Send the agents what they need to play a round."""

    @abstractmethod
    def synchronise(self) -> None:
        """Exchange statistics at the end of a round."""

    def parties(self) -> dict[str, Any]:
        return {"agents": self.agents, "server": self.tables}

    def advance(self) -> Segment:
        self.begin_round()
        left = self.episodes - self.t
        fired = self.agents.play(self.t, left)
        last = self.t + self.agents.length
        self.meter.record(self.t + 1, self.agents.length, self.agents.policy)
        M = self.plan.parameters.n_agents
        if last == self.episodes:  # the budget ends the round for everybody
            fired = [(m, 0) for m in range(M)]
        self.channel.signal(np.array([m for m, _ in fired]), last)
        self.channel.stop(last)
        began = perf_counter()
        self.synchronise()
        self.planning += perf_counter() - began
        return Segment(last, 1, fired, len(fired))

    def followed(self) -> np.ndarray:
        table: np.ndarray = self.tables.policy
        return table

    def report(self) -> tuple[np.ndarray, np.ndarray]:
        return as_model(self.values, self.tables.Q, self.tables.N)


def as_model(values: Any, Q: np.ndarray, N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q and 1 + N in the coordinates of one-hot features; `values` become those of Q."""
    assert isinstance(values, TabularValues)
    w, gram = np.ascontiguousarray(Q.reshape(len(Q), -1)), 1.0 + N.reshape(len(N), -1)
    rebuild(values, w, gram, "diagonal")
    return w, gram


def scalars(run: Run, up: int, down: int) -> dict[str, int]:
    """K rounds of `up` and `down` tables over (h, x) per agent, and M + 2s for signals each."""
    p, K = run.parameters, run.rounds
    table = p.n_agents * p.horizon * len(run.policy.table[0])
    signals = K * p.n_agents + 2 * sum(r.signals for r in run.records)
    return {"signal": signals, "up_stats": K * up * table, "down_model": K * down * table}


class FedQPlay(RoundsPlay):
    """Rounds of FedQ: agents send all statistics of a round at once."""

    def synchronise(self) -> None:
        answers = self.channel.gather("up_stats", *self.answers())
        self.tables.update(*answers)

    @abstractmethod
    def answers(self) -> Message:
        """The agents' statistics of a round, each array (M, …)."""
