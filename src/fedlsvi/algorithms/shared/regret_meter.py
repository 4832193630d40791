"""Exact regret where every agent may follow its own policy, and a new one in every episode.

A measuring instrument, like `protocol.evaluation`: it knows the environments and, because
randomness is keyed, every initial state. A policy is evaluated again only when it has changed. The
meter counts who was recorded when, so that a regret curve has every agent in every episode once.

Where values are not known, what the agents earned takes the place of what they lost.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
from numba import njit

from fedlsvi.algorithms.shared.contract import is_integer_table, not_a_policy
from fedlsvi.checks import plural
from fedlsvi.core.alias import pick
from fedlsvi.core.random import ENVIRONMENT, fill_uniforms, uniforms
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.errors import InvalidInput
from fedlsvi.experience.values import BlockValues
from fedlsvi.protocol.plan import Plan

UNKNOWN = np.iinfo(np.int32).min
"""No action; unlike −1, not even a faulty policy contains it."""


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
def _add_regret(seed, agents, first, law, P, r, best, known, gap, policy, out):  # type: ignore[no-untyped-def]
    """out[e] += Σ_m gap[x₁(m, first + e)] for these agents, all of whom follow `policy`. Returns
    False where the policy has an action that does not exist."""
    same, n_actions = True, r.shape[2]
    for h in range(policy.shape[0]):
        for x in range(policy.shape[1]):
            if known[h, x] != policy[h, x]:
                if not 0 <= policy[h, x] < n_actions:
                    known[:] = UNKNOWN
                    return False
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
        fill_uniforms(seed, np.int64(ENVIRONMENT), agent, first, out.size, u)
        for e in range(out.size):
            out[e] += gap[pick(start, prob, keep, alias, row, u[0, e])]
    return True


@njit(cache=True, nogil=True)
def _enter(agents, first, out, until, gaps, recorded):  # type: ignore[no-untyped-def]
    """Enter regret from episode `first` on; returns an agent already recorded there, or −1."""
    for m in agents:
        if until[m] >= first:
            return m
    for m in agents:
        until[m] = first + out.size - 1
    for e in range(out.size):
        gaps[first - 1 + e] += out[e]
        recorded[first - 1 + e] += agents.size
    return -1


@njit(cache=True, nogil=True)
def _enter_at(when, out, gaps, recorded):  # type: ignore[no-untyped-def]
    """Enter regret of one agent in episodes `when` (counted from 0) of the run."""
    for e in range(when.size):
        gaps[when[e]] += out[e]
        recorded[when[e]] += 1


@njit(cache=True, nogil=True)
def _incomplete(recorded, first, last, n):  # type: ignore[no-untyped-def]
    """The first of these episodes in which other than n agents were recorded; 0 if none."""
    for t in range(first, last + 1):
        if recorded[t - 1] != n:
            return t
    return 0


class RegretMeter:
    """Group regret of every episode, and how many agents it includes so far.

    Attributes:
        gaps: Σ_m V*₁ − V^π₁ at the initial states of each episode, (T,); Σ_m return, where values
            are not known.
        recorded: How many agents each episode includes, (T,).
        until: The last episode recorded of each agent, (M,), so that none is recorded twice; a
            resumed run starts it at 0.
        seconds: Time spent measuring.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.seconds = plan, 0.0
        self.gaps = np.zeros(plan.parameters.episodes)
        self.recorded = np.zeros(plan.parameters.episodes, np.int64)
        self.until = np.zeros(plan.parameters.n_agents, np.int64)

    def group(self, agents: Any) -> GroupMeter:
        """A meter for agents that always follow one policy together; `agents` is a list."""
        who, M = np.asarray(agents, np.int64), len(self.until)
        if who.ndim != 1 or np.unique(who).size != who.size or (who < 0).any() or (who >= M).any():
            raise InvalidInput(
                f"regret_meter.group({agents!r}): give a list of distinct agents from 0 … {M - 1}",
                code="bad-agents",
            )
        return GroupMeter(self, who)

    def check_complete(self, name: str, first: int, last: int) -> None:
        """Refuse episodes in which some agent of algorithm `name` was not recorded."""
        t = _incomplete(self.recorded, first, last, len(self.until))
        if t > 0:
            raise InvalidInput(
                f"{name}: {self.recorded[t - 1]} of {plural(len(self.until), 'agent')} were "
                f"recorded in episode {t}: advance() must call record() of a group meter for "
                "every agent and every episode it plays",
                code="agents-not-recorded",
            )

    def state(self, t: int) -> dict[str, np.ndarray]:
        """What agents that ran ahead recorded beyond episode t."""
        ahead = {"ahead": self.gaps[t:], "recorded": self.recorded[t:]}
        return {key: np.trim_zeros(array, "b") for key, array in ahead.items()}

    def restore(self, t: int, arrays: dict[str, np.ndarray]) -> None:
        """Put back what `state` gave at t."""
        for array, key in ((self.gaps, "ahead"), (self.recorded, "recorded")):
            array[t : t + len(arrays[key])] = arrays[key]


class GroupMeter:
    """Measures the common policy of some agents."""

    def __init__(self, whole: RegretMeter, agents: np.ndarray) -> None:
        self.whole, self._agents = whole, agents
        envs = whole.plan.envs
        known = agents if whole.plan.knows_values else agents[:0]
        distinct = {id(envs[m]): envs[m] for m in known}
        self._groups = [
            (env, np.array([m for m in agents if envs[m] is env], np.int64), _evaluation(env))
            for env in distinct.values()
        ]

    def record(self, first: int, n: int, policy: Any) -> None:
        """Record that the agents follow one policy in n episodes.

        Args:
            first: The first of the episodes, counted from 1.
            n: How many there are.
            policy: An integer table (H, S), or the frozen values of a continuous state space.
        """
        whole = self.whole
        if not 1 <= first <= first - 1 + n <= len(whole.gaps):
            raise InvalidInput(
                f"record(first={first}, n={n}): episodes are 1 … {len(whole.gaps)}, and the first "
                "one that advance() plays is self.t + 1",
                code="no-such-episodes",
            )
        out = self.measure(first, n, policy)
        twice = _enter(self._agents, first, out, whole.until, whole.gaps, whole.recorded)
        if twice >= 0:
            raise InvalidInput(
                f"record(first={first}, n={n}): agent {twice} was already recorded up to episode "
                f"{whole.until[twice]}: record each agent once per episode, in order",
                code="recorded-twice",
            )

    def record_at(self, first: int, n: int, policy: Any, when: np.ndarray) -> None:
        """Record a single agent that plays at its own pace: its n episodes from `first` on fall
        into episodes `when` (n,) of the run, counted from 0."""
        _enter_at(when, self.measure(first, n, policy), self.whole.gaps, self.whole.recorded)

    def measure(self, first: int, n: int, policy: Any) -> np.ndarray:
        """The regret of n episodes, summed over the agents, (n,); what they earned there, where
        values are not known."""
        if not self.whole.plan.knows_values:
            earned: np.ndarray = self.whole.plan.returns.take(self._agents, first, n).sum(axis=0)
            return earned
        began = perf_counter()
        out = np.zeros(n)
        seed = self.whole.plan.seed
        for env, agents, slate in self._groups:
            if slate:
                law, shape = env.initial_tables, slate[3].shape
                if not is_integer_table(policy, shape) or not _add_regret(
                    seed, agents, first, law, *slate, policy, out
                ):
                    raise not_a_policy(policy, env)
            else:
                assert isinstance(env, ContinuousMDP)
                out += _continuous(env, seed, agents, first, n, policy)
        self.whole.seconds += perf_counter() - began
        return out


def _evaluation(env: Any) -> tuple[np.ndarray, ...]:
    """(P, r, V*₁) of an environment, with the policy evaluated last and its gap."""
    if not isinstance(env, FiniteMDP):
        return ()
    best = np.ascontiguousarray(env.optimal_values()[0])
    known = np.full((env.horizon, env.n_states), UNKNOWN, np.int32)
    return env.P, env.r, best, known, np.empty(env.n_states)


def _continuous(
    env: ContinuousMDP, seed: int, agents: np.ndarray, first: int, n: int, policy: BlockValues
) -> np.ndarray:
    u = uniforms(seed, agents, first, n, env.draws_at_reset)
    x = env.reset(u.reshape(len(agents) * n, -1), np.repeat(agents, n))
    gap = env.optimal_values_at(x) - env.policy_values_at(policy.act_quickly, x)
    total: np.ndarray = gap.reshape(len(agents), n).sum(axis=0)
    return total
