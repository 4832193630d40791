"""Agents that play and return what they saw, as raw episodes.

In a finite MDP the compiled blocks are Fed-LSVI's (`experience.finite_kernels`): keyed draws, alias
tables, a policy that is frozen while a block is played. An environment that can only be stepped is
played by `stepped_explorer`. Episodes beyond a synchronisation are discarded; playing them again
gives the same states.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.algorithms.shared.stepped_explorer import SteppedExplorer
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.envs.policy_table import is_integer_table, not_a_policy
from fedlsvi.experience.finite_kernels import packed, policy_rows, simulate
from fedlsvi.experience.workers import contiguous_runs
from fedlsvi.protocol.plan import Plan


@njit(cache=True, nogil=True)
def _play(  # type: ignore[no-untyped-def]
    lo, hi, seed, agents, episode, n, world, policy, first, width, log, actions, rewards
):
    """n episodes from `episode` on: states into log (m, H + 1, n), actions and rewards (m, H, n).
    Returns False where the policy has an action that does not exist."""
    law, start, prob, pair, stationary, n_actions, reward, moving = world
    for a in policy.flat:
        if not 0 <= a < n_actions:
            return False
    policy_rows(start, stationary, n_actions, policy, first, width)
    begin, tables = np.int64(0), (prob, pair)
    episodes = np.full(agents.size, episode)
    simulate(lo, hi, seed, agents, episodes, n, begin, law, tables, first, width, log)
    horizon = policy.shape[0]
    for i in range(lo, hi):
        for h in range(horizon):
            pay = reward[h if reward.shape[0] > 1 else 0]
            for e in range(n):
                x = log[i, h, e]
                a = policy[h, x]
                actions[i, h, e] = a
                rewards[i, h, e] = pay[x, a, log[i, h + 1, e] if moving else 0]
    return True


class Explorer:
    """Some agents of a plan, each in its own environment, that follow one policy.

    Args:
        plan: The run.
        agents: Which agents, (m,).
    """

    def __init__(self, plan: Plan, agents: np.ndarray) -> None:
        self.agents, self.seed = np.asarray(agents, np.int64), plan.seed
        envs = [plan.envs[m] for m in agents]
        self._env: Any = envs[0]
        self._stepped: SteppedExplorer | None = None
        if isinstance(self._env, GymWorld):
            self._stepped = SteppedExplorer(plan, self.agents)
        else:
            self._groups = [(lo, hi, _world(env)) for lo, hi, env in contiguous_runs(envs)]
        self._shape = (len(envs), self._env.horizon)
        tables = self._env.horizon, self._env.n_states if self._env.finite else 0
        self._first, self._width = np.empty(tables, np.int64), np.empty(tables)
        self._log = np.empty((len(envs), self._env.horizon + 1, 0), np.uint32)

    def play(self, first: int, n: int, policy: Any) -> Message:
        """Play episodes and return (states, actions, rewards), each (m, H, n).

        These are read-only views of the explorer's buffers: use or send them before it plays again.

        Args:
            first: The first episode, counted from 1.
            n: How many.
            policy: Integer table (H, S); in a black box whose states are vectors, `BlockValues`.
        """
        if self._stepped is not None:
            return self._step(first, n, policy)
        self._room(n)
        for lo, hi, world in self._groups:
            if not is_integer_table(policy, self._first.shape) or not _play(
                lo, hi, self.seed, self.agents, first, n, world, policy, self._first, self._width,
                self._log, self._actions, self._rewards,
            ):  # fmt: skip
                raise not_a_policy(policy, self._env)
        return self._views(n)

    def _step(self, first: int, n: int, policy: Any) -> Message:
        """Play in a black box. Numbers of states go into the buffers that the kernels know."""
        assert self._stepped is not None
        log, actions, rewards = self._stepped.play(first, n, policy)
        if not self._env.finite:
            self._log = log
            return log[:, :-1], actions, rewards
        self._room(n)
        self._log[:, :, :n], self._rewards[:, :, :n] = log, rewards
        steps = np.arange(self._env.horizon)[:, None]
        self._actions[:, :, :n] = policy[steps, log[:, :-1]]  # also after the end
        return self._views(n)

    def _views(self, n: int) -> Message:
        seen = self._log[:, :-1, :n], self._actions[:, :, :n], self._rewards[:, :, :n]
        for view in seen:
            view.setflags(write=False)
        return seen

    @property
    def log(self) -> np.ndarray:
        """The states of the episodes played last, x_{H+1} included, (m, H + 1, ≥ n)."""
        return self._log

    @property
    def buffers(self) -> Message:
        """`log`, and the actions and rewards of the episodes played last, (m, H, ≥ n)."""
        return self._log, self._actions, self._rewards

    def _room(self, n: int) -> None:
        if self._log.shape[2] < n:
            m, horizon = self._shape
            self._log = np.empty((m, horizon + 1, n), np.uint32)
            self._actions = np.empty((m, horizon, n), np.int32)
            self._rewards = np.empty((m, horizon, n))


def _world(env: FiniteMDP) -> tuple[object, ...]:
    """What the kernels need of an environment."""
    moving = env.reward_on_transition
    reward = env.r[..., None] if moving is None else moving
    return (
        packed(env.initial_tables), *packed(env.tables), len(env.P) == 1, env.n_actions,
        reward, moving is not None,
    )  # fmt: skip
