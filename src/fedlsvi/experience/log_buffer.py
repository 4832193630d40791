"""Logs whose states are vectors: every transition, step by step in the order of episodes.

V_{h+1}(x') has to be computed again from every new model, so states stay: in memory, or in a
temporary file from SPILL bytes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from fedlsvi.core.model_fit import FIT
from fedlsvi.core.statistics import pack
from fedlsvi.errors import InvalidFeatures
from fedlsvi.experience.log_source import LogRound
from fedlsvi.experience.moments import EXTRA
from fedlsvi.experience.rooms import Arrays
from fedlsvi.experience.values import BlockValues
from fedlsvi.experience.workers import Workers
from fedlsvi.logs.rows import InvalidRecord
from fedlsvi.logs.transitions import ON, Transitions
from fedlsvi.logs.world import LoggedWorld

SPILL = 2**30
"""Bytes of an array from which it lies in a temporary file."""


class LogBuffer:
    """The transitions of all agents' logs; a round is a range of their episodes."""

    def __init__(self, values: BlockValues, n_agents: int, horizon: int, groups: int,
                 workers: Workers) -> None:  # fmt: skip
        self.dim, self.horizon, self.pooled = values.features.dim, horizon, groups < horizon
        self._features, self._size, self.workers = values.features, values.size, workers
        self._agents = n_agents
        self._stores: list[StepStore] = []

    def spill(self, round_: LogRound) -> None:
        """Never: logs are read when a round has ended."""

    def add(self, round_: LogRound, first: int, length: int) -> None:
        """The first time, the whole log; a round is then a range of its episodes."""
        self._first, self._last = first, first + length
        if not self._stores:
            self._after = [env.absorbing_reward for env in round_.envs]
            self._stores = [StepStore(env, self.pooled) for env in round_.envs]
            for i, seen in round_.transitions(0, None):
                self._check_features(seen)
                self._stores[i].append(seen)
        round_.read = self._last

    def _check_features(self, seen: Transitions) -> None:
        """φ of what was done, checked here because only here the row is known."""
        for at in range(0, len(seen), self._size):
            states = seen.state[at : at + self._size]
            try:
                self._features.checked(states)
            except InvalidFeatures as error:
                for k in range(len(states)):
                    try:
                        self._features.checked(states[k : k + 1])
                    except InvalidFeatures as wrong:
                        raise InvalidRecord(
                            str(wrong), code=wrong.code, row=int(seen.row[at + k])
                        ) from None
                raise error

    def upload(self, h: int, values: BlockValues) -> tuple[np.ndarray, np.ndarray]:
        """See `Memory.upload`."""
        grams = np.zeros((self._agents, self.dim, self.dim))
        if self.pooled and h < self.horizon:
            return np.empty((self._agents, 0)), self.responses(h, values)

        def add(lo: int, hi: int) -> None:
            for i, phi, since, _ in self._blocks(lo, hi, h):
                new = phi[since:]
                grams[i] += new.T @ new

        self.workers.map(add, 0, len(grams))
        return pack(grams, "packed"), self.responses(h, values)

    def responses(self, h: int, values: BlockValues) -> np.ndarray:
        """See `Memory.responses`; of the episodes that were read."""
        extra, left = 0 if values.noise is None else EXTRA, self.horizon - h
        b = np.zeros((self._agents, self.dim + extra))

        def add(lo: int, hi: int) -> None:
            scratch = values.scratch()
            found, greedy = np.empty(self._size), np.empty(self._size, np.int32)
            for i, phi, _, cut in self._blocks(lo, hi, h):
                store = self._stores[i]
                targets = np.full(len(phi), left * self._after[i] if left else 0.0)
                on = store.fates[cut] == ON
                if on.any() and left:
                    states = store.following[cut][on]
                    values.block(h + 1, states, scratch, found, greedy)
                    targets[on] = found[: len(states)]
                targets += store.rewards[cut]
                b[i, : self.dim] += targets @ phi
                b[i, self.dim :] += (targets @ targets, len(targets))[:extra]

        self.workers.map(add, 0, len(b))
        return b

    def _blocks(self, lo: int, hi: int, h: int) -> Iterator[tuple[int, np.ndarray, int, slice]]:
        """Of agents lo … hi−1, block by block of what is in the sums of step h: the agent, φ
        (n, d), the first row that is of this round, and where the block lies in its store."""
        steps = range(1, self.horizon + 1) if self.pooled else (h,)
        for i, step in ((i, step) for i in range(lo, hi) for step in steps):
            store = self._stores[i]
            first, since, end = store.span(step, self._first, self._last)
            for at in range(first, end, self._size):
                cut = slice(at, min(at + self._size, end))
                phi = self._features.chosen(store.states[cut], store.actions[cut])
                yield i, phi, max(0, since - at), cut

    def reached(self, h: int) -> np.ndarray:
        """(m,) how many transitions the sums of step h have."""
        spans = [store.span(h, self._first, self._last) for store in self._stores]
        return np.array([end - first for first, _, end in spans])

    def fit(self, h: int, w: np.ndarray, values: BlockValues) -> np.ndarray:
        """Nothing: logs are not checked."""
        return np.zeros((self._agents, FIT))

    def fewest(self, first: int, last: int) -> None:
        """Nothing: the log knows."""

    def state(self) -> Arrays:
        """Nothing: the log is where it was."""
        return {}

    def restore(self, state: Arrays) -> None:
        """Nothing: the log is read again."""

    def history(self, first: int, last: int) -> Arrays:
        """Nothing: the log is where it was."""
        return {}

    def extend(self, first: int, part: Arrays) -> None:
        """Nothing to put back."""


class StepStore:
    """One agent's transitions, those of step 1 first; within a step in the order of episodes."""

    def __init__(self, env: LoggedWorld, pooled: bool = False) -> None:
        usable = env.log.targets(env.horizon, pooled)
        self.first = np.concatenate([[0], np.cumsum(usable)])
        self._filled = self.first[:-1].copy()
        n, s = int(usable.sum()), env.state_dim
        self.states, self.following = _room((n, s), np.float64), _room((n, s), np.float64)
        self.actions, self.rewards = _room((n,), np.int32), _room((n,), np.float64)
        self.fates, self.episodes = _room((n,), np.int8), _room((n,), np.int64)

    def append(self, seen: Transitions) -> None:
        """Put transitions at their places."""
        order = np.argsort(seen.h, kind="stable")
        h = seen.h[order]
        counts = np.bincount(h - 1, minlength=len(self._filled))
        begins = np.cumsum(counts) - counts
        place = self._filled[h - 1] + np.arange(len(h)) - begins[h - 1]
        self._filled += counts
        for name, part in (
            ("states", seen.state), ("following", seen.following), ("actions", seen.action),
            ("rewards", seen.reward), ("fates", seen.fate), ("episodes", seen.episode),
        ):  # fmt: skip
            getattr(self, name)[place] = part[order]

    def span(self, h: int, t: int, last: int) -> tuple[int, int, int]:
        """Where step h begins, where episodes after t do, and where those after `last` do."""
        if h >= len(self.first):
            return 0, 0, 0
        begin, end = int(self.first[h - 1]), int(self.first[h])
        cuts = begin + np.searchsorted(self.episodes[begin:end], [t, last])
        return begin, int(cuts[0]), int(cuts[1])


def _room(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array; a large one lies in a temporary file, which goes when the array does."""
    if int(np.prod(shape)) * np.dtype(dtype).itemsize < SPILL:
        return np.empty(shape, dtype)
    with TemporaryFile(prefix="fedlsvi-") as file:
        return np.memmap(file, dtype, "w+", shape=shape)
