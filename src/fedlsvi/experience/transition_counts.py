"""Sums over numbered states from counts of the transitions that were seen.

Per group of steps and agent it is kept how often each (x, a, x') was seen and what it earned:

    Λ = Σ n φφᵀ,   b_h = Σ φ(earned + n V_{h+1}(x')).

What follows the end of an episode may be a state like the others, absorbing and paying r₀, or, in
logs, a place S behind all states whose value is known: V_{h+1}(end) = (H − h)·r₀.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from fedlsvi.core.model_fit import FIT
from fedlsvi.core.statistics import Packing, pack, packed_size
from fedlsvi.experience.moments import EXTRA, Moments
from fedlsvi.experience.rooms import Arrays, Increment
from fedlsvi.experience.state_round import Batch
from fedlsvi.experience.values import TabularValues

KEPT = ("keys", "counts", "earned", "squares")

FEWEST = 2**16
"""Transitions that may wait to be counted step by step."""


class TransitionCounts:
    """Transitions (x, a, x') in ascending order, with their numbers, Σr and Σr²."""

    def __init__(self) -> None:
        self.keys = np.empty(0, np.int64)
        self.counts = np.empty(0, np.int64)
        self.earned, self.squares = np.empty(0), np.empty(0)

    def add(self, keys: np.ndarray, rewards: np.ndarray) -> None:
        """Take in some transitions, in any order."""
        new, place, counts = np.unique(keys, return_inverse=True, return_counts=True)
        paid = (np.bincount(place, r, minlength=len(new)) for r in (rewards, rewards**2))
        self._merge(new, counts, *paid)

    def merge(self, other: TransitionCounts) -> None:
        """Take in what another has counted."""
        self._merge(other.keys, other.counts, other.earned, other.squares)

    def _merge(self, new: np.ndarray, *sums: np.ndarray) -> None:
        merged = np.union1d(self.keys, new)
        for name, more in zip(KEPT[1:], sums, strict=True):
            old = getattr(self, name)
            total = np.zeros(len(merged), old.dtype)
            total[np.searchsorted(merged, self.keys)] = old
            total[np.searchsorted(merged, new)] += more
            setattr(self, name, total)
        self.keys = merged


class StepCounts:
    """The same of one agent, by step: the transition at step h has the key (h − 1)·size + key.

    Counting sorts all that there is, so what comes in waits until it is as much.

    Args:
        horizon: H.
        size: Keys of one step.
    """

    def __init__(self, horizon: int, size: int) -> None:
        self.size, self.counts = size, TransitionCounts()
        self._offsets = size * np.arange(horizon)
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self._number = 0

    def add(self, keys: np.ndarray, rewards: np.ndarray) -> None:
        """Take in the transitions of some episodes, those of step 1 first."""
        by_step = keys.reshape(len(self._offsets), -1) + self._offsets[:, None]
        self._waiting.append((by_step.ravel(), rewards.copy()))
        self._number += keys.size
        if self._number > max(FEWEST, self.counts.keys.size):
            self.settle()

    def settle(self) -> TransitionCounts:
        """Count what waits."""
        if self._waiting:
            keys, rewards = zip(*self._waiting, strict=True)
            self.counts.add(np.concatenate(keys), np.concatenate(rewards))
            self._waiting, self._number = [], 0
        return self.counts

    def of(self, h: int) -> TransitionCounts:
        """Those of step h, with the keys that they have there."""
        every, made = self.settle(), TransitionCounts()
        cut = slice(*np.searchsorted(every.keys, [(h - 1) * self.size, h * self.size]))
        for name in KEPT:
            setattr(made, name, getattr(every, name)[cut])
        made.keys = made.keys - (h - 1) * self.size
        return made


class Cells(NamedTuple):
    """Distinct transitions: numbers, Σr, Σr², x, a and x'."""

    counts: np.ndarray
    earned: np.ndarray
    squares: np.ndarray
    x: np.ndarray
    a: np.ndarray
    to: np.ndarray


class Batches(Protocol):
    """A round that gives its transitions."""

    def batches(self, groups: int) -> Iterator[Batch]: ...


class TransitionMemory:
    """Counts of (x, a, x') for each of G groups of steps and each agent.

    Args:
        values: φ of all pairs (x, a).
        n_agents: m.
        horizon: H.
        groups: G, H or 1.
        after: For each agent, what every step after the end of an episode pays, where an end is no
            state; then x' = S is the end.
        fits: Whether each step is remembered by itself, too, so that it can be said in the end how
            well the model fits.
    """

    def __init__(
        self,
        values: TabularValues,
        n_agents: int,
        horizon: int,
        groups: int,
        after: Sequence[float] | None = None,
        fits: bool = False,
    ) -> None:
        self.dim, self.horizon, self.pooled = values.dim, horizon, groups < horizon
        self.phi, self.index, self.after = values.phi, values.index, after
        self.n_states = values.values.shape[1]
        self.n_actions = (self.phi if self.phi.size else self.index).shape[1]
        self._places = self.n_states + (after is not None)
        self.wire: Packing = "diagonal" if self.phi.size == 0 else "packed"
        self.kept = KEPT if fits or values.noise is not None else KEPT[:-1]
        self.seen = self._nothing(groups, n_agents)
        self._steps: list[StepCounts] = []
        if fits and self.pooled:
            size = self.n_states * self.n_actions * self._places
            self._steps = [StepCounts(horizon, size) for _ in range(n_agents)]
        self._fits = fits

    def _nothing(self, groups: int, n_agents: int) -> list[list[TransitionCounts]]:
        return [[TransitionCounts() for _ in range(n_agents)] for _ in range(groups)]

    def spill(self, round_: object) -> None:
        """Never: such a round is kept whole."""

    def add(self, round_: Batches, first: int, length: int) -> None:
        """Count the transitions of a round."""
        groups, m = len(self.seen), len(self.seen[0])
        new = self._nothing(groups, m)
        for batch in round_.batches(groups):
            keys = batch.pairs * self._places + batch.following
            new[batch.group][batch.i].add(keys, batch.rewards)
            if self._steps:
                self._steps[batch.i].add(keys, batch.rewards)
        self._gram = np.zeros((groups, m, packed_size(self.dim, self.wire)))
        for g, seen in enumerate(self.seen):
            for i, counted in enumerate(seen):
                counted.merge(new[g][i])
                cells = self.cells(new[g][i])
                if self.wire == "diagonal":
                    at = self.index[cells.x, cells.a]
                    self._gram[g, i] = np.bincount(at, cells.counts, minlength=self.dim)
                else:
                    phi = self.phi[cells.x, cells.a]
                    self._gram[g, i] = pack((phi.T * cells.counts) @ phi, "packed")

    def cells(self, seen: TransitionCounts) -> Cells:
        """What was counted, with the parts of its keys."""
        pair, to = np.divmod(seen.keys, self._places)
        x, a = np.divmod(pair, self.n_actions)
        return Cells(seen.counts, seen.earned, seen.squares, x, a, to)

    def upload(self, h: int, values: TabularValues) -> tuple[np.ndarray, np.ndarray]:
        """See `Memory.upload`."""
        gram = self._gram[self._group(h)]
        if self.pooled and h < self.horizon:
            gram = gram[:, :0]
        return gram, self.responses(h, values)

    def responses(self, h: int, values: TabularValues) -> np.ndarray:
        """See `Memory.responses`."""
        extra = 0 if values.noise is None else EXTRA
        b = np.empty((len(self.seen[0]), self.dim + extra))
        for i, seen in enumerate(self.seen[self._group(h)]):
            cells = self.cells(seen)
            ahead = self._following(i, h, values)[cells.to]
            b[i, : self.dim] = self._project(cells, cells.earned + cells.counts * ahead)
            if extra:
                twice = 2.0 * cells.earned + cells.counts * ahead
                b[i, self.dim] = cells.squares.sum() + twice @ ahead
                b[i, self.dim + 1] = cells.counts.sum()
        return b

    def _following(self, i: int, h: int, values: TabularValues) -> np.ndarray:
        """V_{h+1} of all places that agent i can be in."""
        following: np.ndarray = values.values[h]
        if self.after is None:
            return following
        left = self.horizon - h
        return np.append(following[: self.n_states], left * self.after[i] if left else 0.0)

    def fit(self, h: int, w: np.ndarray, values: TabularValues) -> np.ndarray:
        """See `Memory.fit`."""
        sums = np.zeros((len(self.seen[0]), FIT))
        for i in range(len(sums) if self._fits else 0):
            seen = self._steps[i].of(h) if self._steps else self.seen[self._group(h)][i]
            cells = self.cells(seen)
            n, ahead = cells.counts, self._following(i, h, values)[cells.to]
            if self.wire == "diagonal":
                expected = w[self.index[cells.x, cells.a]]
            else:
                expected = self.phi[cells.x, cells.a] @ w
            y = cells.earned + n * ahead
            squares = cells.squares + (2.0 * cells.earned + n * ahead) * ahead
            off = squares - (2.0 * y - n * expected) * expected
            parts = (n, y, squares, y - n * expected, np.maximum(off, 0.0))
            sums[i] = [part.sum() for part in parts]
        return sums

    def _project(self, cells: Cells, targets: np.ndarray) -> np.ndarray:
        """Σφ·target, (d,)."""
        if self.wire == "diagonal":
            return np.bincount(self.index[cells.x, cells.a], targets, minlength=self.dim)
        projected: np.ndarray = targets @ self.phi[cells.x, cells.a]
        return projected

    def _group(self, h: int) -> int:
        return 0 if self.pooled else h - 1

    def reached(self, h: int) -> np.ndarray:
        """(m,) how many transitions the sums of step h have."""
        return np.array([seen.counts.sum() for seen in self.seen[self._group(h)]])

    def take_increment(self, h: int) -> Increment:
        """See `CountingMemory`."""
        g, m = self._group(h), len(self.seen[0])
        u, following = np.zeros((m, self.dim)), np.zeros((m, self.dim, self._places))
        for i, seen in enumerate(self.seen[g]):
            cells = self.cells(seen)
            u[i] = self._project(cells, cells.earned)
            if self.wire == "diagonal":
                at = self.index[cells.x, cells.a]
                np.add.at(following[i], (at, cells.to), cells.counts)
            else:
                phi = self.phi[cells.x, cells.a]
                np.add.at(following[i].T, cells.to, cells.counts[:, None] * phi)
        moments = self._moments(g)
        self.seen[g] = [TransitionCounts() for _ in range(m)]
        rows = following.reshape(m, -1)
        agents, places = np.nonzero(rows)
        made = Increment(self._gram[g], u, agents, places, rows[agents, places], self._places)
        return made if self.kept != KEPT else moments.behind_increment(made)

    def _moments(self, g: int) -> Moments:
        """Of all that is kept of a group of steps."""
        made = Moments.empty(len(self.seen[g]), self._places)
        for i, seen in enumerate(self.seen[g]):
            cells = self.cells(seen)
            made.totals[i] = cells.squares.sum(), cells.counts.sum()
            np.add.at(made.paid[i], cells.to, cells.earned)
            np.add.at(made.arrivals[i], cells.to, cells.counts)
        return made

    def fewest(self, first: int, last: int) -> None:
        """Nothing: every episode reaches every step, if only in the state after its end."""

    def state(self) -> Arrays:
        """Every count, one after the other, and how many there are per group and agent."""
        every = [seen for group in self.seen for seen in group]
        sizes = np.array([len(seen.keys) for seen in every]).reshape(len(self.seen), -1)
        parts = {
            name: np.concatenate([getattr(seen, name) for seen in every]) for name in self.kept
        }
        for i, steps in enumerate(self._steps):
            counts = steps.settle()
            parts |= {f"steps.{i}.{name}": getattr(counts, name) for name in KEPT}
        return parts | {"sizes": sizes}

    def restore(self, state: Arrays) -> None:
        """Continue from `state()`."""
        keys, at = state["keys"], 0
        if keys.size and not 0 <= keys.min() <= keys.max() < (
            self.n_states * self.n_actions * self._places
        ):
            raise ValueError("keys of transitions that do not exist")
        for group, sizes in zip(self.seen, state["sizes"], strict=True):
            for seen, size in zip(group, sizes.tolist(), strict=True):
                seen.squares = np.zeros(size)  # nobody asks for them where they were not kept
                for name in self.kept:
                    if name in state:
                        setattr(seen, name, state[name][at : at + size].copy())
                at += size
        # a checkpoint of before does not know them: then nothing can be said of the whole run
        self._fits = self._fits and KEPT[-1] in state
        for i, steps in enumerate(self._steps):
            self._fits = self._fits and f"steps.{i}.keys" in state
            for name in KEPT if self._fits else ():
                setattr(steps.counts, name, state[f"steps.{i}.{name}"].copy())

    def history(self, first: int, last: int) -> Arrays:
        """Nothing: the counts are all that is kept."""
        return {}

    def extend(self, first: int, part: Arrays) -> None:
        """Nothing to put back."""
