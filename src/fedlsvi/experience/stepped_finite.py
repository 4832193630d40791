"""Experience in a black-box Gymnasium environment with finitely many observations.

Several episodes per agent are played in lockstep. Kept is, per agent and step, how often each
(x, a, x') was seen and what it earned. The state after the end is a state like the others,
absorbing and paying r₀, the image of a reward of 0, as it is in an environment whose table is
known. Observations that are vectors are kept whole: `stepped`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedlsvi.core.statistics import Packing, pack, packed_size, unpack
from fedlsvi.core.trigger import Rule
from fedlsvi.envs.gym.episodes import Played, Players
from fedlsvi.envs.gym.world import COPIES, GymWorld
from fedlsvi.experience.finite import Cells
from fedlsvi.experience.trigger_search import CountTrigger, Firing
from fedlsvi.experience.values import TabularValues
from fedlsvi.experience.workers import Workers, contiguous_runs, grown


class TransitionCounts:
    """Transitions (x, a, x') in ascending order, with their numbers and the sums of rewards."""

    def __init__(self) -> None:
        self.keys = np.empty(0, np.int64)
        self.counts, self.earned = np.empty(0, np.int64), np.empty(0)

    def add(self, keys: np.ndarray, rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Take in a round; returns its own distinct keys and their numbers."""
        new, place, counts = np.unique(keys, return_inverse=True, return_counts=True)
        earned = np.bincount(place, rewards, minlength=len(new))
        self._merge(new, counts, earned)
        return new, counts

    def merge(self, other: TransitionCounts) -> None:
        """Take in what another has counted."""
        self._merge(other.keys, other.counts, other.earned)

    def _merge(self, new: np.ndarray, counts: np.ndarray, earned: np.ndarray) -> None:
        merged = np.union1d(self.keys, new)
        for name, old, more in (("counts", self.counts, counts), ("earned", self.earned, earned)):
            total = np.zeros(len(merged), old.dtype)
            total[np.searchsorted(merged, self.keys)] = old
            total[np.searchsorted(merged, new)] += more
            setattr(self, name, total)
        self.keys = merged


class GymFiniteExperience:
    """What a cohort's agents saw in worlds whose observations are numbers of states."""

    def __init__(
        self,
        envs: Sequence[GymWorld],
        agents: np.ndarray,
        values: TabularValues,
        seed: int,
        packing: Packing,
        workers: Workers,
    ) -> None:
        self.agents, self.values, self.seed = agents, values, seed
        self.packing, self.workers, self.dim = packing, workers, values.dim
        self._runs = contiguous_runs(envs)
        self._make_players(envs)
        m, horizon = len(agents), envs[0].horizon
        self._shape = (envs[0].n_states, envs[0].n_actions)
        self.block = COPIES
        self.seen = [[TransitionCounts() for _ in agents] for _ in range(horizon)]
        self._trigger = CountTrigger(m, horizon, workers)
        self._spilled = np.empty((0, 0, 0, 0), np.int64)  # the log holds the whole round
        self._log = np.empty((m, horizon + 1, 64), np.uint32)
        self._paid = np.empty((m, horizon, 64))

    def _make_players(self, envs: Sequence[GymWorld]) -> None:
        runs = self._runs
        self._players = [Players(env, self.agents[lo:hi], self.seed) for lo, hi, env in runs]

    def begin(self, t: int) -> None:
        """Start a round after episode t, with the policy that `values` holds now."""
        self.t, self.length, self._last, self._logged = t, 0, 0, 0
        self._trigger.begin()
        self._policy = self.values.policy.copy()

    def explore(self, n: int) -> None:
        """Every agent plays its next n episodes."""
        self._make_room(n)
        new = slice(self._logged, self._logged + n)
        for (lo, hi, env), players in zip(self._runs, self._players, strict=True):
            policy = self._policy

            def act(
                h: int, x: np.ndarray, live: np.ndarray, p: Any = policy, world: GymWorld = env
            ) -> np.ndarray:
                if self.values.unseen:
                    self._take_masks(world, x)
                actions: np.ndarray = p[h - 1, x]
                return actions

            played = players.play(self.t + self.length + 1, n, act)
            close_off(played, env)
            self._log[lo:hi, :-1, new] = played.states.transpose(0, 2, 1)
            self._log[lo:hi, -1, new] = played.last
            self._paid[lo:hi, :, new] = played.rewards.transpose(0, 2, 1)
        self._logged += n
        self.length += n
        self._last = n
        self.block = self._runs[0][2].lookahead(self.block)

    def _take_masks(self, env: GymWorld, x: np.ndarray) -> None:
        """States that are seen for the first time show which actions they allow; no episode of the
        round was there before, so that the policy is still one table."""
        new = np.unique(x[~self.values.shown[x]])
        if len(new):
            self.values.show(new, env.allowed[0, new])
            self._policy[:, new] = self.values.policy[:, new]

    def first_firing(self, rule: Rule, n: int) -> Firing:
        """Search the first n of the episodes explored last."""
        before = self.length - self._last
        where = (self._log, self._spilled, self.values.marks, before, before, n)
        return self._trigger.search(*where, rule)

    def close(self, length: int) -> None:
        """End the round after `length` episodes, and count its transitions."""
        self.length = self._logged = length
        self._closed = (self.t, self._paid[:, :, :length].sum(axis=1))
        n_states, n_actions = self._shape
        diagonal = self.values.phi.size == 0
        wire: Packing = "diagonal" if diagonal else "packed"
        groups, m = len(self.seen), len(self.agents)
        size = len(self._policy) // groups  # steps whose transitions are counted together
        self._gram = np.zeros((groups, m, packed_size(self.dim, wire)))
        for g in range(groups):
            steps = np.arange(g * size, (g + 1) * size)
            for i in range(m):
                pair = self._pairs_of(i, steps, length)
                to = self._log[i, steps + 1, :length].astype(np.int64)
                paid = self._paid[i, steps, :length].ravel()
                keys, counts = self.seen[g][i].add((pair * n_states + to).ravel(), paid)
                x, a = np.divmod(keys // n_states, n_actions)
                if diagonal:
                    at = self.values.index[x, a]
                    self._gram[g, i] = np.bincount(at, counts, minlength=self.dim)
                else:
                    phi = self.values.phi[x, a]
                    self._gram[g, i] = pack((phi.T * counts) @ phi, "packed")

    def _pairs_of(self, i: int, steps: np.ndarray, length: int) -> np.ndarray:
        """x·A + a of agent i at these steps, (steps, episodes)."""
        x = self._log[i, steps, :length].astype(np.int64)
        pairs: np.ndarray = x * self._shape[1] + self._policy[steps[:, None], x]
        return pairs

    def summarise(self, h: int) -> tuple[np.ndarray, np.ndarray]:
        """Λ_h^loc of the round just closed, (m, P), and b_h over the whole history, (m, d)."""
        gram = self._gram[h - 1]
        if self.packing == "dense":
            gram = unpack(gram, self.dim, "packed").reshape(len(gram), -1)
        return gram, self._respond(h, h - 1)

    def responses(self, h: int) -> np.ndarray:
        """b_h over the whole history, (m, d)."""
        return self._respond(h, h - 1)

    def _respond(self, h: int, row: int) -> np.ndarray:
        """b_h (m, d) from the transitions in this row, with V_{h+1}."""
        n_states, n_actions = self._shape
        b = np.empty((len(self.agents), self.dim))
        for i, seen in enumerate(self.seen[row]):
            pair, to = np.divmod(seen.keys, n_states)
            x, a = np.divmod(pair, n_actions)
            targets = seen.earned + seen.counts * self.values.values[h][to]
            if self.values.phi.size == 0:
                b[i] = np.bincount(self.values.index[x, a], targets, minlength=self.dim)
            else:
                b[i] = targets @ self.values.phi[x, a]
        return b

    def take_increments(self, h: int) -> tuple[np.ndarray, np.ndarray, Cells]:
        """What the round just closed adds to Λ_h (m, P), u_h (m, d) and N_h; it is not kept, so
        that the next round's is its own (`protocol.one_trip`)."""
        (n_states, n_actions), m = self._shape, len(self.agents)
        u, following = np.zeros((m, self.dim)), np.zeros((m, self.dim, n_states))
        step = min(h, len(self.seen)) - 1  # steps may share their counts
        for i, seen in enumerate(self.seen[step]):
            pair, to = np.divmod(seen.keys, n_states)
            x, a = np.divmod(pair, n_actions)
            if self.values.phi.size == 0:
                at = self.values.index[x, a]
                u[i] = np.bincount(at, seen.earned, minlength=self.dim)
                np.add.at(following[i], (at, to), seen.counts)
            else:
                phi = self.values.phi[x, a]
                u[i] = seen.earned @ phi
                np.add.at(following[i].T, to, seen.counts[:, None] * phi)
        gram, _ = self.summarise(h)
        self.seen[step] = [TransitionCounts() for _ in self.agents]
        rows = following.reshape(m, -1)
        agent, place = np.nonzero(rows)
        return gram, u, (agent, place, rows[agent, place])

    def returns(self, first: int, last: int) -> np.ndarray:
        """(m, n) returns of the episodes first+1 … last of the round just closed, in the
        environment's own units."""
        t, earned = self._closed
        found: np.ndarray = earned[:, first - t : last - t].copy()
        for lo, hi, env in self._runs:
            found[lo:hi] = env.original(found[lo:hi])
        return found

    def state(self) -> dict[str, np.ndarray]:
        """Every count, one after the other, and how many there are per step and agent."""
        all_seen = [seen for step in self.seen for seen in step]
        sizes = np.array([len(seen.keys) for seen in all_seen]).reshape(len(self.seen), -1)
        parts = {
            name: np.concatenate([getattr(seen, name) for seen in all_seen])
            for name in ("keys", "counts", "earned")
        }
        if self.values.unseen:
            parts["masks"] = self.values.allowed[0].astype(np.uint8)  # type: ignore[index]
            parts["shown"] = self.values.shown.astype(np.uint8)
        return parts | {"sizes": sizes}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `state()`."""
        keys, (n_states, n_actions) = state["keys"], self._shape
        if keys.size and not 0 <= keys.min() <= keys.max() < n_states * n_actions * n_states:
            raise ValueError("keys of transitions that do not exist")
        if self.values.unseen:
            shown = np.flatnonzero(state["shown"])
            self.values.show(shown, state["masks"][shown].astype(bool))
        at = 0
        for step, sizes in zip(self.seen, state["sizes"], strict=True):
            for seen, size in zip(step, sizes.tolist(), strict=True):
                for name in ("keys", "counts", "earned"):
                    setattr(seen, name, state[name][at : at + size].copy())
                at += size

    def history(self, first: int, last: int) -> dict[str, np.ndarray]:
        """Nothing: the counts are all that is kept."""
        return {}

    def extend(self, first: int, part: dict[str, np.ndarray]) -> None:
        """Nothing to put back."""

    def _make_room(self, n: int) -> None:
        need, size = self._logged + n, self._log.shape[2]
        if need <= size:
            return
        for name in ("_log", "_paid"):
            old = getattr(self, name)
            setattr(self, name, grown(old, max(need, 2 * size), self._logged, axis=2))


def close_off(played: Played, env: GymWorld) -> None:
    """Fill in what follows the ends: the absorbing state and its reward."""
    over = np.arange(env.horizon) >= played.lengths[:, :, None]
    played.states[over] = env.n_states - 1
    played.rewards[over] = env.absorbing_reward
    # an episode that ended at its very last step lies behind the end too
    played.last[played.ended] = env.n_states - 1
