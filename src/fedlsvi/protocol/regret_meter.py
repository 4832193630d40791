"""Exact regret Σ_m V*₁(x₁) − V^π₁(x₁) of agents that follow one policy.

The meter is a measuring instrument of the simulation, not a party of the federation: it knows the
environments, and because randomness is keyed it knows every initial state without being told. It
has a gauge for each environment. A policy is a table (H, S) or the values of a learner, which may
give agents under another mask another table, and every agent and episode its own (`diversity=`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numba import njit

from fedlsvi.core.alias import pick
from fedlsvi.core.perturbation import DIVERSITY, perturbed_action
from fedlsvi.core.random import ENVIRONMENT, fill_uniforms, uniforms
from fedlsvi.envs.allowed import same_mask
from fedlsvi.envs.base import Environment
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.policy_table import is_integer_table, not_a_policy
from fedlsvi.experience.values import BlockValues, TabularValues

if TYPE_CHECKING:
    from fedlsvi.experience.values import DiverseValues
    from fedlsvi.protocol.plan import Plan

UNKNOWN = np.iinfo(np.int32).min
"""No action; unlike −1, not even a faulty policy contains it."""


def meter_of(
    plan: Plan, agents: Sequence[int] | None = None, compiled: bool = False
) -> RegretMeter | None:
    """Measures a policy of these agents, or of all that play; None where V* is not known."""
    if not plan.knows_values:
        return None
    numbers, p = plan.players if agents is None else agents, plan.parameters
    apart = p.own_features > 0
    return RegretMeter(plan.envs, plan.seed, p.diversity > 0.0, compiled, numbers, apart)


class Gauge(Protocol):
    """Measures a policy in one environment."""

    def follow(self, policy: Any) -> None:
        """From now on this policy is measured, as it is now."""
        ...

    def add(self, agents: np.ndarray, firsts: np.ndarray, out: np.ndarray) -> None:
        """out[e] += Σ_m V*₁ − V^π₁ at the initial state of agent m in episode first + e, where the
        agents have one first episode together, or each its own."""
        ...


class RegretMeter:
    """The regret of agents that follow one policy together.

    Args:
        envs: The environment of each agent.
        seed: Of the run.
        diverse: Whether the policy is a `DiverseValues`.
        compiled: Whether policies are tables that change in most episodes; a table that stays for
            a round is evaluated as `FiniteMDP.policy_values` does.
        agents: Numbers of those that play; None is all.
        apart: Whether each agent has a policy of its own.
    """

    def __init__(
        self,
        envs: Mapping[int, Environment] | Sequence[Environment],
        seed: int,
        diverse: bool,
        compiled: bool,
        agents: Sequence[int] | None = None,
        apart: bool = False,
    ) -> None:
        numbers = np.array(range(len(envs)) if agents is None else agents, np.int64)
        keys = [m if apart else id(envs[m]) for m in numbers.tolist()]
        worlds = {key: envs[m] for key, m in zip(keys, numbers.tolist(), strict=True)}
        self._gauges = [_gauge(env, seed, diverse, compiled) for env in worlds.values()]
        places = {known: i for i, known in enumerate(worlds)}
        # which gauge each agent has
        self._of = np.zeros(int(numbers.max(initial=0)) + 1, np.int32)
        if len(worlds) > 1:
            self._of[numbers] = [places[key] for key in keys]
        self._groups = [
            (gauge, numbers[self._of[numbers] == i]) for i, gauge in enumerate(self._gauges)
        ]

    def follow(self, *policies: Any) -> None:
        """From now on the agents follow this policy, as it is now; or each its own."""
        for gauge, agents in self._groups:
            gauge.follow(policies[int(agents[0]) if len(policies) > 1 else 0])

    def regret(self, first: int, n: int) -> np.ndarray:
        """(n,) what all agents lose together in each of the n episodes from `first` on."""
        out = np.zeros(n)
        for gauge, agents in self._groups:
            gauge.add(agents, np.array([first]), out)
        return out

    def regret_of(self, agents: np.ndarray, firsts: np.ndarray, n: int) -> np.ndarray:
        """(n,) the same of these agents, each in n episodes from its own first one on."""
        out, gauges = np.zeros(n), self._of[agents]
        cuts = np.flatnonzero(np.diff(gauges, prepend=-1, append=-1))
        for lo, hi in pairwise(cuts.tolist()):
            self._gauges[gauges[lo]].add(agents[lo:hi], firsts[lo:hi], out)
        return out


def _gauge(env: Environment, seed: int, diverse: bool, compiled: bool) -> Gauge:
    """What measures policies in this environment."""
    if not isinstance(env, FiniteMDP):
        assert isinstance(env, ContinuousMDP)
        return ContinuousGauge(env, seed)
    return DiverseGauge(env, seed) if diverse else TableGauge(env, seed, compiled)


class TableGauge:
    """Backward induction on the true model, once for each policy."""

    def __init__(self, env: FiniteMDP, seed: int, compiled: bool) -> None:
        self._env, self._seed, self._law = env, seed, env.initial_tables
        self._best = np.ascontiguousarray(env.optimal_values()[0])
        self._gap = np.empty(env.n_states)
        self._known = np.full((env.horizon, env.n_states), UNKNOWN, np.int32)
        self._compiled = compiled
        self._points = len(self._law.keep) == len(self._law.start) - 1  # nothing to draw

    def follow(self, policy: Any) -> None:
        env = self._env
        if not self._compiled:
            self._gap = self._best - env.policy_values(self._table(policy))[0]
            return
        about = (env.P, env.r, self._best, self._known, self._gap)
        if not is_integer_table(policy, self._known.shape) or not _renew_gap(*about, policy):
            raise not_a_policy(policy, env)

    def _table(self, policy: TabularValues | np.ndarray) -> np.ndarray:
        """The actions of agents in this environment, whose mask may be their own."""
        if not isinstance(policy, TabularValues):
            return policy
        allowed = self._env.allowed
        if allowed is None or same_mask(allowed, policy.allowed):
            return policy.policy
        return policy.policy_under(allowed)

    def add(self, agents: np.ndarray, firsts: np.ndarray, out: np.ndarray) -> None:
        if self._points and not self._compiled and len(firsts) == 1:
            out += self._gap[self._law.keep[agents % len(self._law.keep)]].sum()
        else:
            _add_starts(self._seed, agents, firsts, self._law, self._gap, out)


class ContinuousGauge:
    """V* and V^π of the environment itself, at the initial states."""

    def __init__(self, env: ContinuousMDP, seed: int) -> None:
        self._env, self._seed = env, seed

    def follow(self, policy: BlockValues) -> None:
        allowed = self._env.allowed
        self._policy = policy.frozen() if allowed is None else policy.under(allowed)

    def add(self, agents: np.ndarray, firsts: np.ndarray, out: np.ndarray) -> None:
        if len(firsts) > 1:
            _one_by_one(self, agents, firsts, out)
            return
        env, n, first = self._env, len(out), int(firsts[0])
        u = uniforms(self._seed, agents, first, n, env.draws_at_reset)
        x = env.reset(u.reshape(len(agents) * n, -1), np.repeat(agents, n))
        gap = env.optimal_values_at(x) - env.policy_values_at(self._policy.act_quickly, x)
        out += gap.reshape(len(agents), n).sum(axis=0)


class DiverseGauge:
    """Each episode's own policy, on the states that it can reach: one trajectory where the world
    leaves nothing to chance."""

    def __init__(self, env: FiniteMDP, seed: int) -> None:
        from fedlsvi.envs.sparse_planning import entries

        self._env, self._seed = env, seed
        self._world = (*entries(env.P), env.r, len(env.P) == 1)

    def follow(self, policy: DiverseValues) -> None:
        model = policy.frozen()
        tables = model.tables_under(self._env.allowed)
        self._model = (tables, model.index, model.bonus_sizes)

    def add(self, agents: np.ndarray, firsts: np.ndarray, out: np.ndarray) -> None:
        if len(firsts) > 1:
            _one_by_one(self, agents, firsts, out)
            return
        best, first = self._env.optimal_values()[0], int(firsts[0])
        for m in agents.tolist():
            draws = uniforms(self._seed, [m], first, len(out), 1)[0, :, 0]
            starts = np.array([self._env.first_state(m, u) for u in draws])
            out += best[starts]
            out -= values_of(self._seed, m, first, starts, self._world, self._model)


def _one_by_one(gauge: Gauge, agents: np.ndarray, firsts: np.ndarray, out: np.ndarray) -> None:
    """Agents that are in different episodes, each by itself."""
    for i in range(len(agents)):
        gauge.add(agents[i : i + 1], firsts[i : i + 1], out)


@njit(cache=True, nogil=True)
def _renew_gap(P, r, best, known, gap, policy):  # type: ignore[no-untyped-def]
    """gap = V*₁ − V^π₁ by backward induction, unless the policy is the `known` one. Returns False
    where it has an action that does not exist."""
    horizon, n_states = policy.shape
    same = True
    for h in range(horizon):
        for x in range(n_states):
            if known[h, x] != policy[h, x]:
                if not 0 <= policy[h, x] < r.shape[2]:
                    known[:] = UNKNOWN
                    return False
                same = False
                known[h, x] = policy[h, x]
    if same:
        return True
    ahead, now = np.zeros(n_states), np.empty(n_states)
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
    return True


@njit(cache=True, nogil=True)
def _add_starts(seed, agents, firsts, law, gap, out):  # type: ignore[no-untyped-def]
    """out[e] += Σ_m gap[x₁ of agent m in episode first + e]; one first for all, or each its own."""
    start, prob, keep, alias = law
    laws = start.size - 1
    u = np.empty((1, out.size))
    for i in range(agents.size):
        agent, first = agents[i], firsts[i if firsts.size > 1 else 0]
        row = agent % laws
        if start[row + 1] - start[row] == 1:  # a point: nothing to draw
            out += gap[keep[start[row]]]
            continue
        fill_uniforms(seed, np.int64(ENVIRONMENT), agent, first, out.size, u)
        for e in range(out.size):
            out[e] += gap[pick(start, prob, keep, alias, row, u[0, e])]


@njit(cache=True, nogil=True)
def values_of(seed, agent, first, starts, world, model):  # type: ignore[no-untyped-def]
    """V₁ (n,) of the agent's policies of episodes `first`, first + 1, … at their first states.

    world: cells (start, to, p) of P as in `envs.sparse_planning`, mean rewards (1 or H, S, A), and
    whether P is the same at all steps. model: tables, index and bonuses of `DiverseValues`.
    """
    start, to, p, rewards, stationary = world
    tables, index, bonuses = model
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
                a = perturbed_action(x, at, index, bonuses[h], zeta, key)
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
