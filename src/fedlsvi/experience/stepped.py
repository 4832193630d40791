"""Experience in a black-box Gymnasium environment, which can only be stepped.

Several episodes per agent are played in lockstep. `GymExperience`, for observations that are
vectors, keeps them one after the other as they happened. The value after the end of an episode is
known, (H − h)·r₀ with r₀ the image of a reward of 0, so nothing is learned about it: those steps
have φ = 0 and take no part in the sums

    Λ_h = Σ φφᵀ,   b_h = Σ φ(r + V_{h+1}(x')),   V_{h+1}(end) = (H − h)·r₀.

`GymFiniteExperience`, for finitely many observations, keeps per agent and step how often each
(x, a, x') was seen and what it earned. The state after the end is a state like the others,
absorbing and paying r₀, as it is in an environment whose table is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedlsvi.core.perturbation import directions
from fedlsvi.core.statistics import Packing, pack, packed_size, unpack
from fedlsvi.core.trigger import Rule
from fedlsvi.envs.gym.episodes import Played, Players
from fedlsvi.envs.gym.world import COPIES, GymWorld
from fedlsvi.experience.continuous import LOOKAHEAD_BYTES, greedy_rows
from fedlsvi.experience.finite import Cells
from fedlsvi.experience.trigger_search import CountTrigger, Firing, RowTrigger
from fedlsvi.experience.values import BlockValues, TabularValues
from fedlsvi.experience.workers import Workers, contiguous_runs, grown

FEW_ROWS = 256
"""Feature rows per matrix product (`values.ROWS`): episodes of a black box come by the dozen."""


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
