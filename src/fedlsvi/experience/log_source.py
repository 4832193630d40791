"""Episodes that were recorded before: read from a log in place of being played.

In round after round an agent reads its next episodes; one whose log is at its end adds nothing. The
value after the end of an episode is known, (H − h)·r₀ with r₀ the image of a reward of 0, so those
steps take no part in the sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedlsvi.core.trigger import Rule
from fedlsvi.experience.state_round import Batch
from fedlsvi.experience.trigger_search import Firing
from fedlsvi.logs.transitions import CUT, ON, Transitions
from fedlsvi.logs.world import LoggedWorld, transitions_of

NO_LIMIT = 2**31 - 1
"""Episodes at once, where none is played."""


class LogRound:
    """The next episodes of every log, up to `last`; those up to `read` were taken in before."""

    def __init__(self, envs: Sequence[LoggedWorld], pooled: bool) -> None:
        self.envs, self.pooled, self.horizon = list(envs), pooled, envs[0].horizon
        self.read = self.last = 0
        self.earned = [np.zeros(env.log.episodes) for env in envs]

    def make_room(self, n: int) -> bool:
        """Always: they are in the log."""
        return True

    def search(self, before: int, n: int, rule: Rule) -> Firing:
        """Never: a log waits for the others, it is there already."""
        nobody = np.empty(0, np.int64)
        return 0, nobody, nobody

    def cut(self, beyond: int, length: int) -> bool:
        """Nothing was read yet."""
        return True

    def transitions(self, first: int, last: int | None) -> Iterator[tuple[int, Transitions]]:
        """Agent and transitions of episodes first + 1 … last of which it is known what follows,
        in pieces; what they earned is noted."""
        for i, seen in transitions_of(self.envs):
            if first > 0 or last is not None:
                chosen = (seen.episode >= first) & (seen.episode < (last or 0))
                if not chosen.all():
                    seen = seen.where(chosen)
            if len(seen) == 0:
                continue
            self._pay(i, seen)
            if not self.pooled:
                seen = seen.per_step(self.horizon)
            usable = seen.fate != CUT
            yield i, seen if usable.all() else seen.where(usable)

    def _pay(self, i: int, seen: Transitions) -> None:
        """Add rewards to the returns of their episodes, in the log's own units."""
        first = int(seen.episode[0])
        low, high = self.envs[i].reward_range
        paid = np.bincount(seen.episode - first, low + (high - low) * seen.reward)
        self.earned[i][first : first + len(paid)] += paid

    def batches(self, groups: int) -> Iterator[Batch]:
        """What was not taken in yet, where states are numbers; x' = S is the end."""
        n_states, n_actions = self.envs[0].n_states, self.envs[0].n_actions
        for i, seen in self.transitions(self.read, self.last):
            pairs = seen.state * n_actions + seen.action
            to = np.where(seen.fate == ON, seen.following, n_states)
            step = np.zeros(len(seen), np.int64) if groups == 1 else seen.h - 1
            order = np.argsort(step, kind="stable")
            cuts = np.searchsorted(step[order], np.arange(groups + 1))
            for g in np.unique(step).tolist():
                here = order[cuts[g] : cuts[g + 1]]
                yield Batch(g, i, pairs[here], to[here], seen.reward[here])
        self.read = self.last


class LogSource:
    """Logs of some agents."""

    recorded = True

    def __init__(self, envs: Sequence[LoggedWorld], groups: int) -> None:
        self.block, self.round = NO_LIMIT, LogRound(envs, groups < envs[0].horizon)

    def begin(self, t: int) -> None:
        """Nothing has to be prepared."""

    def play(self, first: int, n: int) -> None:
        """The next n episodes of every log are up."""

    def close(self, first: int, length: int) -> None:
        """The round has ended."""
        self.round.last = first + length

    def returns(self, first: int, last: int) -> np.ndarray:
        """Returns of all agents' episodes first+1 … last, one after the other, in the log's own
        units."""
        return np.concatenate([paid[first:last] for paid in self.round.earned])

    def fewest(self, first: int, last: int) -> int:
        """Episodes in the emptiest Λ_h^loc that an agent sends, of those with any."""
        fewest, pooled = NO_LIMIT + 1, self.round.pooled
        for env in self.round.envs:
            counts = env.log.targets(self.round.horizon, pooled)
            some = counts.sum() if pooled else counts[counts > 0].min(initial=fewest)
            fewest = min(fewest, int(some))
        return fewest

    def state(self) -> dict[str, np.ndarray]:
        """Nothing: the log is where it was."""
        return {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Nothing."""
