"""Σy² of numbered states, for a bonus that knows the noise (`core.value`).

With y = r + V_{h+1}(x'), Σy² = Σr² + 2Σr·V(x') + ΣV(x')², so what is kept of a step is Σr², the
number n of its transitions, Σr e_{x'} and Σe_{x'}: no episode is read again. Behind the d entries
of b_h travel Σy² and n; with one trip per synchronisation u_h has Σr² and n behind it, and N_h two
more rows, Σr e_{x'} and Σe_{x'}.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from fedlsvi.experience.rooms import Increment

EXTRA = 2
"""Numbers behind b_h, and rows behind N_h."""


class Moments(NamedTuple):
    """Of one group of steps, for each of m agents."""

    totals: np.ndarray
    """(m, 2): Σr² and n."""
    paid: np.ndarray
    """(m, S): Σr e_{x'}."""
    arrivals: np.ndarray
    """(m, S): Σe_{x'}."""

    @classmethod
    def empty(cls, *shape: int) -> Moments:
        """Of nothing, with axes of groups before m; the last of the shape is S."""
        return cls(np.zeros((*shape[:-1], EXTRA)), np.zeros(shape), np.zeros(shape))

    def behind(self, b: np.ndarray, values: np.ndarray) -> np.ndarray:
        """(m, d + 2): b_h, and Σy² and n behind it, with these V_{h+1} (S,)."""
        totals = self.totals.copy()
        add_squares(self.paid, self.arrivals, values, totals)
        return np.concatenate([b, totals], axis=1)

    def behind_increment(self, increment: Increment) -> Increment:
        """What leaves of a round, with the two entries behind u and rows behind N."""
        u = np.concatenate([increment.u, self.totals], axis=1)
        if not increment.columns:  # no step follows
            return increment._replace(u=u)
        dim = increment.u.shape[1]
        rows = np.concatenate([self.paid, self.arrivals], axis=1)
        agents, places = np.nonzero(rows)
        whose = np.concatenate([increment.agents, agents])
        order = np.argsort(whose, kind="stable")
        return increment._replace(
            u=u,
            agents=whose[order],
            places=np.concatenate([increment.places, dim * increment.columns + places])[order],
            values=np.concatenate([increment.values, rows[agents, places]])[order],
        )


@njit(cache=True, nogil=True)
def add_squares(paid, arrivals, values, totals):  # type: ignore[no-untyped-def]
    """2Σr·V(x') + ΣV(x')² of each agent, in an order that no other agent changes."""
    for i in range(len(totals)):
        square = 0.0
        for x in range(len(values)):
            square += (2.0 * paid[i, x] + arrivals[i, x] * values[x]) * values[x]
        totals[i, 0] += square


@njit(cache=True, nogil=True)
def count_moments(  # type: ignore[no-untyped-def]
    lo, hi, n, log, policy, reward, moving, sums, paid, arrivals
):
    """Add the first n logged episodes of agents lo … hi−1, (H, m, …)."""
    for i in range(lo, hi):
        for h in range(policy.shape[0]):
            pay = reward[h if reward.shape[0] > 1 else 0]
            for e in range(n):
                x, to = np.int64(log[i, h, e]), np.int64(log[i, h + 1, e])
                r = pay[x, policy[h, x], to if moving else 0]
                sums[h, i, 0] += r * r
                sums[h, i, 1] += 1.0
                paid[h, i, to] += r
                arrivals[h, i, to] += 1.0


@njit(cache=True, nogil=True)
def cell_moments(lo, hi, counts, first, to, reward, moving, sums, paid, arrivals):  # type: ignore[no-untyped-def]
    """Add counts (m, cells) of one group of steps; cells as in `cell_counts`, reward (S, A, ·)."""
    n_states, n_actions = reward.shape[:2]
    for i in range(lo, hi):
        for x in range(n_states):
            for a in range(n_actions):
                for c in range(first[x * n_actions + a], first[x * n_actions + a + 1]):
                    n, y = counts[i, c], to[c]
                    if n > 0:
                        r = reward[x, a, y if moving else 0]
                        sums[i, 0] += n * r * r
                        sums[i, 1] += n
                        paid[i, y] += n * r
                        arrivals[i, y] += n
