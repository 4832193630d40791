"""What a server keeps of raw episodes that were played in a black box elsewhere.

It is the memory of Fed-LSVI's agents (`experience.stepped`), filled by messages instead of playing:
the same sums and the same relabelling, on the server's side. Nothing is ever stepped here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.experience.stationary_finite import StationaryGymFiniteExperience
from fedlsvi.experience.stationary_vectors import StationaryGymExperience
from fedlsvi.experience.stepped import GymExperience
from fedlsvi.experience.stepped_finite import GymFiniteExperience
from fedlsvi.experience.workers import Workers
from fedlsvi.protocol.plan import Plan


class VectorEpisodes(GymExperience):
    """Episodes whose states are vectors; a step after the end has the action −1."""

    def take(self, episodes: Message) -> None:
        """Append (states, actions, rewards), (m, H, n, …), as the round that has just ended."""
        states, actions, rewards = (np.swapaxes(part, 1, 2) for part in episodes)
        used, at = actions >= 0, self.t + self.length
        part = {"states": states[:, :, : used.shape[2]][used], "lengths": used.sum(axis=2)}
        part |= {"actions": actions[used], "rewards": rewards[used]}
        self._append(at, part, states[:, :, -1])
        self.begin(at)
        self.length = actions.shape[1]
        self._hold_back()  # nothing waits on the server, which has no floor

    def _append(self, at: int, part: dict[str, np.ndarray], last: np.ndarray) -> None:
        self.extend(at, part)


class PooledVectorEpisodes(VectorEpisodes, StationaryGymExperience):
    """The same where steps share their data; states are (m, H + 1, n, s), the last one NaN where
    the episode has ended."""

    def _append(self, at: int, part: dict[str, np.ndarray], last: np.ndarray) -> None:
        ended = np.isnan(last).any(axis=2)
        self.pooled.begin()
        self.extend(at, part | {"last": np.where(ended[:, :, None], 0.0, last), "ended": ended})


class CountedEpisodes(GymFiniteExperience):
    """Episodes whose states are numbers, as counts of transitions."""

    def take(self, episodes: Message) -> None:
        """Count (states, actions, rewards), (m, H, n), as the round that has just ended. All agents
        follow one policy. x_{H+1} does not travel, as V_{H+1} = 0 needs none, unless steps share
        their data."""
        states, actions, rewards = episodes
        H, n = actions.shape[1:]
        self.begin(self.t + self.length)
        self._policy[np.arange(H)[:, None], states[:, :H]] = actions
        self._make_room(n)
        self._log[:, -1, :n] = 0
        self._log[:, : states.shape[1], :n] = states
        self._paid[:, :, :n] = rewards
        self.close(n)


class PooledCountedEpisodes(CountedEpisodes, StationaryGymFiniteExperience):
    """The same where steps share their data; states are (m, H + 1, n)."""


def stepped_buffer(plan: Plan) -> Any:
    """The memory of a server for all agents of a plan."""
    p, everyone = plan.parameters, np.arange(plan.parameters.n_agents)
    worlds: Any = plan.envs
    kinds: Any = (CountedEpisodes, PooledCountedEpisodes)
    if not worlds[0].finite:
        kinds = (VectorEpisodes, PooledVectorEpisodes)
    workers = Workers(plan.threads)
    return kinds[p.stationary](worlds, everyone, plan.values(), plan.seed, p.packing, workers)
