"""Agents that play a Gymnasium environment as a black box and return what they saw.

Where states are numbers, episodes look as they do in an environment whose table is known: after
the end comes the absorbing state, which pays the image of 0. Where states are vectors, steps after
the end have action −1 and zeros elsewhere; nothing is learned from them. The state after step H is
NaN where the episode has ended, at that step or before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.envs.gym.episodes import Act, Played, Players
from fedlsvi.envs.gym.world import COPIES, GymWorld
from fedlsvi.envs.policy_table import is_integer_table, not_a_policy
from fedlsvi.errors import InvalidInput
from fedlsvi.experience.stepped_states import close_off
from fedlsvi.experience.values import BlockValues
from fedlsvi.experience.vector_sources import greedy_rows
from fedlsvi.experience.workers import Workers, contiguous_runs
from fedlsvi.protocol.plan import Plan

NO_ACTION = -1
"""The action of a step after the end, where states are vectors."""


class SteppedExplorer:
    """Some agents of a plan, each in copies of its own environment, that follow one policy.

    Args:
        plan: The run.
        agents: Which agents, (m,).
    """

    def __init__(self, plan: Plan, agents: np.ndarray) -> None:
        self.agents, self._returns = np.asarray(agents, np.int64), plan.returns
        worlds: Any = [plan.envs[m] for m in agents]
        self.world: GymWorld = worlds[0]
        self._runs = contiguous_runs(worlds)
        self._players = [Players(env, self.agents[lo:hi], plan.seed) for lo, hi, env in self._runs]
        self._workers = Workers(1)

    def play(self, first: int, n: int, policy: Any) -> Message:
        """Play episodes; at most COPIES of each agent at once, so that copies stay few.

        Args:
            first: The first episode, counted from 1.
            n: How many.
            policy: Integer table (H, S), or the values to act by where states are vectors.

        Returns:
            States (m, H + 1, n) or (m, H + 1, n, s), actions and rewards (m, H, n).
        """
        act = self._act(policy)
        parts = []
        for at in range(first, first + n, COPIES):
            size = min(COPIES, first + n - at)
            for (lo, hi, env), players in zip(self._runs, self._players, strict=True):
                seen, earned = _as_seen(players.play(at, size, act), env)
                self._returns.put(self.agents[lo:hi], at, env.original(earned))
                parts.append(seen)
        groups = len(self._runs)
        blocks = [_joined(parts[k : k + groups], 0) for k in range(0, len(parts), groups)]
        return _joined(blocks, 2)

    def _act(self, policy: Any) -> Act:
        """How to act by a policy, which is checked before anything is played."""
        world = self.world
        if world.finite:
            whole = is_integer_table(policy, (world.horizon, world.n_states))
            if not whole or policy.min() < 0 or policy.max() >= world.n_actions:
                raise not_a_policy(policy, world)
            return lambda h, x, rows: policy[h - 1, x]
        if not isinstance(policy, BlockValues):
            raise InvalidInput(
                f"the policy is of type {type(policy).__name__}, but states are vectors: give the "
                "values to act on, such as empty_values(plan)",
                code="bad-policy",
            )
        scratch = [policy.scratch()]
        return lambda h, x, rows: greedy_rows(policy, self._workers, scratch, h, x)[0]


def _as_seen(played: Played, env: GymWorld) -> tuple[Message, np.ndarray]:
    """States, actions and rewards of a group of agents, with the episode on the third axis; and
    what the episodes earned in [0, 1] per step, (m, n)."""
    if env.finite:
        close_off(played, env)
        earned = played.rewards.sum(axis=2)
    else:
        over = np.arange(env.horizon) >= played.lengths[:, :, None]
        played.actions[over] = NO_ACTION
        played.last[played.ended] = np.nan
        after = (env.horizon - played.lengths) * env.absorbing_reward
        earned = played.rewards.sum(axis=2) + after
    log = np.concatenate([played.states, played.last[:, :, None]], axis=2)
    return tuple(np.swapaxes(part, 1, 2) for part in (log, played.actions, played.rewards)), earned


def _joined(parts: list[Message], axis: int) -> Message:
    """Messages one after the other, array by array."""
    return tuple(np.concatenate(arrays, axis=axis) for arrays in zip(*parts, strict=True))
