"""Who takes part in a round: agents that are away at times, join late or leave for good.

Whether agent m is there in round k depends on two things: its stays, which are given, and a draw
that is keyed by (seed, m, k), as all random numbers are. So every process, and a run that is
resumed, sees the same agents come and go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fedlsvi.core.random import uniforms

STREAM = 32
"""Stream of the keyed generator."""

Stays = Sequence[Sequence[int]]
"""(agent, first, last) of each stay, in episodes; agents without one are always there."""


@dataclass(frozen=True)
class ParticipationSchedule:
    """Who is there, round by round.

    Attributes:
        n_agents: M.
        seed: Seed of the run.
        participation: The probability with which an agent that could be there is.
        present: Its stays; None where everybody could always be there.
    """

    n_agents: int
    seed: int
    participation: float = 1.0
    present: Stays | None = None

    def during(self, k: int, t: int) -> np.ndarray:
        """Numbers of the agents that play round k, which begins after episode t, in order.

        Somebody always does: if the draws leave nobody, the agent with the smallest of them.
        """
        could = could_play(self.n_agents, self.present, t + 1)
        draws = uniforms(self.seed, range(self.n_agents), k, 1, 1, STREAM)[:, 0, 0]
        there = could & (draws < self.participation)
        if not there.any():
            there[np.where(could, draws, np.inf).argmin()] = True
        return np.flatnonzero(there)


def could_play(n_agents: int, present: Stays | None, episode: int) -> np.ndarray:
    """(M,) whether an agent may play a round that begins with this episode."""
    could = np.ones(n_agents, np.bool_)
    for agent, _, _ in present or ():
        could[agent] = False
    for agent, first, last in present or ():
        could[agent] |= first <= episode <= last
    return could


def deserted(n_agents: int, present: Stays, episodes: int) -> int | None:
    """The first of so many episodes in which nobody could play; None if there is none."""
    edges = {1, *(last + 1 for _, _, last in present)}  # where somebody has just left
    empty = [t for t in edges if t <= episodes and not could_play(n_agents, present, t).any()]
    return min(empty, default=None)


def expected_share(
    n_agents: int, participation: float, present: Stays | None, episodes: int
) -> float:
    """About which share of MT episodes is played: draws and stays, and at least one agent."""
    edges = {1, episodes + 1}
    edges |= {edge for _, first, last in present or () for edge in (first, last + 1)}
    cuts = sorted(edge for edge in edges if edge <= episodes + 1)
    could = [could_play(n_agents, present, first).sum() * (last - first)
             for first, last in pairwise(cuts)]  # fmt: skip
    return max(participation * float(sum(could)) / (n_agents * episodes), 1.0 / n_agents)
