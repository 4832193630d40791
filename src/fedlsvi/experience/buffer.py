"""The buffer D_h where states are vectors, relabelled in blocks.

max and clip make b_h = Σφ(r + V_{h+1}(x')) non-linear in the model, so every synchronisation
evaluates V_{h+1} at every next state in the history. Raw states are kept, one episode after the
other as they happened; features are recomputed block by block, so that memory is one block per
thread and the time goes into matrix products. Blocks are cut by the agent's own episodes and summed
in order: no result depends on threads, cohorts or how exploration was cut.

The value after the end of an episode is known, (H − h)·r₀ with r₀ the image of a reward of 0, so
nothing is learned about it: those steps have φ = 0 and take no part in the sums. Steps that share
their data are summed by `pooled_history`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedlsvi.core.model_fit import FIT
from fedlsvi.core.statistics import Packing, pack
from fedlsvi.envs.gym.episodes import Played
from fedlsvi.experience.moments import EXTRA
from fedlsvi.experience.pooled_history import PooledHistory
from fedlsvi.experience.rooms import Arrays
from fedlsvi.experience.values import BlockValues
from fedlsvi.experience.vector_round import VectorRound
from fedlsvi.experience.workers import Workers, grown


class EpisodeStore:
    """All episodes of one agent, one after the other, without what follows their ends."""

    def __init__(self, horizon: int, shape: tuple[int, ...]) -> None:
        self.horizon, self.steps, self.episodes = horizon, 0, 0
        self.states = np.empty((64, *shape))
        self.actions, self.rewards = np.empty(64, np.int32), np.empty(64)
        self.lengths = np.empty(64, np.int64)

    def append(
        self, states: np.ndarray, actions: np.ndarray, rewards: np.ndarray, lengths: np.ndarray
    ) -> None:
        """Episodes of these lengths, whose steps are given one after the other."""
        for name, new, at in (
            ("states", states, self.steps),
            ("actions", actions, self.steps),
            ("rewards", rewards, self.steps),
            ("lengths", lengths, self.episodes),
        ):
            old, need = getattr(self, name), at + len(new)
            if need > len(old):
                setattr(self, name, grown(old, max(need, 2 * len(old)), at))
            getattr(self, name)[at:need] = new
        self.steps += len(actions)
        self.episodes += len(lengths)

    def at(self, h: int, first: int = 0, last: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Where step h of the episodes after `first` up to `last` lies, and which of them went on
        after it; None is all of them."""
        lengths = self.lengths[: self.episodes]
        begin = np.cumsum(lengths) - lengths
        alive = lengths >= h
        alive[:first] = False
        alive[len(lengths) if last is None else last :] = False
        return begin[alive] + h - 1, lengths[alive] > h

    def span(self, first: int, last: int) -> slice:
        """Where the steps of episodes first+1 … last lie."""
        return slice(int(self.lengths[:first].sum()), int(self.lengths[:last].sum()))


class Buffer:
    """All episodes of a cohort's agents.

    Args:
        values: φ and the size of blocks.
        state_dim: s.
        n_agents: m.
        horizon: H.
        groups: G, H or 1.
        workers: Threads.
        after: For each agent, what every step after the end of an episode pays; None where episodes
            have no ends.
        floor: A step that fewer episodes reached since it was last uploaded waits for a later
            round: neither Λ_h nor b_h has them until then.
    """

    wire: Packing = "packed"

    def __init__(
        self,
        values: BlockValues,
        state_dim: int,
        n_agents: int,
        horizon: int,
        groups: int,
        workers: Workers,
        after: Sequence[float] | None = None,
        floor: int = 1,
    ) -> None:
        self.dim, self.horizon, self.floor, self.workers = (
            values.features.dim,
            horizon,
            floor,
            workers,
        )
        self._features, self._size = values.features, values.size
        self._ends, self._after = after is not None, [0.0] * n_agents if after is None else after
        self.stores = [EpisodeStore(horizon, (state_dim,)) for _ in range(n_agents)]
        self._scratch = [values.scratch() for _ in range(workers.threads)]
        # (m, H): up to which episode each step was uploaded, before this round and with it
        self.uploaded = self.due = np.zeros((n_agents, horizon), np.int64)
        self._smallest = 0
        self._pooled: PooledHistory | None = None
        if groups < horizon:
            size = (state_dim, n_agents, horizon)
            self._pooled = PooledHistory(*size, values, self._after, workers)
            # of every episode: the state after step H, and whether it ended
            self._finals = np.empty((n_agents, 0, state_dim))
            self._over = np.empty((n_agents, 0), np.uint8)

    def spill(self, round_: VectorRound) -> None:
        """Never: such a round is kept whole."""

    def add(self, round_: VectorRound, first: int, length: int) -> None:
        """Append the episodes of a round."""
        self.take([list(round_.episodes(i)) for i in range(len(self.stores))], first, length)

    def take(self, episodes: Sequence[Sequence[Played]], first: int, length: int) -> None:
        """Append the episodes first + 1 … first + length of every agent, given block by block."""
        self.uploaded = self.due if self.floor > 1 else np.full_like(self.due, first)
        before = [store.episodes for store in self.stores]
        for store, blocks in zip(self.stores, episodes, strict=True):
            for played in blocks:
                used = np.arange(self.horizon) < played.lengths[:, None]
                steps = (played.states[used], played.actions[used], played.rewards[used])
                store.append(*steps, played.lengths)
        if self._pooled is not None:
            last, ended = (
                np.stack([np.concatenate([getattr(block, name) for block in blocks])
                          for blocks in episodes])
                for name in ("last", "ended")
            )  # fmt: skip
            self._pooled.begin()
            self._remember(before[0], last, ended)
        self._hold_back(first + length, length)

    def _hold_back(self, last: int, length: int) -> None:
        """Find which steps wait."""
        self.due = np.full_like(self.uploaded, last)
        if self.floor == 1:
            return
        self._smallest = length
        for i, store in enumerate(self.stores):
            lengths = store.lengths[: store.episodes]
            for h in range(self.horizon):
                reached = int(np.count_nonzero(lengths[self.uploaded[i, h] :] > h))
                if reached < self.floor:
                    self.due[i, h] = self.uploaded[i, h]
                else:
                    self._smallest = min(self._smallest, reached)

    def _remember(self, first: int, last: np.ndarray, ended: np.ndarray) -> None:
        """Pool the episodes after `first`, which end like this."""
        assert self._pooled is not None
        self._finals = np.concatenate([self._finals, last], axis=1)
        self._over = np.concatenate([self._over, ended.astype(np.uint8)], axis=1)
        for i, (store, pooled) in enumerate(zip(self.stores, self._pooled.agents, strict=True)):
            span = store.span(first, store.episodes)
            x, final = store.states[span], np.cumsum(store.lengths[first : store.episodes]) - 1
            y, over = np.roll(x, -1, axis=0), np.zeros(len(x), bool)
            y[final], over[final] = last[i], ended[i]
            pooled.append(x, store.actions[span], store.rewards[span], y, over)

    def upload(self, h: int, values: BlockValues) -> tuple[np.ndarray, np.ndarray]:
        """See `Memory.upload`."""
        return self._gram(h), self.responses(h, values)

    def _gram(self, h: int) -> np.ndarray:
        """Λ_h^loc of the round that has ended, packed, (m, P)."""
        m = len(self.stores)
        if self._pooled is not None:
            if h < self.horizon:
                return np.empty((m, 0))
            return pack(self._pooled.gram(self._scratch), "packed")
        grams = np.zeros((m, self.dim, self.dim))

        def add(lo: int, hi: int) -> None:
            for i in range(lo, hi):
                where, _ = self.stores[i].at(h, self.uploaded[i, h - 1], self.due[i, h - 1])
                for at in range(0, len(where), self._size):
                    phi = self._chosen(i, where[at : at + self._size])
                    grams[i] += phi.T @ phi

        self.workers.map(add, 0, m)
        return pack(grams, "packed")

    def responses(self, h: int, values: BlockValues) -> np.ndarray:
        """See `Memory.responses`."""
        if self._pooled is not None:
            return self._pooled.responses(h, values, self._scratch)
        size, left = self._size, self.horizon - h
        reached = [store.at(h, 0, self.due[i, h - 1]) for i, store in enumerate(self.stores)]
        work = [
            (i, at) for i, (where, _) in enumerate(reached) for at in range(0, len(where), size)
        ]
        extra = 0 if values.noise is None else EXTRA
        parts = np.empty((len(work), self.dim + extra))

        def relabel(lo: int, hi: int, scratch: Any) -> None:
            buffers = scratch.pop()  # one set of buffers per thread; a list pops atomically
            found, greedy = np.empty(size), np.empty(size, np.int32)
            for part in range(lo, hi):
                i, at = work[part]
                store, (where, goes_on) = self.stores[i], reached[i]
                here, on = where[at : at + size], goes_on[at : at + size]
                targets = store.rewards[here] + (0.0 if left == 0 else left * self._after[i])
                if left > 0 and on.any():
                    following = store.states[here[on] + 1]
                    values.block(h + 1, following, buffers, found, greedy)
                    targets[on] = store.rewards[here[on]] + found[: len(following)]
                np.matmul(targets, self._chosen(i, here), out=parts[part, : self.dim])
                parts[part, self.dim :] = (targets @ targets, len(targets))[:extra]
            scratch.append(buffers)

        self.workers.map(relabel, 0, len(work), self._scratch)
        b = np.zeros((len(self.stores), parts.shape[1]))
        for (i, _), part in zip(work, parts, strict=True):
            b[i] += part
        return b

    def fit(self, h: int, w: np.ndarray, values: BlockValues) -> np.ndarray:
        """See `Memory.fit`."""
        left, found, greedy = self.horizon - h, np.empty(self._size), np.empty(self._size, np.int32)
        buffers, sums = self._scratch[0], np.zeros((len(self.stores), FIT))
        for i, store in enumerate(self.stores):
            where, goes_on = store.at(h, 0, self.due[i, h - 1])
            for at in range(0, len(where), self._size):
                here, on = where[at : at + self._size], goes_on[at : at + self._size]
                y = store.rewards[here] + (0.0 if left == 0 else left * self._after[i])
                if left > 0 and on.any():
                    following = store.states[here[on] + 1]
                    values.block(h + 1, following, buffers, found, greedy)
                    y[on] = store.rewards[here[on]] + found[: len(following)]
                off = y - self._chosen(i, here) @ w
                sums[i] += len(y), y.sum(), y @ y, off.sum(), off @ off
        return sums

    def _chosen(self, i: int, where: np.ndarray) -> np.ndarray:
        """φ of agent i's steps at these places, (n, d)."""
        store = self.stores[i]
        return self._features.chosen(store.states[where], store.actions[where])

    def fewest(self, first: int, last: int) -> int | None:
        """Of episodes first+1 … last, how many the emptiest Λ_h^loc of an agent sums up: those
        that reached the last step that any of them did. With a floor, of the round that has just
        ended: the fewest of what did not wait."""
        if not self._ends:
            return None
        if self._pooled is not None:
            return last - first
        if self.floor > 1:
            return self._smallest
        lengths = [store.lengths[first:last] for store in self.stores]
        return min(int(np.count_nonzero(own == own.max())) for own in lengths)

    def state(self) -> Arrays:
        """Nothing beyond the history, but what waits under a floor."""
        return {"uploaded": self.due} if self.floor > 1 else {}

    def restore(self, state: Arrays) -> None:
        """Continue from `state`."""
        if self.floor > 1:
            self.due = state["uploaded"].reshape(self.due.shape).copy()

    def history(self, first: int, last: int) -> Arrays:
        """The episodes after `first` up to `last`, for a checkpoint that only appends."""
        parts: Arrays = {}
        for name in ("states", "actions", "rewards"):
            cuts = [getattr(store, name)[store.span(first, last)] for store in self.stores]
            parts[name] = np.concatenate(cuts)
        parts["lengths"] = np.stack([store.lengths[first:last] for store in self.stores])
        if self._pooled is not None:
            parts |= {"last": self._finals[:, first:last], "ended": self._over[:, first:last]}
        return parts

    def extend(self, first: int, part: Arrays) -> None:
        """Put back what `history` gave."""
        if part["states"].ndim == 4:  # as it was written where no episode has an end, up to 0.9
            part = _one_after_the_other(part)
        at = 0
        for store, lengths in zip(self.stores, part["lengths"], strict=True):
            cut = slice(at, at + int(lengths.sum()))
            store.append(part["states"][cut], part["actions"][cut], part["rewards"][cut], lengths)
            at = cut.stop
        if self._pooled is not None:
            self._remember(first, part["last"], part["ended"].astype(bool))
        if self.floor == 1:
            self.due = np.full_like(self.due, first + part["lengths"].shape[1])


def _one_after_the_other(part: Arrays) -> Arrays:
    """Episodes (m, H + 1, n, s) and (m, H, n), all of the full length, as `history` gives them."""
    states, actions, rewards = (
        np.moveaxis(part[name], 1, 2) for name in ("states", "actions", "rewards")
    )
    H, last = actions.shape[2], states[:, :, -1]
    rows = (states[:, :, :H].reshape(-1, states.shape[3]), actions.ravel(), rewards.ravel())
    lengths = np.full(actions.shape[:2], H)
    parts = dict(zip(("states", "actions", "rewards"), rows, strict=True)) | {"lengths": lengths}
    return parts | {"last": last, "ended": np.zeros(lengths.shape, bool)}
