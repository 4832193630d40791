"""Exact regret where agents follow policies of their own, possibly another one every episode.

A measuring instrument, like `fedlsvi.evaluation`: it knows the environments and, randomness being
keyed, every initial state. A policy is evaluated again only when it has changed.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
from numba import njit

from fedlsvi.core.alias import pick
from fedlsvi.core.random import ENVIRONMENT, fill_uniforms, uniforms
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.plan import Plan
from fedlsvi.values import BlockValues


@njit(cache=True, nogil=True)
def _gap(P, r, best, policy, gap):  # type: ignore[no-untyped-def]
    """gap = V*₁ − V^π₁ by backward induction."""
    horizon, n_states = policy.shape
    ahead = np.zeros(n_states)
    now = np.empty(n_states)
    for h in range(horizon - 1, -1, -1):
        law = P[h if P.shape[0] > 1 else 0]
        pay = r[h if r.shape[0] > 1 else 0]
        for x in range(n_states):
            a = policy[h, x]
            total = pay[x, a]
            for y in range(n_states):
                total += law[x, a, y] * ahead[y]
            now[x] = total
        ahead, now = now, ahead
    for x in range(n_states):
        gap[x] = best[x] - ahead[x]


@njit(cache=True, nogil=True)
def _hold(seed, agents, first, law, P, r, best, known, gap, policy, out):  # type: ignore[no-untyped-def]
    """out[e] += Σ_m gap[x₁(m, first + e)] for these agents, all of whom follow `policy`."""
    same = True
    for h in range(policy.shape[0]):
        for x in range(policy.shape[1]):
            if known[h, x] != policy[h, x]:
                same = False
                known[h, x] = policy[h, x]
    if not same:
        _gap(P, r, best, policy, gap)
    start, prob, keep, alias = law
    laws = start.size - 1
    u = np.empty((1, out.size))
    for agent in agents:
        row = agent % laws
        if start[row + 1] - start[row] == 1:  # a point: nothing to draw
            out += gap[keep[start[row]]]
            continue
        fill_uniforms(seed, ENVIRONMENT, agent, first, out.size, u)
        for e in range(out.size):
            out[e] += gap[pick(start, prob, keep, alias, row, u[0, e])]


class Ruler:
    """Group regret of every episode, (T,): what was measured so far."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.seconds = plan, 0.0
        self.gaps = np.zeros(plan.parameters.episodes)

    def seat(self, agents: Any) -> Seat:
        """A place for agents that always follow one policy together."""
        return Seat(self, np.asarray(agents, np.int64))


class Seat:
    """Measures the common policy of some agents."""

    def __init__(self, ruler: Ruler, agents: np.ndarray) -> None:
        self.ruler = ruler
        envs = ruler.plan.envs
        distinct = {id(envs[m]): envs[m] for m in agents}
        self._groups = [
            (env, np.array([m for m in agents if envs[m] is env], np.int64), _slate(env))
            for env in distinct.values()
        ]

    def hold(self, first: int, n: int, policy: Any) -> None:
        """The agents follow `policy` in episodes first … first + n − 1."""
        self.ruler.gaps[first - 1 : first - 1 + n] += self.measure(first, n, policy)

    def measure(self, first: int, n: int, policy: Any) -> np.ndarray:
        """The regret of these episodes, summed over the agents, (n,)."""
        began = perf_counter()
        out = np.zeros(n)
        seed = self.ruler.plan.seed
        for env, agents, slate in self._groups:
            if isinstance(env, FiniteMDP):
                _hold(seed, agents, first, env.initial_tables, *slate, policy, out)
            else:
                assert isinstance(env, ContinuousMDP)
                out += _continuous(env, seed, agents, first, n, policy)
        self.ruler.seconds += perf_counter() - began
        return out


def _slate(env: Any) -> tuple[np.ndarray, ...]:
    """(P, r, V*₁) of an environment, with the policy known last and its gap."""
    if not isinstance(env, FiniteMDP):
        return ()
    best = np.ascontiguousarray(env.optimal_values()[0])
    known = np.full((env.horizon, env.n_states), -1, np.int32)
    return env.P, env.r, best, known, np.empty(env.n_states)


def _continuous(
    env: ContinuousMDP, seed: int, agents: np.ndarray, first: int, n: int, policy: BlockValues
) -> np.ndarray:
    u = uniforms(seed, agents, first, n, env.draws_at_reset)
    x = env.reset(u.reshape(len(agents) * n, -1), np.repeat(agents, n))
    gap = env.optimal_values_at(x) - env.policy_values_at(policy.act_quickly, x)
    total: np.ndarray = gap.reshape(len(agents), n).sum(axis=0)
    return total
