"""Experience in a black-box Gymnasium environment whose observations are vectors.

Several episodes per agent are played in lockstep, and kept one after the other as they happened.
The value after the end of an episode is known, (H − h)·r₀ with r₀ the image of a reward of 0, so
nothing is learned about it: those steps have φ = 0 and take no part in the sums

    Λ_h = Σ φφᵀ,   b_h = Σ φ(r + V_{h+1}(x')),   V_{h+1}(end) = (H − h)·r₀.

Finitely many observations are counted instead: `stepped_finite`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedlsvi.core.perturbation import directions
from fedlsvi.core.statistics import Packing, pack
from fedlsvi.core.trigger import Rule
from fedlsvi.envs.gym.episodes import Played, Players
from fedlsvi.envs.gym.world import COPIES, GymWorld
from fedlsvi.experience.continuous import LOOKAHEAD_BYTES, greedy_rows
from fedlsvi.experience.trigger_search import Firing, RowTrigger
from fedlsvi.experience.values import BlockValues
from fedlsvi.experience.workers import Workers, contiguous_runs, grown


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


class GymExperience:
    """The history of a cohort's agents in worlds whose observations are vectors."""

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
        self.stores = [EpisodeStore(env.horizon, (env.width,)) for _ in agents]
        self._trigger = RowTrigger(m, env.horizon, self.dim)
        self._scratch = [values.scratch() for _ in range(workers.threads)]
        self.floor, self.diversity = 1, 0.0
        # (m, H): up to which episode each step was uploaded, before this round and with it
        self._uploaded = self._due = np.zeros((m, env.horizon), np.int64)
        self._smallest = 0

    def begin(self, t: int) -> None:
        """Start a round after episode t, with the policy that `values` holds now."""
        self.t, self.length, self._last = t, 0, 0
        self._trigger.begin()
        self._uploaded = self._due if self.floor > 1 else np.full_like(self._due, t)
        self._played: list[list[Played]] = [[] for _ in self._runs]

    def explore(self, n: int) -> None:
        """Every agent plays its next n episodes."""
        at, rows = self.t + self.length, self._trigger.extend(n)
        for (lo, hi, _), players, kept in zip(self._runs, self._players, self._played, strict=True):
            whitened = rows[lo:hi].reshape((hi - lo) * n, self._horizon, self.dim)
            perturb = self._perturbation(self.agents[lo:hi], at + 1, n)

            def act(
                h: int, x: np.ndarray, live: np.ndarray, out: Any = whitened, by: Any = perturb
            ) -> np.ndarray:
                own = None if by is None else by[live]
                chosen = greedy_rows(self.values, self.workers, self._scratch, h, x, own)
                actions, out[live, h - 1] = chosen
                return actions

            kept.append(players.play(at + 1, n, act))
        self.length += n
        self._last = n
        self.block = self._runs[0][2].lookahead(self.block)

    def _perturbation(self, agents: np.ndarray, first: int, n: int) -> np.ndarray | None:
        """σζ of each agent and episode, (m·n, d); None where all follow one policy."""
        if self.diversity == 0.0:
            return None
        zeta = directions(self.seed, agents, first, n, self.dim)
        return self.diversity * zeta.reshape(-1, self.dim)

    def first_firing(self, rule: Rule, n: int) -> Firing:
        """Search the first n of the episodes explored last."""
        return self._trigger.search(self.length - self._last, n, rule)

    def close(self, length: int) -> None:
        """End the round after `length` episodes; later ones are dropped."""
        self.length = length
        for (lo, hi, _), kept in zip(self._runs, self._played, strict=True):
            for i in range(lo, hi):
                left = length
                for played in kept:
                    cut = slice(0, min(left, played.lengths.shape[1]))
                    lengths = played.lengths[i - lo, cut]
                    used = np.arange(self._horizon) < lengths[:, None]
                    self.stores[i].append(
                        played.states[i - lo, cut][used],
                        played.actions[i - lo, cut][used],
                        played.rewards[i - lo, cut][used],
                        lengths,
                    )
                    left -= len(lengths)
        self._hold_back()

    def _hold_back(self) -> None:
        """A step that fewer than `floor` episodes reached since it was last uploaded waits for a
        later round: neither Λ_h nor b_h has them until then."""
        self._due = np.full_like(self._uploaded, self.t + self.length)
        if self.floor == 1:
            return
        self._smallest = self.length
        for i, store in enumerate(self.stores):
            lengths = store.lengths[: store.episodes]
            for h in range(self._horizon):
                reached = int(np.count_nonzero(lengths[self._uploaded[i, h] :] > h))
                if reached < self.floor:
                    self._due[i, h] = self._uploaded[i, h]
                else:
                    self._smallest = min(self._smallest, reached)

    def returns(self, first: int, last: int) -> np.ndarray:
        """(m, n) returns of episodes first+1 … last, in the environment's own units."""
        found = np.empty((len(self.agents), last - first))
        for i, store in enumerate(self.stores):
            span, lengths = store.span(first, last), store.lengths[first:last]
            episode = np.repeat(np.arange(last - first), lengths)
            earned = np.bincount(episode, store.rewards[span], minlength=last - first)
            found[i] = earned + (self._horizon - lengths) * self._after[i]
        for lo, hi, env in self._runs:
            found[lo:hi] = env.original(found[lo:hi])
        return found

    def fewest(self, first: int, last: int) -> int:
        """Of episodes first+1 … last, how many the emptiest Λ_h^loc of an agent sums up: those
        that reached the last step that any of them did. With a floor, of the round just closed:
        the fewest of what did not wait."""
        if self.floor > 1:
            return self._smallest
        lengths = [store.lengths[first:last] for store in self.stores]
        return min(int(np.count_nonzero(own == own.max())) for own in lengths)

    def summarise(self, h: int) -> tuple[np.ndarray, np.ndarray]:
        """Λ_h^loc of the round just closed, (m, P), and b_h over the whole history, (m, d)."""
        return self._statistics(h), self.responses(h)

    def state(self) -> dict[str, np.ndarray]:
        """Nothing beyond the history, but what waits under a floor."""
        return {"uploaded": self._due} if self.floor > 1 else {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `state`."""
        if self.floor > 1:
            self._due = state["uploaded"].reshape(self._due.shape).copy()

    def _statistics(self, h: int) -> np.ndarray:
        """Λ_h^loc of the round just closed, (m, P)."""
        grams = np.zeros((len(self.agents), self.dim, self.dim))

        def add(lo: int, hi: int) -> None:
            for i in range(lo, hi):
                where, _ = self.stores[i].at(h, self._uploaded[i, h - 1], self._due[i, h - 1])
                for at in range(0, len(where), self.values.size):
                    phi = self._features_at(i, where[at : at + self.values.size])
                    grams[i] += phi.T @ phi

        self.workers.map(add, 0, len(self.agents))
        return pack(grams, self.packing)

    def responses(self, h: int) -> np.ndarray:
        """b_h over the whole history, (m, d)."""
        size, b = self.values.size, np.zeros((len(self.agents), self.dim))
        left = self._horizon - h

        def relabel(lo: int, hi: int, scratch: list[tuple[np.ndarray, np.ndarray]]) -> None:
            buffers = scratch.pop()  # one set of buffers per thread; a list pops atomically
            values, greedy = np.empty(size), np.empty(size, np.int32)
            for i in range(lo, hi):
                store = self.stores[i]
                where, on = store.at(h, 0, self._due[i, h - 1])
                for at in range(0, len(where), size):
                    here, lasts = where[at : at + size], on[at : at + size]
                    targets = store.rewards[here] + (0.0 if left == 0 else left * self._after[i])
                    if left > 0 and lasts.any():
                        following = store.states[here[lasts] + 1]
                        self.values.block(h + 1, following, buffers, values, greedy)
                        found = values[: len(following)]
                        targets[lasts] = store.rewards[here[lasts]] + found
                    b[i] += targets @ self._features_at(i, here)
            scratch.append(buffers)

        self.workers.map(relabel, 0, len(self.agents), self._scratch)
        return b

    def _features_at(self, i: int, where: np.ndarray) -> np.ndarray:
        """φ of agent i's steps at these places, (n, d)."""
        store = self.stores[i]
        return self.values.features.chosen(store.states[where], store.actions[where])

    def history(self, first: int, last: int) -> dict[str, np.ndarray]:
        """The episodes after `first` up to `last`, for a checkpoint that only appends."""
        parts: dict[str, np.ndarray] = {}
        for name in ("states", "actions", "rewards"):
            cuts = [getattr(m, name)[m.span(first, last)] for m in self.stores]
            parts[name] = np.concatenate(cuts)
        parts["lengths"] = np.stack([m.lengths[first:last] for m in self.stores])
        return parts

    def extend(self, first: int, part: dict[str, np.ndarray]) -> None:
        """Put back what `history` gave."""
        at = 0
        for store, lengths in zip(self.stores, part["lengths"], strict=True):
            cut = slice(at, at + int(lengths.sum()))
            store.append(part["states"][cut], part["actions"][cut], part["rewards"][cut], lengths)
            at = cut.stop
