"""What a server keeps of raw episodes that were played elsewhere.

These are the memories of Fed-LSVI's agents, filled by messages instead of playing, with the same
sums and the same relabelling.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.envs.gym.episodes import Played
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.experience.buffer import Buffer
from fedlsvi.experience.state_round import Batch
from fedlsvi.experience.transition_counts import TransitionMemory
from fedlsvi.experience.values import BlockValues, TabularValues
from fedlsvi.experience.workers import Workers
from fedlsvi.protocol.plan import Plan


def received_memory(plan: Plan, values: TabularValues | BlockValues) -> Any:
    """The memory of a server for all agents of a plan."""
    p, world = plan.parameters, plan.world
    size = (p.n_agents, p.horizon, p.matrices)
    if isinstance(values, TabularValues):
        return TransitionMemory(values, *size)
    stepped = isinstance(world, GymWorld)
    after = [env.absorbing_reward for env in plan.envs] if stepped else None
    return Buffer(values, world.width, *size, Workers(plan.threads), after)


class ReceivedStates:
    """A message (states, actions, rewards), each (m, H, n), as a round. States are (m, H + 1, n)
    where steps share their data; else x_{H+1} does not travel, as V_{H+1} = 0 needs none."""

    def __init__(self, episodes: Message, values: TabularValues) -> None:
        self.states, self.actions, self.rewards = episodes
        self.n_actions = (values.phi if values.phi.size else values.index).shape[1]

    def batches(self, groups: int) -> Iterator[Batch]:
        """The transitions, group by group and agent by agent."""
        m, H, n = self.actions.shape
        states = np.zeros((m, H + 1, n), np.int64)
        states[:, : self.states.shape[1]] = self.states
        pairs, size = states[:, :H] * self.n_actions + self.actions, H // groups
        for g in range(groups):
            steps, after = slice(g * size, (g + 1) * size), slice(g * size + 1, (g + 1) * size + 1)
            for i in range(m):
                seen = (pairs[i, steps], states[i, after], self.rewards[i, steps])
                yield Batch(g, i, *(part.ravel() for part in seen))


def received_vectors(episodes: Message) -> Sequence[Sequence[Played]]:
    """A message of states that are vectors, (m, H, n, s), agent by agent. In a black box a step
    after the end has the action −1. Where steps share their data states are (m, H + 1, n, s), the
    last one NaN where the episode has ended."""
    states, actions, rewards = (np.swapaxes(part, 1, 2) for part in episodes)
    H, lengths = actions.shape[2], (actions >= 0).sum(axis=2)
    last, ended = np.zeros_like(states[:, :, 0]), np.zeros(lengths.shape, bool)
    if states.shape[2] > H:
        ended = np.asarray(np.isnan(states[:, :, H]).any(axis=2))
        last = np.where(ended[:, :, None], 0.0, states[:, :, H])
    parts = (states[:, :, :H], actions, rewards, lengths, ended, last)
    return [[Played(*(part[i] for part in parts))] for i in range(len(actions))]
