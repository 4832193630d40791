"""Sums over the agents of a cohort, each of which keeps what it saw in this round and no more.

With one trip per synchronisation and sums of integers (`core.fixed_point`), what an agent sends
depends on its round alone, and of the agents' words only the sum is used. So agents need no u and N
of their own: each is summed in a place that the next one overwrites, in the order of additions of
`dense_counts`, rounded by itself, and added to the words of the cohort. These are the same words,
to the last bit, as those of agents kept one by one.

- A round of one episode, whose steps have sums of their own, is one φφᵀ, φr and φe_{x'} for each
  agent and step. All agents that make the same transition send the same words, so transitions are
  counted, and words multiplied.
- A round of up to `FEW` episodes is summed agent after agent; only the columns of N that it reached
  are rounded and cleared.
- A longer one goes through a `DenseCounts` of a few agents, so many at a time.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

import numpy as np
from numba import njit

from fedlsvi.core import fixed_point
from fedlsvi.core.statistics import Packing, packed_size, unpack
from fedlsvi.experience.dense_counts import DenseCounts, outer_products
from fedlsvi.experience.finite_kernels import FEW, add_few, repeats, sort_transitions
from fedlsvi.experience.moments import EXTRA
from fedlsvi.experience.rooms import Added, Arrays
from fedlsvi.experience.state_round import Pay, StateRound
from fedlsvi.experience.values import TabularValues
from fedlsvi.experience.workers import Workers

PLACE_BYTES = 2**23
"""Memory for the sums of agents whose long round is summed at one time."""


class Grid(NamedTuple):
    """Fixed point: what a number is multiplied by, and the largest that one agent may send."""

    scale: float
    most: float


class Sums(NamedTuple):
    """Words of groups of steps. Integers of 64 bits wrap around, as words do."""

    gram: np.ndarray
    """(…, G, P)"""
    u: np.ndarray
    """(…, G, d), with Σr² and n behind it where the bonus knows the noise."""
    following: np.ndarray
    """(…, tables, S, d): N of next states, column by column, with two rows behind it likewise."""


@njit(inline="always")
def _word(x, grid, beyond):  # type: ignore[no-untyped-def]
    """round(x·2^s); what is too large for that is noted."""
    if not abs(x) <= grid.most:
        beyond[0] = x
        return np.int64(0)
    return np.int64(np.rint(x * grid.scale))


@njit(cache=True, nogil=True)
def set_cells(policy, reward, moving, phi, noisy):  # type: ignore[no-untyped-def]
    """(H, S, S): the entries of N_h that a transition x → x' sets; none at the last step."""
    horizon, n_states = policy.shape
    cells = np.zeros((horizon, n_states, n_states), np.int64)
    for h in range(horizon - 1):
        pay = reward[h if reward.shape[0] > 1 else 0]
        for x in range(n_states):
            a, own = policy[h, x], 1
            if phi.size > 0:
                own = 0
                for i in range(phi.shape[2]):
                    own += phi[x, a, i] != 0.0
            for to in range(n_states):
                paid = pay[x, a, to if moving else 0]
                cells[h, x, to] = own + (1 + (paid != 0.0) if noisy else 0)
    return cells


@njit(cache=True, nogil=True)
def count_single(first, last, cuts, log, per_cell, counts, cells):  # type: ignore[no-untyped-def]
    """Count the only episode of agents cuts[p] … cuts[p+1]−1 into counts[p], (H, S, S), for
    p = first … last−1, and of each agent the entries of N that it sets."""
    for p in range(first, last):
        for i in range(cuts[p], cuts[p + 1]):
            sent = 0
            for h in range(counts.shape[1]):
                x, to = log[i, h, 0], log[i, h + 1, 0]
                counts[p, h, x, to] += 1
                sent += per_cell[h, x, to]
            cells[i] = sent


@njit(cache=True, nogil=True)
def add_counted(first, last, counts, policy, pay, dim, grid, sums, beyond):  # type: ignore[no-untyped-def]
    """Add the words of steps `first` … last−1: each transition's, times how many agents made it."""
    reward, moving, phi, index, _ = pay
    gram, u, following = sums
    n_states, noisy = policy.shape[1], u.shape[1] > dim
    one = _word(1.0, grid, beyond)
    for h in range(first, last):
        paid = reward[h if reward.shape[0] > 1 else 0]
        keeps = h < counts.shape[0] - 1
        for x in range(n_states):
            a, visits = policy[h, x], 0
            for to in range(n_states):
                n = counts[h, x, to]
                if n == 0:
                    continue
                visits += n
                r = paid[x, a, to if moving else 0]
                if phi.size == 0:
                    at = index[x, a]
                    u[h, at] += n * _word(r, grid, beyond)
                    if keeps:
                        following[h, to, at] += n * one
                for i in range(phi.shape[2]):
                    u[h, i] += n * _word(r * phi[x, a, i], grid, beyond)
                    if keeps:
                        following[h, to, i] += n * _word(phi[x, a, i], grid, beyond)
                if noisy:
                    u[h, dim] += n * _word(r * r, grid, beyond)
                    u[h, dim + 1] += n * one
                    if keeps:
                        following[h, to, dim] += n * _word(r, grid, beyond)
                        following[h, to, dim + 1] += n * one
            if visits == 0:
                continue
            if phi.size == 0:
                gram[h, index[x, a]] += visits * one
                continue
            at = 0
            for i in range(dim):
                for j in range(i, dim):
                    gram[h, at] += visits * _word(phi[x, a, i] * phi[x, a, j], grid, beyond)
                    at += 1


@njit(cache=True, nogil=True)
def add_short(first, last, cuts, n, log, policy, pay, dim, grid, sums, cells, beyond):  # type: ignore[no-untyped-def]
    """Add the words of agents cuts[p] … cuts[p+1]−1, whose rounds have n ≤ FEW episodes, to
    sums[p], for p = first … last−1, and count the entries of N that each of them sets.

    The order of additions is that of `finite_kernels.summarise` and `fold_few`, and of
    `moments.count_moments`.
    """
    reward, moving, phi, index, outer = pay
    grams, us, followings = sums
    horizon, n_states = policy.shape
    groups, rows = us.shape[1:]
    size, noisy = horizon // groups, rows > dim
    keys, touched = np.empty(FEW, np.int64), np.empty(n_states, np.int64)
    own_gram, own_u = np.empty(grams.shape[2]), np.empty(rows)
    own_b = own_u[:dim]
    own, step = np.zeros((n_states, rows)), np.zeros((n_states, 2))
    marks = np.zeros(n_states, np.bool_)
    for p in range(first, last):
        gram, u, following, over = grams[p], us[p], followings[p], beyond[p : p + 1]
        for i in range(cuts[p], cuts[p + 1]):
            sent = 0
            for g in range(groups):
                own_gram[:] = 0.0
                own_u[:] = 0.0
                known = 0
                for h in range(g * size, (g + 1) * size):
                    paid = reward[h if reward.shape[0] > 1 else 0]
                    states, ahead, chosen = log[i, h], log[i, h + 1], policy[h]
                    sort_transitions(n, states, ahead, keys)
                    add_few(n, keys, chosen, paid, moving, phi, index, outer, own_gram, own_b)
                    # V_{H+1} = 0, so N_H is not needed unless other steps share it
                    keeps = size > 1 or h < horizon - 1
                    e = 0
                    while keeps and e < n:
                        same = repeats(keys, e, n)
                        x, to = keys[e] >> 32, keys[e] & 0xFFFFFFFF
                        e += same
                        if not marks[to]:
                            marks[to] = True
                            touched[known] = to
                            known += 1
                        if phi.size == 0:
                            own[to, index[x, chosen[x]]] += same
                        for j in range(phi.shape[2]):
                            own[to, j] += same * phi[x, chosen[x], j]
                    if not noisy:
                        continue
                    square = 0.0
                    for e in range(n):
                        x, to = np.int64(states[e]), np.int64(ahead[e])
                        r = paid[x, chosen[x], to if moving else 0]
                        square += r * r
                        step[to, 0] += r
                        step[to, 1] += 1.0
                    own_u[dim] += square
                    own_u[dim + 1] += n
                    for e in range(n):
                        to = np.int64(ahead[e])
                        if keeps:
                            own[to, dim] += step[to, 0]
                            own[to, dim + 1] += step[to, 1]
                        step[to, 0] = 0.0
                        step[to, 1] = 0.0
                # no entry of a Gram matrix is larger than those of its diagonal, so only these
                # are checked, and the loop over the others has no branch
                at = 0
                for j in range(dim):
                    _word(own_gram[at], grid, over)
                    at += dim - j if own_gram.size > dim else 1
                total = gram[g]
                for j in range(own_gram.size):
                    total[j] += np.int64(np.rint(own_gram[j] * grid.scale))
                for j in range(rows):
                    u[g, j] += _word(own_u[j], grid, over)
                for k in range(known):
                    to = touched[k]
                    marks[to] = False
                    for j in range(rows):
                        if own[to, j] != 0.0:
                            following[g, to, j] += _word(own[to, j], grid, over)
                            own[to, j] = 0.0
                            sent += 1
            cells[i] = sent


@njit(cache=True, nogil=True)
def take(first, last, rows, grid, words, cells, beyond):  # type: ignore[no-untyped-def]
    """Add the words of rows (G, m, n) of groups `first` … last−1 to words (G, n), count in cells
    (G, m) which were set, and clear them."""
    for g in range(first, last):
        for i in range(cells.shape[1]):
            sent = 0
            for j in range(rows.shape[2]):
                x = rows[g, i, j]
                if x != 0.0:
                    words[g, j] += _word(x, grid, beyond[g : g + 1])
                    rows[g, i, j] = 0.0
                    sent += 1
            cells[g, i] += sent


class SummedCounts:
    """The words of a cohort's round.

    Args:
        values: φ of all pairs (x, a).
        n_agents: m.
        horizon: H.
        groups: G, H or 1.
        workers: Threads.
        tables: Of next states: one where steps share it, else H − 1.
        bits: Bits after the point.
        everyone: M, all agents of the run.
        packing: How Gram matrices travel.
    """

    def __init__(
        self,
        values: TabularValues,
        n_agents: int,
        horizon: int,
        groups: int,
        workers: Workers,
        tables: int,
        bits: int,
        everyone: int,
        packing: Packing,
    ) -> None:
        self.dim, self.horizon, self.groups, self.workers = values.dim, horizon, groups, workers
        self.phi, self.index = values.phi, values.index
        self._outer = outer_products(values.phi)
        self._noisy, self._packing = values.noise is not None, packing
        self._bits, self._everyone = bits, everyone
        self._grid = Grid(2.0**bits, fixed_point.LARGEST / everyone / 2.0**bits)
        n_states, rows = values.values.shape[1], self.dim + EXTRA * self._noisy
        packed = packed_size(self.dim, "packed" if self.phi.size else "diagonal")
        self._shapes = ((groups, packed), (groups, rows), (tables, n_states, rows))
        each = 8 * (horizon * packed + groups * rows + tables * n_states * rows)
        place = max(1, min(n_agents, PLACE_BYTES // each))
        self._place = DenseCounts(values, place, horizon, groups, workers)
        self.spilled_bytes = self._place.spilled_bytes
        self._cells = np.zeros(n_agents, np.int64)

    def spill(self, round_: StateRound) -> None:
        """See `Memory.spill`."""
        self._place.spill(round_)

    def add(self, round_: StateRound, first: int, length: int) -> None:
        """See `Memory.add`."""
        self._cells[:] = 0
        self._sums = Sums(*(np.zeros(shape, np.int64) for shape in self._shapes))
        if length > FEW:
            self._add_long(round_, first, length)
            return
        n_states = self._shapes[2][1]
        for pay in round_.pay:
            # counting takes a pass over all cells, which a few agents are not worth
            if length == 1 and self.groups == self.horizon and pay.hi - pay.lo >= n_states:
                self._count(round_, pay)
            else:
                self._add_short(round_, pay)
        round_.logged = 0

    def _count(self, round_: StateRound, pay: Pay) -> None:
        """Agents that played one episode, of which transitions are counted."""
        H, n_states, threads = self.horizon, self._shapes[2][1], self.workers.threads
        per_cell = set_cells(round_.policy, pay.reward, pay.moving, self.phi, self._noisy)
        counts = np.zeros((threads, H, n_states, n_states), np.int64)
        seen = (self._cuts(pay), round_.states, per_cell, counts, self._cells)
        self.workers.map(count_single, 0, threads, *seen, work=(pay.hi - pay.lo) * H)
        whole, beyond = counts.sum(axis=0), np.zeros(1)
        made = (self._grid, self._sums, beyond)
        about = (whole, round_.policy, self._world(pay), self.dim)
        work = min(pay.hi - pay.lo, n_states**2) * H * self.dim
        self.workers.map(add_counted, 0, H, *about, *made, work=work)
        self._check(beyond)

    def _add_short(self, round_: StateRound, pay: Pay) -> None:
        """Agents one after the other, on each thread."""
        threads, n = self.workers.threads, round_.logged
        sums = Sums(*(np.zeros((threads, *shape), np.int64) for shape in self._shapes))
        beyond, work = np.zeros(threads), (pay.hi - pay.lo) * self.horizon * n
        about = (n, round_.states, round_.policy, self._world(pay), self.dim)
        made = (self._grid, sums, self._cells, beyond)
        self.workers.map(add_short, 0, threads, self._cuts(pay), *about, *made, work=8 * work)
        for total, parts in zip(self._sums, sums, strict=True):
            total += parts.sum(axis=0)
        self._check(beyond)

    def _add_long(self, round_: StateRound, first: int, length: int) -> None:
        """So many agents at a time as have a place."""
        gram, u, following = self._sums
        rows = following.reshape(len(following), -1)
        kept = np.zeros((len(rows), self.dim, following.shape[1]), np.int64)
        behind = [np.zeros(following.shape[:2], np.int64) for _ in range(EXTRA)]
        m, size = len(self._cells), self._place.u.shape[1]
        for lo in range(0, m, size):
            hi = min(lo + size, m)
            self._place.add(part_of(round_, lo, hi), first, length)
            sums, cells = self._place.folded(), self._cells[lo:hi]
            last = len(sums.following)
            self._take(hi - lo, sums.gram, gram)
            self._take(hi - lo, sums.u, u[:, : self.dim])
            cells += self._take(hi - lo, sums.following, kept[:last])
            if sums.moments is None:
                continue
            self._take(hi - lo, sums.moments.totals, u[:, self.dim :])
            for part, words in zip(sums.moments[1:], behind, strict=True):
                cells += self._take(hi - lo, part[:last], words[:last])
                part[:] = 0.0
        following[:, :, : self.dim] = kept.transpose(0, 2, 1)
        for i, words in enumerate(behind if self._noisy else []):
            following[:, :, self.dim + i] = words
        round_.logged = 0

    def _take(self, n: int, rows: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Add rows (G, m, …) of the first n agents to words (G, …); how many entries each set."""
        if not len(rows):
            return np.zeros(n, np.int64)
        G, m = rows.shape[:2]
        made, sent, beyond = (
            np.zeros(words.shape, np.int64),
            np.zeros((G, n), np.int64),
            np.zeros(G),
        )
        flat = (rows.reshape(G, m, -1), self._grid, made.reshape(G, -1), sent, beyond)
        self.workers.map(take, 0, G, *flat, work=rows.size)
        words += made
        self._check(beyond)
        cells: np.ndarray = sent.sum(axis=0)
        return cells

    def _cuts(self, pay: Pay) -> np.ndarray:
        """The agents of each thread."""
        return np.linspace(pay.lo, pay.hi, self.workers.threads + 1).astype(np.int64)

    def _world(self, pay: Pay) -> tuple[np.ndarray, bool, np.ndarray, np.ndarray, np.ndarray]:
        return pay.reward, pay.moving, self.phi, self.index, self._outer

    def _check(self, beyond: np.ndarray) -> None:
        """Refuse what fixed point cannot hold."""
        if beyond.any():  # NaN too
            fixed_point.encode(beyond, self._bits, self._everyone)

    def take_added(self) -> Added:
        """See `AddingMemory`."""
        gram, u, following = self._sums
        if self._packing == "dense":
            gram = unpack(gram, self.dim, "packed").reshape(len(gram), -1)
        parts = (gram, u, following.transpose(0, 2, 1))
        words = np.concatenate([part.ravel() for part in parts]).view(np.uint64)
        return Added(words, gram.size + u.size, self._cells.copy())

    def fewest(self, first: int, last: int) -> None:
        """Nothing: every episode reaches every step."""

    def state(self) -> Arrays:
        """Nothing is kept between rounds."""
        return {}

    def restore(self, state: Arrays) -> None:
        """Nothing to put back."""

    def history(self, first: int, last: int) -> Arrays:
        """Nothing: the server has the sums."""
        return {}

    def extend(self, first: int, part: Arrays) -> None:
        """Nothing to put back."""


def part_of(round_: StateRound, lo: int, hi: int) -> StateRound:
    """The round of agents lo … hi−1."""
    part = copy(round_)
    part.states, part.visits = round_.states[lo:hi], round_.visits[lo:hi]
    if round_.moments is not None:
        part.moments = type(round_.moments)(*(sums[:, lo:hi] for sums in round_.moments))
    spans = [(max(pay.lo, lo) - lo, min(pay.hi, hi) - lo, pay) for pay in round_.pay]
    part.pay = [Pay(a, b, pay.reward, pay.moving) for a, b, pay in spans if a < b]
    return part
