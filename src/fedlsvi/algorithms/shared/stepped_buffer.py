"""What a server keeps of raw episodes that were played in a black box elsewhere.

It is the memory of Fed-LSVI's agents (`experience.stepped`), filled by messages instead of playing:
the same sums and the same relabelling, on the server's side. Nothing is ever stepped here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlsvi.algorithms.shared.channel import Message
from fedlsvi.experience.stepped import GymExperience, GymFiniteExperience
from fedlsvi.experience.workers import Workers
from fedlsvi.protocol.plan import Plan


class VectorEpisodes(GymExperience):
    """Episodes whose states are vectors; a step after the end has the action −1."""

    def take(self, episodes: Message) -> None:
        """Append (states, actions, rewards), (m, H, n, …), as the round that has just ended."""
        states, actions, rewards = (np.swapaxes(part, 1, 2) for part in episodes)
        used, at = actions >= 0, self.t + self.length
        part = {"states": states[used], "actions": actions[used], "rewards": rewards[used]}
        self.extend(at, part | {"lengths": used.sum(axis=2)})
        self.begin(at)
        self.length = actions.shape[1]


class CountedEpisodes(GymFiniteExperience):
    """Episodes whose states are numbers, as counts of transitions."""

    def take(self, episodes: Message) -> None:
        """Count (states, actions, rewards), (m, H, n), as the round that has just ended. All agents
        follow one policy; x_{H+1} did not travel, and V_{H+1} = 0 needs none."""
        states, actions, rewards = episodes
        n = states.shape[2]
        self.begin(self.t + self.length)
        self._policy[np.arange(states.shape[1])[:, None], states] = actions
        self._make_room(n)
        self._log[:, :-1, :n], self._log[:, -1, :n] = states, 0
        self._paid[:, :, :n] = rewards
        self.close(n)


def stepped_buffer(plan: Plan) -> Any:
    """The memory of a server for all agents of a plan."""
    p, everyone = plan.parameters, np.arange(plan.parameters.n_agents)
    worlds: Any = plan.envs
    kind: Any = CountedEpisodes if worlds[0].finite else VectorEpisodes
    return kind(worlds, everyone, plan.values(), plan.seed, p.packing, Workers(plan.threads))
