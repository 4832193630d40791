"""The search for the first episode of a round at which the trigger fires.

`CountTrigger` serves finite states: sums of ‖y‖² bracket the log-determinant and settle most
questions; where they do not, counts of the visited states decide. `RowTrigger` serves continuous
states: it adds whitened feature rows one episode at a time. So neither block sizes nor threads can
change the answer. Steps that share a Gram matrix form one group with one determinant, which is
named by its last step; else every step is a group of its own.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedlsvi.core.trigger import Rule, fires, logdet_in_place, settled
from fedlsvi.experience.workers import Workers

Firing = tuple[int, np.ndarray, np.ndarray]
"""The round's length Δt at the first firing episode (0 if none), the positions of the agents that
fire there, and their steps."""


@njit(cache=True, nogil=True)
def log_ratio(visits, rows, norms, slots):  # type: ignore[no-untyped-def]
    """log det(I + Σ_x n_x y_x y_xᵀ); with one-hot features (no rows) Σ_i log(1 + n_i/Λ_ii)."""
    n_states, dim = rows.shape
    if dim == 0:
        last = 0
        for x in range(n_states):
            last = max(last, slots[x])
        grown = np.zeros(last + 1)
        for x in range(n_states):
            grown[slots[x]] += visits[x] * norms[x]
        total = 0.0
        for i in range(grown.size):
            total += np.log1p(grown[i])
        return total
    work = np.zeros((dim, dim))
    for i in range(dim):
        work[i, i] = 1.0
    for x in range(n_states):
        if visits[x] > 0:
            for i in range(dim):
                scaled = visits[x] * rows[x, i]
                for j in range(i + 1):
                    work[i, j] += scaled * rows[x, j]
    return logdet_in_place(work)


# reassociation lets the sum use vector registers; it only brackets, counts decide
@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _growth(states, begin, end, norms):  # type: ignore[no-untyped-def]
    """s = Σ‖y‖² over logged episodes begin … end−1 of a group of steps, states (steps, episodes):
    log(1 + s) ≤ log ratio ≤ s."""
    total = 0.0
    for h in range(norms.shape[0]):
        here, known = states[h], norms[h]
        for e in range(begin, end):
            total += known[np.uint64(here[e])]
    return total


@njit(cache=True, nogil=True)
def _fires(length, growth, states, end, table, rows, norms, slots, rule):  # type: ignore[no-untyped-def]
    """Whether a group of steps fires after `length` episodes: `end` logged ones and those in the
    table."""
    verdict = settled(length, np.log1p(growth), growth, rule)
    if verdict != 0:
        return verdict == 1
    # written out, because array expressions take seconds to compile
    visits = np.zeros(norms.shape, np.int64)
    for h in range(norms.shape[0]):
        if table.size > 0:
            for x in range(norms.shape[1]):
                for next_x in range(table.shape[2]):
                    visits[h, x] += table[h, x, next_x]
        for e in range(end):
            visits[h, np.uint64(states[h, e])] += 1
    flat = rows.reshape(norms.size, rows.shape[2])
    ratio = log_ratio(visits.reshape(-1), flat, norms.reshape(-1), slots.reshape(-1))
    return fires(length, ratio, rule)


@njit(cache=True, nogil=True)
def first_firing_counts(  # type: ignore[no-untyped-def]
    lo, hi, sums, length, offset, n, log, table, marks, rule, when, steps
):
    """Find the first of the n episodes logged from `offset` on at which some agent fires.

    `length` episodes of the round precede them; their sums[agent, group] = Σ‖y‖² advance past them,
    unless some agent fires. when[i] is that agent's first firing episode (1 … n) if no agent before
    it in the range fired earlier, else 0; steps[i] is the last step of the lowest group that fires
    there.
    marks: (rows, norms, slots) of the greedy actions, see `values.TabularValues`.
    """
    rows, norms, slots = marks
    groups = sums.shape[1]
    size = norms.shape[0] // groups
    best = n
    none = np.empty((0, 0, 0), np.int64)
    for i in range(lo, hi):
        when[i] = 0
        for g in range(groups):
            # once this agent is known to fire at `best`, another step matters only before that
            limit = best if when[i] == 0 else best - 1
            if limit == 0:
                break
            begin, end = g * size, (g + 1) * size
            states, y, norm, slot = (
                log[i, begin:end],
                rows[begin:end],
                norms[begin:end],
                slots[begin:end],
            )
            cells = table[i, begin:end] if table.size > 0 else none
            growth = sums[i, g]
            more = _growth(states, offset, offset + limit, norm)
            if limit == n:
                sums[i, g] += more
            known = growth + more
            at = offset + limit
            if not _fires(length + limit, known, states, at, cells, y, norm, slot, rule):
                continue
            silent, loud = 0, limit
            while loud - silent > 1:
                middle = (silent + loud) // 2
                at = offset + middle
                more = _growth(states, offset + silent, at, norm)
                known = growth + more
                if _fires(length + middle, known, states, at, cells, y, norm, slot, rule):
                    loud = middle
                else:
                    silent = middle
                    growth += more
            best = loud
            when[i] = loud
            steps[i] = end


@njit(cache=True, nogil=True)
def _add(y, begin, end, steps, grown, bounds):  # type: ignore[no-untyped-def]
    """Add rows begin … end−1 of a range of steps. `grown` is I + Σ y yᵀ (lower triangle), `bounds`
    the two sums that bracket its log-determinant (`core.trigger`)."""
    dim = y.shape[2]
    for e in range(begin, end):
        for h in range(steps[0], steps[1]):
            row = y[e, h]
            norm2 = 0.0
            for i in range(dim):
                norm2 += row[i] * row[i]
                target = grown[i]
                for j in range(i + 1):
                    target[j] += row[i] * row[j]
            bounds[0] += norm2
            bounds[1] += np.log1p(norm2)


@njit(cache=True, nogil=True)
def absorb(y, grown, bounds):  # type: ignore[no-untyped-def]
    """Add all rows (m, n, H, d): the episodes explored last did not fire."""
    m, n, horizon = y.shape[:3]
    groups = grown.shape[1]
    size = horizon // groups
    for i in range(m):
        for g in range(groups):
            _add(y[i], np.int64(0), n, (g * size, (g + 1) * size), grown[i, g], bounds[i, g])


@njit(cache=True, nogil=True)
def _fires_at(y, begin, end, steps, grown, bounds, length, rule):  # type: ignore[no-untyped-def]
    """Whether a range of steps fires after `length` episodes; grown and bounds advance from begin
    to end."""
    _add(y, begin, end, steps, grown, bounds)
    verdict = settled(length, np.log1p(bounds[0]), bounds[1], rule)
    if verdict != 0:
        return verdict == 1
    return fires(length, logdet_in_place(grown.copy()), rule)


@njit(cache=True, nogil=True)
def first_firing_rows(y, grown, bounds, length, n, rule, when, steps):  # type: ignore[no-untyped-def]
    """The first of the n episodes at which some agent fires; see `first_firing_counts`."""
    m, _, horizon = y.shape[:3]
    groups = grown.shape[1]
    size = horizon // groups
    best = n
    for i in range(m):
        when[i] = 0
        for g in range(groups):
            group = (g * size, (g + 1) * size)
            # once an agent is known to fire at `best`, another of its steps matters only before it
            limit = best if when[i] == 0 else best - 1
            if limit == 0:
                break
            base, base_bounds = grown[i, g].copy(), bounds[i, g].copy()
            trial, trial_bounds = base.copy(), base_bounds.copy()
            elapsed = length + limit
            if not _fires_at(y[i], np.int64(0), limit, group, trial, trial_bounds, elapsed, rule):
                continue
            silent, loud = 0, limit
            while loud - silent > 1:
                middle = (silent + loud) // 2
                trial, trial_bounds = base.copy(), base_bounds.copy()
                elapsed = length + middle
                if _fires_at(y[i], silent, middle, group, trial, trial_bounds, elapsed, rule):
                    loud = middle
                else:
                    silent, base, base_bounds = middle, trial, trial_bounds
            best = loud
            when[i] = loud
            steps[i] = group[1]


class CountTrigger:
    """The trigger of a cohort in a finite state space, with a determinant for each of so many equal
    groups of steps: H of them, or one."""

    def __init__(self, n_agents: int, groups: int, workers: Workers) -> None:
        self._sums = np.zeros((n_agents, groups))
        self._workers = workers

    def begin(self) -> None:
        """Start a round."""
        self._sums[:] = 0.0

    def search(
        self,
        log: np.ndarray,
        table: np.ndarray,
        marks: tuple[np.ndarray, ...],
        before: int,
        offset: int,
        n: int,
        rule: Rule,
    ) -> Firing:
        """Search the n episodes that begin at `offset` of the log for the first one that fires.

        Args:
            log: Visited states (m, H+1, episodes).
            table: Counts (m, H, S, ·) of this round's episodes that are no longer logged.
            marks: `TabularValues.marks` of the greedy actions.
            before: Episodes of the round before those n.
            offset: Episodes in the log before those n.
            n: Number of episodes.
            rule: The trigger of the round.
        """
        when, steps = np.zeros((2, len(log)), np.int64)
        if n > 0:
            seen = (self._sums, before, offset, n, log, table, marks)
            found = (rule, when, steps)
            work = (log.shape[1] - 1) * len(log) * n
            self._workers.map(first_firing_counts, 0, len(log), *seen, *found, work=work)
        return _earliest(before, when, steps)


class RowTrigger:
    """The trigger of a cohort in a continuous state space; see `CountTrigger`."""

    def __init__(self, n_agents: int, horizon: int, dim: int, groups: int | None = None) -> None:
        groups = horizon if groups is None else groups
        self._shape = (n_agents, groups, dim, dim)
        self._grown = np.empty((0, 0, dim, dim))  # made where a round begins, it may be large
        self._bounds = np.empty((n_agents, groups, 2))
        self._rows = np.empty((n_agents, 0, horizon, dim))

    def begin(self) -> None:
        """Start a round."""
        if self._grown.shape != self._shape:
            self._grown = np.empty(self._shape)
        self._grown[:] = np.eye(self._shape[2])
        self._bounds[:] = 0.0
        self._rows = self._rows[:, :0]

    def extend(self, n: int) -> np.ndarray:
        """Rows (m, n, H, d) to fill for the next n episodes; those before them did not fire."""
        m, last, horizon, dim = self._rows.shape
        if last:
            absorb(self._rows, self._grown, self._bounds)
        self._rows = np.zeros((m, n, horizon, dim))
        return self._rows

    def search(self, before: int, n: int, rule: Rule) -> Firing:
        """Search the first n of the last rows; `before` episodes of the round precede them."""
        when, steps = np.zeros((2, len(self._rows)), np.int64)
        if n > 0:
            sums = (self._rows, self._grown, self._bounds)
            first_firing_rows(*sums, before, n, rule, when, steps)
        return _earliest(before, when, steps)


def _earliest(before: int, when: np.ndarray, steps: np.ndarray) -> Firing:
    """when[i] counts episodes after the first `before`; 0 means that agent i does not fire."""
    fired = when > 0
    if not fired.any():
        return 0, when[:0], steps[:0]
    first = int(when[fired].min())
    chosen = np.flatnonzero(when == first)
    return before + first, chosen, steps[chosen]
