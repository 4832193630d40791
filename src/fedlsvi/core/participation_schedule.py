"""Who takes part in a round: agents that are away at times, join late or leave for good.

Whether agent m is there in round k depends on two things: its stays, which are given, and a draw
that is keyed by (seed, m, k), as all random numbers are. Where a number of agents is asked in place
of a share, the draws of round k are keyed by (seed, k) and choose them without replacement, in time
that depends on how many are asked, not on M. So every process, and a run that is resumed, sees the
same agents come and go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        participation: The probability with which an agent that could be there is; above 1, how
            many of them are asked.
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
        if self.participation > 1.0:
            return self._asked(k, t)
        could = could_play(self.n_agents, self.present, t + 1)
        draws = uniforms(self.seed, range(self.n_agents), k, 1, 1, STREAM)[:, 0, 0]
        there = could & (draws < self.participation)
        if not there.any():
            there[np.where(could, draws, np.inf).argmin()] = True
        return np.flatnonzero(there)

    def _asked(self, k: int, t: int) -> np.ndarray:
        """So many of the agents that could play; all, where there are fewer."""
        could = None
        if self.present is not None:
            could = np.flatnonzero(could_play(self.n_agents, self.present, t + 1))
        size = self.n_agents if could is None else len(could)
        n = min(int(self.participation), size)
        chosen = sample(uniforms(self.seed, [0], k, 1, n, STREAM)[0, 0], size)
        return chosen if could is None else could[chosen]


def sample(draws: np.ndarray, size: int) -> np.ndarray:
    """As many of 0 … size − 1 as there are draws, each set with the same probability, in order
    (Floyd's algorithm; Bentley and Floyd 1987)."""
    tops = np.arange(size - len(draws), size)
    chosen: set[int] = set()
    for top, at in zip(tops.tolist(), (draws * (tops + 1)).astype(np.int64).tolist(), strict=True):
        chosen.add(top if at in chosen else at)
    return np.array(sorted(chosen), np.int64)


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
    could = [(int(could_play(n_agents, present, first).sum()), last - first)
             for first, last in pairwise(cuts)]  # fmt: skip
    asked = participation > 1.0
    there = sum((min(participation, m) if asked else participation * m) * n for m, n in could)
    return max(there / (n_agents * episodes), 1.0 / n_agents)


NEVER, NOT_THERE = -1, -2
"""In place of the last episode of a round, of an agent that was in none, or is not in this one."""


class Attendance:
    """A schedule followed round by round: who is there now, and what each agent has played.

    Server and agents follow it apart from each other, and agree because it is a function of rounds
    and episodes alone.

    Attributes:
        schedule: Who is there, round by round.
        there: Numbers of the agents that play the round under way, or played the last one.
        played: (M,) episodes of each agent in all rounds that have ended.
        last: (M,) the last episode of the federation in the last round that each agent was in, 0
            for the round of the logs; `NEVER` before its first.
        before: The same without the round under way.
        k: Rounds that have ended.
    """

    def __init__(self, schedule: ParticipationSchedule) -> None:
        self.schedule = schedule
        self.there = np.empty(0, np.int64)
        self.played = np.zeros(schedule.n_agents, np.int64)
        self.last = np.full(schedule.n_agents, NEVER)
        self.before = self.last.copy()
        self._began = 0
        self.k = 0

    def begin(self, t: int) -> None:
        """A round begins after episode t of the federation."""
        self.before[self.there] = self.last[self.there]  # elsewhere they are the same
        self.there, self._began = self.schedule.during(self.k + 1, t), t

    def read_logs(self) -> None:
        """All agents take part in the round of the logs, before the first."""
        self.there, self.last[:] = np.arange(len(self.last)), 0

    def close(self, length: int) -> None:
        """The round has ended after so many episodes."""
        self.played[self.there] += length
        self.last[self.there] = self._began + length
        self.k += 1

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint between two rounds must hold."""
        rounds = np.array([self.k])
        return {"there": self.there, "played": self.played, "last": self.last, "rounds": rounds}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from `state`."""
        played, last, k = state["played"], state["last"], int(state["rounds"][0])
        if not (self.played.shape == played.shape == last.shape) or k < 0:
            raise ValueError("another number of agents or rounds than there can have been")
        if (played < 0).any() or ((last < played) & (played > 0)).any():
            raise ValueError("an agent that played more episodes than there were")
        self.there, self.k = state["there"], k
        self.played[:], self.last[:], self.before[:] = played, last, last
