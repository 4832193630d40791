"""Experience in a black-box Gymnasium environment.

Episodes are played in step with each other, several per agent, and kept one after the other as they
happened. The value after the end of an episode is known, (H − h)·r₀ with r₀ the image of a reward
of 0, so nothing is learned about it: those steps have φ = 0 and take no part in the sums

    Λ_h = Σ φφᵀ,   b_h = Σ φ(r + V_{h+1}(x')),   V_{h+1}(end) = (H − h)·r₀.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedlsvi.core.statistics import Packing, pack
from fedlsvi.envs.gym.players import Played, Players
from fedlsvi.envs.gym.world import COPIES, GymWorld
from fedlsvi.experience import rows
from fedlsvi.experience.continuous import LOOKAHEAD_BYTES, ContinuousExperience
from fedlsvi.experience.values import BlockValues
from fedlsvi.experience.workers import Workers, contiguous_runs

FEW_ROWS = 256
"""Feature rows per matrix product (`values.ROWS`): episodes of a black box come by the dozen."""


class Memory:
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
            old = getattr(self, name)
            need = at + len(new)
            if need > len(old):
                grown = np.empty((max(need, 2 * len(old)), *old.shape[1:]), old.dtype)
                grown[:at] = old[:at]
                setattr(self, name, grown)
            getattr(self, name)[at:need] = new
        self.steps += len(actions)
        self.episodes += len(lengths)

    def at(self, h: int, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Where step h of the episodes after `first` lies, and which of them went on after it."""
        lengths = self.lengths[: self.episodes]
        begin = np.cumsum(lengths) - lengths
        alive = lengths >= h
        alive[:first] = False
        return begin[alive] + h - 1, lengths[alive] > h

    def span(self, first: int, last: int) -> slice:
        """Where the steps of episodes first+1 … last lie."""
        return slice(int(self.lengths[:first].sum()), int(self.lengths[:last].sum()))


class GymExperience(ContinuousExperience):
    """The history of a cohort's agents in worlds that are observed as numbers."""

    def __init__(
        self,
        envs: Sequence[GymWorld],
        agents: np.ndarray,
        values: BlockValues,
        seed: int,
        packing: Packing,
        workers: Workers,
    ) -> None:
        self.agents, self.values, self.seed = agents, values, seed
        self.packing, self.workers = packing, workers
        self._runs = contiguous_runs(envs)
        self._players = [Players(env, agents[lo:hi], seed) for lo, hi, env in self._runs]
        env = envs[0]
        m, self._horizon, self.dim = len(agents), env.horizon, values.features.dim
        self._after = [env.absorbing_reward for env in envs]
        self.block = max(1, min(COPIES, LOOKAHEAD_BYTES // (8 * m * env.horizon * self.dim)))
        self.memory = [Memory(env.horizon, (env.state_dim,)) for _ in agents]
        self._grown = np.empty((m, env.horizon, self.dim, self.dim))
        self._bounds = np.empty((m, env.horizon, 2))
        self._rows = np.empty((m, 0, env.horizon, self.dim))
        self._scratch = [values.scratch() for _ in range(workers.threads)]

    def begin(self, t: int) -> None:
        super().begin(t)
        self._played: list[list[Played]] = [[] for _ in self._runs]

    def explore(self, n: int) -> None:
        """Every agent plays its next n episodes."""
        if self._last > 0:  # what was explored before did not fire
            rows.absorb(self._rows, self._grown, self._bounds)
        m, at = len(self.agents), self.t + self.length
        self._rows = np.zeros((m, n, self._horizon, self.dim))
        for (lo, hi, _), players, kept in zip(self._runs, self._players, self._played, strict=True):
            whitened = self._rows[lo:hi].reshape((hi - lo) * n, self._horizon, self.dim)

            def act(h: int, x: np.ndarray, live: np.ndarray, out: Any = whitened) -> np.ndarray:
                actions, out[live, h - 1] = self._act(h, x)
                return actions

            kept.append(players.play(at + 1, n, act))
        self.length += n
        self._last = n

    def close(self, length: int) -> None:
        """End the round after `length` episodes; later ones are forgotten."""
        self.length = length
        for (lo, hi, _), kept in zip(self._runs, self._played, strict=True):
            for i in range(lo, hi):
                left = length
                for played in kept:
                    cut = slice(0, min(left, played.lengths.shape[1]))
                    lengths = played.lengths[i - lo, cut]
                    used = np.arange(self._horizon) < lengths[:, None]
                    self.memory[i].append(
                        played.states[i - lo, cut][used],
                        played.actions[i - lo, cut][used],
                        played.rewards[i - lo, cut][used],
                        lengths,
                    )
                    left -= len(lengths)

    def returns(self, first: int, last: int) -> np.ndarray:
        """(m, n) returns of episodes first+1 … last, in the environment's own units."""
        found = np.empty((len(self.agents), last - first))
        for i, memory in enumerate(self.memory):
            span, lengths = memory.span(first, last), memory.lengths[first:last]
            episode = np.repeat(np.arange(last - first), lengths)
            earned = np.bincount(episode, memory.rewards[span], minlength=last - first)
            found[i] = earned + (self._horizon - lengths) * self._after[i]
        for lo, hi, env in self._runs:
            found[lo:hi] = env.original(found[lo:hi])
        return found

    def fewest(self, first: int, last: int) -> int:
        """Of episodes first+1 … last, how many the emptiest Λ_h^loc of an agent sums up: those
        that reached the last step that any of them did."""
        lengths = [memory.lengths[first:last] for memory in self.memory]
        return min(int(np.count_nonzero(own == own.max())) for own in lengths)

    def _statistics(self, h: int) -> np.ndarray:
        """Λ_h^loc of the round just closed, (m, P)."""
        grams = np.zeros((len(self.agents), self.dim, self.dim))

        def add(lo: int, hi: int) -> None:
            for i in range(lo, hi):
                where, _ = self.memory[i].at(h, self.t)
                for at in range(0, len(where), self.values.size):
                    phi = self._features_at(i, where[at : at + self.values.size])
                    grams[i] += phi.T @ phi

        self.workers.map(add, 0, len(self.agents))
        return pack(grams, self.packing)

    def _responses(self, h: int) -> np.ndarray:
        """b_h over the whole history, (m, d)."""
        size, b = self.values.size, np.zeros((len(self.agents), self.dim))
        left = self._horizon - h

        def relabel(lo: int, hi: int, scratch: list[tuple[np.ndarray, np.ndarray]]) -> None:
            buffers = scratch.pop()  # one set of buffers per thread; a list pops atomically
            values, greedy = np.empty(size), np.empty(size, np.int32)
            for i in range(lo, hi):
                memory = self.memory[i]
                where, on = memory.at(h)
                for at in range(0, len(where), size):
                    here, lasts = where[at : at + size], on[at : at + size]
                    targets = memory.rewards[here] + (0.0 if left == 0 else left * self._after[i])
                    if left > 0 and lasts.any():
                        following = memory.states[here[lasts] + 1]
                        self.values.block(h + 1, following, buffers, values, greedy)
                        found = values[: len(following)]
                        targets[lasts] = memory.rewards[here[lasts]] + found
                    b[i] += targets @ self._features_at(i, here)
            scratch.append(buffers)

        self.workers.map(relabel, 0, len(self.agents), self._scratch)
        return b

    def _features_at(self, i: int, where: np.ndarray) -> np.ndarray:
        """φ of agent i's steps at these places, (n, d)."""
        memory = self.memory[i]
        return self.values.features.chosen(memory.states[where], memory.actions[where])

    def history(self, first: int, last: int) -> dict[str, np.ndarray]:
        """The episodes after `first` up to `last`, for a checkpoint that only appends."""
        parts: dict[str, np.ndarray] = {}
        for name in ("states", "actions", "rewards"):
            cuts = [getattr(m, name)[m.span(first, last)] for m in self.memory]
            parts[name] = np.concatenate(cuts)
        parts["lengths"] = np.stack([m.lengths[first:last] for m in self.memory])
        return parts

    def extend(self, first: int, part: dict[str, np.ndarray]) -> None:
        """Put back what `history` gave."""
        at = 0
        for memory, lengths in zip(self.memory, part["lengths"], strict=True):
            cut = slice(at, at + int(lengths.sum()))
            memory.append(part["states"][cut], part["actions"][cut], part["rewards"][cut], lengths)
            at = cut.stop
