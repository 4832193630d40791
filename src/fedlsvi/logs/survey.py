"""One pass over a log before anything is learned: every check, sizes, and what there is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fedlsvi.logs.patients import Patients
from fedlsvi.logs.rows import Rows
from fedlsvi.logs.sources import Source
from fedlsvi.logs.transitions import CUT, ENDED, Agent, Limits, Transitions, read


@dataclass
class AgentSurvey:
    """What one agent's log holds.

    Attributes:
        episodes: Number of episodes.
        visits: (longest,) transitions at each step.
        usable: (longest,) those of them after which it is known what follows.
        ended: (longest,) those after which the episode is over.
        earned: Sum of all rewards, in [0, 1] each.
        smallest_reward, largest_reward: In [0, 1].
        per_patient: Episodes of the patient who has the most in the whole log, all its agents'
            together; None where it does not say whose they are.
    """

    episodes: int = 0
    visits: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    usable: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    ended: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    earned: float = 0.0
    smallest_reward: float = np.inf
    largest_reward: float = -np.inf
    per_patient: int | None = None

    def add(self, seen: Transitions) -> None:
        """Take in some transitions."""
        top = int(seen.h.max())
        more = np.zeros(max(0, top - len(self.visits)), np.int64)
        for name, counted in (
            ("visits", seen.h),
            ("usable", seen.h[seen.fate != CUT]),
            ("ended", seen.h[seen.fate == ENDED]),
        ):
            total = np.concatenate([getattr(self, name), more])
            setattr(self, name, total + np.bincount(counted - 1, minlength=len(total)))
        self.episodes = max(self.episodes, int(seen.episode[-1]) + 1)
        self.earned += float(seen.reward.sum())
        self.smallest_reward = min(self.smallest_reward, float(seen.reward.min()))
        self.largest_reward = max(self.largest_reward, float(seen.reward.max()))

    def targets(self, horizon: int, stationary: bool = False) -> np.ndarray:
        """(longest,) transitions that have a target; at step H each has one, unless steps share a
        model, which asks what follows there too."""
        found = self.usable.copy()
        if len(found) == horizon and not stationary:
            found[-1] = self.visits[-1]
        return found

    def cut(self, horizon: int, stationary: bool = False) -> int:
        """Rows without a target: an episode was cut there and its next state is not known."""
        return int(self.visits.sum() - self.targets(horizon, stationary).sum())

    @property
    def transitions(self) -> int:
        """Rows."""
        return int(self.visits.sum())

    @property
    def lengths(self) -> np.ndarray:
        """(longest,) episodes of length 1, 2, …"""
        found: np.ndarray = self.visits - np.append(self.visits[1:], 0)
        return found


@dataclass(frozen=True)
class Survey:
    """What a log holds.

    Attributes:
        agents: By the agent's number or name; the only key is None where the log has no such
            column.
        longest: Steps of the longest episode.
        n_states: The largest state plus 1; None where states are vectors.
        state_dim: s, where states are vectors.
        n_actions: The largest action plus 1.
        least_action: The smallest.
        fingerprint: SHA-256 of all rows.
        probe: The first states, as they are.
    """

    agents: dict[Agent, AgentSurvey]
    longest: int
    n_states: int | None
    state_dim: int | None
    n_actions: int
    least_action: int
    fingerprint: str
    probe: np.ndarray


def survey(source: Source, limits: Limits, probed: int = 8) -> Survey:
    """Read a log once; the first thing that is wrong with it is raised."""
    digest, agents = hashlib.sha256(), dict[Agent, AgentSurvey]()
    most, least, top = -1, np.iinfo(np.int64).max, -1
    probe: np.ndarray = np.empty(0)
    patients = Patients()

    def digested() -> Iterator[Rows]:
        for rows in source.blocks():
            for part in vars(rows).values():
                if isinstance(part, np.ndarray):
                    digest.update(np.ascontiguousarray(part).data)
            patients.feed(rows)
            yield rows

    for agent, seen in read(digested(), limits):
        if len(probe) == 0:
            probe = seen.state[:probed]
        agents.setdefault(agent, AgentSurvey()).add(seen)
        most, least = max(most, int(seen.action.max())), min(least, int(seen.action.min()))
        if seen.state.ndim == 1:
            top = max(top, int(seen.state.max()), int(seen.following.max()))
    for own in agents.values():
        own.per_patient = patients.most
    finite = probe.ndim == 1
    return Survey(
        agents={key: agents[key] for key in sorted(agents, key=lambda k: (str(type(k)), k))},
        longest=max(len(own.visits) for own in agents.values()),
        n_states=top + 1 if finite else None,
        state_dim=None if finite else int(probe.shape[1]),
        n_actions=most + 1,
        least_action=int(least),
        fingerprint=digest.hexdigest(),
        probe=probe,
    )
