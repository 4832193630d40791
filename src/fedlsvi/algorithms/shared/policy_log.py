"""One agent's log as the evaluation of a policy reads it: what happened, what the policy would have
done next, and how often each episode counts in each repeat of the bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from fedlsvi.logs.transitions import CUT, ENDED, ON, Transitions
from fedlsvi.logs.world import LoggedWorld


class Decides(Protocol):
    """What is evaluated: a `Policy`, or another rule."""

    def actions(self, step: int, states: np.ndarray) -> np.ndarray:
        """The actions in a batch of states, numbered from 0, or all `EVENLY`."""
        ...


EVENLY = -1
"""In place of an action: the policy takes all actions alike."""

COLUMNS = ("state", "action", "reward", "following", "fate", "episode")


class StepRows(NamedTuple):
    """n transitions that count for a step."""

    state: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    following: np.ndarray
    on: np.ndarray
    """Whether a state follows."""
    ahead: np.ndarray
    """What the policy does there, at the next step."""
    episode: np.ndarray

    def cut(self, rows: slice) -> StepRows:
        """Some of them."""
        return StepRows(*(part[rows] for part in self))


class FirstRows(NamedTuple):
    """The first states of n episodes, and what the policy does there."""

    state: np.ndarray
    action: np.ndarray
    episode: np.ndarray


class PolicyLog:
    """One agent's transitions with what the policy would do, step by step.

    Attributes:
        steps: Rows of each step; None where fewer episodes have any than the floor asks.
        first: First states; None of a log with fewer episodes than that.
        earned: (n,) return of each episode, in rewards of [0, 1].
        ratio: (n,) Π π/probability: of a policy that takes one action, 0 unless it did the same.
        known: Whether every row has the probability of its action.
        ended: (n,) the step with which each episode ended; H + 1 where it did not.
        decided: Of each step the rows of that step alone, and ρ of the episode up to it: the
            product of π/probability. None where `steps` is, and of a log that is not known.
        weights: (n, K) how often each episode counts in each of K draws.
    """

    def __init__(
        self, policy: Decides, world: LoggedWorld, stationary: bool, episodes: int, floor: int = 1
    ) -> None:
        n, self.stationary, self.floor = min(world.log.episodes, episodes), stationary, floor
        self.policy, self.world, self.H = policy, world, world.horizon
        self._parts: list[list[Transitions]] = [[] for _ in range(self.H)]
        self._ratios: list[list[np.ndarray]] = [[] for _ in range(self.H)]
        self.earned, self.ratio, self.known = np.zeros(n), np.ones(n), True
        self.ended = np.full(n, self.H + 1)
        self.weights = np.ones((n, 1))

    def append(self, seen: Transitions) -> None:
        """Take in some transitions; of episodes beyond those that count, nothing."""
        if int(seen.episode[-1]) >= len(self.earned):
            seen = seen.where(seen.episode < len(self.earned))
        r0 = self.world.absorbing_reward
        left = np.where(seen.fate == ON, 0.0, (self.H - seen.h) * r0)
        left[seen.fate == CUT] = 0.0  # nobody knows what came after
        np.add.at(self.earned, seen.episode, seen.reward + left)
        over = seen.fate == ENDED
        self.ended[seen.episode[over]] = seen.h[over]
        for h in np.unique(seen.h).tolist():
            own = seen.where(seen.h == h)
            self.known &= own.probability is not None
            if own.probability is not None:
                chosen = self.policy.actions(h, own.state)
                share = np.where(chosen == EVENLY, 1.0 / self.world.n_actions, chosen == own.action)
                self.ratio[own.episode] *= share / own.probability
                self._ratios[h - 1].append(self.ratio[own.episode])
            self._parts[h - 1].append(own)

    def close(self) -> None:
        """All are there: look up what the policy does in every next state."""
        self.steps: list[StepRows | None] = []
        self.first: FirstRows | None = None
        if self._parts[0] and len(self.earned) >= self.floor:
            state, *_, episode = _joined(self._parts[0])
            self.first = FirstRows(state, self.policy.actions(1, state), episode)
        self.decided: list[tuple[StepRows, np.ndarray] | None] = []
        every = [part for parts in self._parts for part in parts]
        for h, parts in enumerate(self._parts, start=1):
            # every transition after which it is known what follows is one of each step
            rows = self._rows(h, every if self.stationary else parts, self.stationary)
            self.steps.append(None if rows is None else rows[0])
            alone = None if rows is None or not self.known else rows
            if alone is not None and self.stationary:
                alone = self._rows(h, parts, False)
            kept = None if alone is None else np.concatenate(self._ratios[h - 1])[alone[1]]
            self.decided.append(None if alone is None or kept is None else (alone[0], kept))
        self._parts, self._ratios = [], []

    def _rows(
        self, h: int, parts: Sequence[Transitions], pooled: bool
    ) -> tuple[StepRows, np.ndarray] | None:
        """What counts for a step, and which of the transitions it is; None where too few do."""
        rows = _joined(parts)
        if not rows:
            return None
        fate = rows[4]
        last = h == self.H and not pooled
        usable = np.ones(len(fate), bool) if last else fate != CUT
        state, action, reward, following, fate, episode = (part[usable] for part in rows)
        if self.floor > 1 and len(np.unique(episode)) < self.floor:
            return None
        on = (fate == ON) & (h < self.H)
        ahead = np.zeros(len(on), np.int64)
        if on.any():
            ahead[on] = self.policy.actions(h + 1, following[on])
        return StepRows(state, action, reward, following, on, ahead, episode), usable

    def as_logged(self) -> None:
        """Every episode counts once."""
        self.weights = np.ones((len(self.earned), 1))

    def draw(self, generators: Sequence[np.random.Generator]) -> None:
        """Draw as many episodes again as there are, once with each generator."""
        n = len(self.earned)
        self.weights = np.empty((n, len(generators)))
        for k, rng in enumerate(generators):
            self.weights[:, k] = np.bincount(rng.integers(n, size=n), minlength=n)


def _joined(parts: Sequence[Transitions]) -> list[np.ndarray]:
    """Their columns; empty where there are none."""
    if not parts:
        return []
    return [np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS]
