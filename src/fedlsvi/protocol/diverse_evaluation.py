"""Exact regret where every agent and episode has a policy of its own (`diversity=`).

An episode's policy is followed from its first state on, and evaluated on the states that it can
reach: one trajectory where the world leaves nothing to chance.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numba import njit

from fedlsvi.core.perturbation import DIVERSITY, perturbed_action
from fedlsvi.core.random import fill_uniforms, uniforms
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.experience.diverse_values import DiverseValues


class DiverseEvaluator:
    """`FiniteEvaluator` for policies that differ between agents and episodes."""

    def __init__(self, envs: Mapping[int, FiniteMDP], seed: int, values: DiverseValues) -> None:
        from fedlsvi.envs.sparse_planning import entries

        self.seed, self.values, self._envs = seed, values, envs
        self._cells = {id(env): entries(env.P) for env in envs.values()}

    def begin(self) -> None:
        """A round begins: the model is now frozen."""
        self._model = self.values.frozen()

    def regret(self, first: int, n: int) -> np.ndarray:
        """Group regret of each of the n episodes from `first` on."""
        every = np.array(list(self._envs))
        return self.regret_of(every, np.full(len(every), first), n)

    def regret_of(self, agents: np.ndarray, firsts: np.ndarray, n: int) -> np.ndarray:
        """The regret of these agents together, each in n episodes from its own first one on."""
        out, model = np.zeros(n), self._model
        for m, first in zip(agents.tolist(), firsts.tolist(), strict=True):
            env = self._envs[m]
            draws = uniforms(self.seed, [m], first, n, 1)[0, :, 0]
            starts = np.array([env.first_state(m, u) for u in draws])
            world = (*self._cells[id(env)], env.r, len(env.P) == 1)
            about = (model.tables, model.index, model.bonus_sizes)
            out += env.optimal_values()[0][starts]
            out -= values_of(self.seed, m, first, starts, world, about)
        return out


@njit(cache=True, nogil=True)
def values_of(seed, agent, first, starts, world, model):  # type: ignore[no-untyped-def]
    """V₁ (n,) of the agent's policies of episodes `first`, first + 1, … at their first states.

    world: cells (start, to, p) of P as in `envs.sparse_planning`, mean rewards (1 or H, S, A), and
    whether P is the same at all steps. model: tables, index and (β_h, σβ_h) of `DiverseValues`.
    """
    start, to, p, rewards, stationary = world
    tables, index, betas = model
    means, norms, rows = tables
    horizon, n_states, n_actions = means.shape
    found, draws = np.zeros(starts.size), np.empty((rows.shape[2], 1))
    reached = np.empty((horizon + 1, n_states), np.int64)  # states of a step, in any order
    sizes = np.zeros(horizon + 1, np.int64)
    marked = np.full((horizon + 1, n_states), -1)  # the last episode that came by
    actions, values = np.empty((horizon, n_states), np.int64), np.zeros((horizon + 1, n_states))
    for e in range(starts.size):
        fill_uniforms(seed, np.int64(DIVERSITY), agent, first + e, np.int64(1), draws)
        zeta, key = 2.0 * draws[:, 0] - 1.0, (seed, agent, first + e)
        reached[0, 0], sizes[0] = starts[e], 1
        for h in range(horizon):
            at, base = (means[h], norms[h], rows[h]), 0 if stationary else h * n_states
            sizes[h + 1] = 0
            for k in range(sizes[h]):
                x = reached[h, k]
                a = perturbed_action(x, at, index, betas[h], zeta, key)
                actions[h, x] = a
                row = (base + x) * n_actions + a
                for c in range(start[row], start[row + 1]):
                    if marked[h + 1, to[c]] != e:
                        marked[h + 1, to[c]] = e
                        reached[h + 1, sizes[h + 1]] = to[c]
                        sizes[h + 1] += 1
        for h in range(horizon - 1, -1, -1):
            pay, base = rewards[h if rewards.shape[0] > 1 else 0], 0 if stationary else h * n_states
            for k in range(sizes[h]):
                x = reached[h, k]
                row = (base + x) * n_actions + actions[h, x]
                total = pay[x, actions[h, x]]
                for c in range(start[row], start[row + 1]):
                    total += p[c] * values[h + 1, to[c]]
                values[h, x] = total
        found[e] = values[0, starts[e]]
    return found
