"""Experience that was recorded before: episodes are read from a log in place of being played.

In round after round an agent reads its next episodes; one whose log is at its end adds nothing. The
value after the end of an episode is known, (H − h)·r₀ with r₀ the image of a reward of 0, so those
steps take no part in the sums

    Λ_h = Σ φφᵀ,   b_h = Σ φ(r + V_{h+1}(x')),   V_{h+1}(end) = (H − h)·r₀.

Where states are numbers, counts of (h, x, a, x') and sums of rewards are all that is kept, however
long the log. Where they are vectors, V_{h+1}(x') has to be computed again from every new model, so
states stay: in memory, or in a temporary file from SPILL bytes on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from fedlsvi.core.statistics import Packing, pack, packed_size
from fedlsvi.core.trigger import Rule
from fedlsvi.envs.logged.rows import InvalidRecord
from fedlsvi.envs.logged.transitions import CUT, ON, Transitions
from fedlsvi.envs.logged.world import LoggedWorld, transitions_of
from fedlsvi.errors import InvalidFeatures
from fedlsvi.experience.stepped_finite import TransitionCounts
from fedlsvi.experience.trigger_search import Firing
from fedlsvi.experience.values import BlockValues, TabularValues
from fedlsvi.experience.workers import Workers

SPILL = 2**30
"""Bytes of an array from which it lies in a temporary file."""


class LoggedExperience(ABC):
    """What both kinds share: reading instead of exploring. It never signals by itself."""

    block = 2**31 - 1
    stationary = False
    """Whether steps share one model: a transition at any step is then a sample for every step."""

    def __init__(
        self,
        envs: Sequence[LoggedWorld],
        agents: np.ndarray,
        values: Any,
        seed: int,
        packing: Packing,
        workers: Workers,
    ) -> None:
        self.envs, self.agents, self.values = list(envs), agents, values
        self.packing, self.workers = packing, workers
        self._horizon = envs[0].horizon
        self._done = 0  # episodes that were read
        self._returns = [np.zeros(env.log.episodes) for env in envs]

    def begin(self, t: int) -> None:
        """Start a round after episode t; after a restart the episodes before it are read again."""
        self.t, self.length = t, 0
        if t > self._done:
            self._read(t)

    def explore(self, n: int) -> None:
        """The next n episodes of every log are up."""
        self.length += n

    def first_firing(self, rule: Rule, n: int) -> Firing:
        """A log waits for the others: it is there already."""
        nobody = np.empty(0, np.int64)
        return 0, nobody, nobody

    def close(self, length: int) -> None:
        """End the round after `length` episodes."""
        self.length = length
        self._read(self.t + length)

    @abstractmethod
    def _read(self, last: int) -> None:
        """Take in the episodes after those that were read, up to `last`."""

    def _pay(self, i: int, seen: Transitions) -> None:
        """Add rewards to the returns of their episodes."""
        first = int(seen.episode[0])
        low, high = self.envs[i].reward_range
        paid = np.bincount(seen.episode - first, low + (high - low) * seen.reward)
        self._returns[i][first : first + len(paid)] += paid

    def _with_targets(self, seen: Transitions) -> Transitions:
        """Those of which it is known what follows."""
        if not self.stationary:
            seen = seen.per_step(self._horizon)
        usable = seen.fate != CUT
        return seen if usable.all() else seen.where(usable)

    def returns(self, first: int, last: int) -> np.ndarray:
        """Returns of all agents' episodes first+1 … last, one after the other, in the log's own
        units."""
        return np.concatenate([own[first:last] for own in self._returns])

    def fewest(self, first: int, last: int) -> int:
        """Episodes in the emptiest Λ_h^loc that an agent sends, of those with any."""
        fewest = 2**31
        for env in self.envs:
            counts = env.log.targets(self._horizon, self.stationary)
            some = counts.sum() if self.stationary else counts[counts > 0].min(initial=fewest)
            fewest = min(fewest, int(some))
        return fewest

    def after(self, i: int, h: int) -> float:
        """V_{h+1} after the end of an episode of agent i."""
        left = self._horizon - h
        return left * self.envs[i].absorbing_reward if left else 0.0

    def state(self) -> dict[str, np.ndarray]:
        """Nothing: the log is where it was."""
        return {}

    def restore(self, state: dict[str, np.ndarray]) -> None:  # noqa: B027 (nothing is kept)
        """Nothing: `begin` reads the log again."""

    def history(self, first: int, last: int) -> dict[str, np.ndarray]:
        """Nothing: the log is where it was."""
        return {}

    def extend(self, first: int, part: dict[str, np.ndarray]) -> None:  # noqa: B027
        """Nothing to put back."""


class SummedExperience(LoggedExperience):
    """Logs whose sums are asked for round after round."""

    def summarise(self, h: int) -> tuple[np.ndarray, np.ndarray]:
        """Λ_h^loc of the round just closed, (m, P), and b_h over the whole log, (m, d). Where steps
        share Λ, it comes with step H and is empty before."""
        if self.stationary and h < self._horizon:
            return np.empty((len(self.agents), 0)), self.responses(h)
        return self._statistics(h), self.responses(h)

    @abstractmethod
    def _statistics(self, h: int) -> np.ndarray:
        """Λ_h^loc of the round just closed, (m, P)."""

    @abstractmethod
    def responses(self, h: int) -> np.ndarray:
        """b_h over the episodes that were read, (m, d)."""

    @abstractmethod
    def reached(self, h: int) -> np.ndarray:
        """(m,) how many of the episodes that were read have a transition in the sums of step h."""


class LoggedFiniteExperience(SummedExperience):
    """Logs whose states are numbers: counts of (h, x, a, x'), x' = S after the end."""

    values: TabularValues

    def __init__(
        self,
        envs: Sequence[LoggedWorld],
        agents: np.ndarray,
        values: TabularValues,
        seed: int,
        packing: Packing,
        workers: Workers,
    ) -> None:
        super().__init__(envs, agents, values, seed, packing, workers)
        self.dim = values.dim
        self._shape = (envs[0].n_states, envs[0].n_actions)
        self.seen = [TransitionCounts() for _ in agents]

    def _read(self, last: int) -> None:
        self._new = [TransitionCounts() for _ in self.agents]
        n_states, n_actions = self._shape
        for i, seen in transitions_of(self.envs):
            chosen = (seen.episode >= self._done) & (seen.episode < last)
            if not chosen.all():
                seen = seen.where(chosen)
            if len(seen) == 0:
                continue
            self._pay(i, seen)
            seen = self._with_targets(seen)
            to = np.where(seen.fate == ON, seen.following, n_states)
            step = 0 if self.stationary else seen.h - 1
            pair = (step * n_states + seen.state) * n_actions + seen.action
            self._new[i].add(pair * (n_states + 1) + to, seen.reward)
        for own, new in zip(self.seen, self._new, strict=True):
            own.merge(new)
        self._done = last

    def _statistics(self, h: int) -> np.ndarray:
        gram = np.zeros((len(self.agents), packed_size(self.dim, self.packing)))
        for own, new in zip(gram, self._new, strict=True):
            counts, _, x, a, _ = self.cells(new, 1 if self.stationary else h)
            if self.values.phi.size == 0:
                own[:] = np.bincount(self.values.index[x, a], counts, minlength=self.dim)
            else:
                phi = self.values.phi[x, a]
                own[:] = pack((phi.T * counts) @ phi, self.packing)
        return gram

    def responses(self, h: int) -> np.ndarray:
        b, n_states = np.zeros((len(self.agents), self.dim)), self._shape[0]
        for i, seen in enumerate(self.seen):
            counts, earned, x, a, to = self.cells(seen, 1 if self.stationary else h)
            following = np.append(self.values.values[h][:n_states], self.after(i, h))
            targets = earned + counts * following[to]
            if self.values.phi.size == 0:
                b[i] = np.bincount(self.values.index[x, a], targets, minlength=self.dim)
            else:
                b[i] = targets @ self.values.phi[x, a]
        return b

    def reached(self, h: int) -> np.ndarray:
        if self.stationary:
            return np.array([min(self._done, env.log.episodes) for env in self.envs])
        return np.array([self.cells(seen, h)[0].sum() for seen in self.seen])

    def cells(self, seen: TransitionCounts, h: int) -> tuple[np.ndarray, ...]:
        """Numbers, sums of rewards, x, a and x' of the distinct transitions at step h."""
        n_states, n_actions = self._shape
        size = n_states * n_actions * (n_states + 1)
        cut = slice(*np.searchsorted(seen.keys, [(h - 1) * size, h * size]))
        pair, to = np.divmod(seen.keys[cut] - (h - 1) * size, n_states + 1)
        x, a = np.divmod(pair, n_actions)
        return seen.counts[cut], seen.earned[cut], x, a, to


class LoggedContinuousExperience(SummedExperience):
    """Logs whose states are vectors: every transition, step by step in the order of episodes."""

    values: BlockValues

    def __init__(
        self,
        envs: Sequence[LoggedWorld],
        agents: np.ndarray,
        values: BlockValues,
        seed: int,
        packing: Packing,
        workers: Workers,
    ) -> None:
        super().__init__(envs, agents, values, seed, packing, workers)
        self.dim = values.features.dim
        self._stores: list[StepStore] | None = None

    def _read(self, last: int) -> None:
        """The first time, the whole log; a round is then a range of its episodes."""
        if self._stores is None:
            self._stores = [StepStore(env, self.stationary) for env in self.envs]
            for i, seen in transitions_of(self.envs):
                self._pay(i, seen)
                usable = self._with_targets(seen)
                self._check_features(usable)
                self._stores[i].append(usable)
        self._done = last

    def _check_features(self, seen: Transitions) -> None:
        """φ of what was done, checked here because only here the row is known."""
        size = self.values.size
        for at in range(0, len(seen), size):
            states = seen.state[at : at + size]
            try:
                self.values.features.checked(states)
            except InvalidFeatures as error:
                for k in range(len(states)):
                    try:
                        self.values.features.checked(states[k : k + 1])
                    except InvalidFeatures as own:
                        raise InvalidRecord(
                            str(own), code=own.code, row=int(seen.row[at + k])
                        ) from None
                raise error

    def _statistics(self, h: int) -> np.ndarray:
        grams = np.zeros((len(self.agents), self.dim, self.dim))

        def add(lo: int, hi: int) -> None:
            for i, phi, since, _ in self._blocks(lo, hi, h):
                new = phi[since:]
                grams[i] += new.T @ new

        self.workers.map(add, 0, len(grams))
        return pack(grams, self.packing)

    def responses(self, h: int) -> np.ndarray:
        b, size = np.zeros((len(self.agents), self.dim)), self.values.size

        def add(lo: int, hi: int) -> None:
            scratch = self.values.scratch()
            found, greedy = np.empty(size), np.empty(size, np.int32)
            for i, phi, _, cut in self._blocks(lo, hi, h):
                store = self._kept[i]
                targets = np.full(len(phi), self.after(i, h))
                on = store.fates[cut] == ON
                if on.any() and h < self._horizon:
                    states = store.following[cut][on]
                    self.values.block(h + 1, states, scratch, found, greedy)
                    targets[on] = found[: len(states)]
                b[i] += (store.rewards[cut] + targets) @ phi

        self.workers.map(add, 0, len(b))
        return b

    def _blocks(self, lo: int, hi: int, h: int) -> Iterator[tuple[int, np.ndarray, int, slice]]:
        """Of agents lo … hi−1, block by block of what is in the sums of step h: the agent, φ
        (n, d), the first row that is of this round, and where the block lies in its store."""
        size, features = self.values.size, self.values.features
        steps = range(1, self._horizon + 1) if self.stationary else (h,)
        for i, step in ((i, step) for i in range(lo, hi) for step in steps):
            store = self._kept[i]
            first, since, end = store.span(step, self.t, self.t + self.length)
            for at in range(first, end, size):
                cut = slice(at, min(at + size, end))
                phi = features.chosen(store.states[cut], store.actions[cut])
                yield i, phi, max(0, since - at), cut

    def reached(self, h: int) -> np.ndarray:
        if self.stationary:
            return np.array([min(self._done, env.log.episodes) for env in self.envs])
        spans = [store.span(h, self.t, self.t + self.length) for store in self._kept]
        return np.array([end - first for first, _, end in spans])

    @property
    def _kept(self) -> list[StepStore]:
        assert self._stores is not None
        return self._stores


class StationaryLoggedFiniteExperience(LoggedFiniteExperience):
    """Counts of (x, a, x') of all steps together."""

    stationary = True


class StationaryLoggedContinuousExperience(LoggedContinuousExperience):
    """Every transition is relabelled with V_{h+1} for every h."""

    stationary = True


class StepStore:
    """One agent's transitions, those of step 1 first; within a step in the order of episodes."""

    def __init__(self, env: LoggedWorld, stationary: bool = False) -> None:
        usable = env.log.targets(env.horizon, stationary)
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
