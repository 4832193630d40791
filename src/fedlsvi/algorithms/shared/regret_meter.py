"""Exact regret where agents follow policies of their own, possibly another one every episode.

A measuring instrument, like `protocol.evaluation`: it knows the environments and, randomness being
keyed, every initial state. A policy is evaluated again only when it has changed. It counts who was
measured when, so that a curve of regret has every agent in every episode, once.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
from numba import njit

from fedlsvi.algorithms.shared.contract import fits, unfit
from fedlsvi.core.alias import pick
from fedlsvi.core.random import ENVIRONMENT, fill_uniforms, uniforms
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.errors import InvalidInput, WrongVersion
from fedlsvi.experience.values import BlockValues
from fedlsvi.protocol.plan import Plan

UNKNOWN = np.iinfo(np.int32).min
"""No action: not even a mistaken policy has it, as it may have −1."""


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
    """out[e] += Σ_m gap[x₁(m, first + e)] for these agents, all of whom follow `policy`; False
    where it names an action that there is not."""
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
        fill_uniforms(seed, ENVIRONMENT, agent, first, out.size, u)
        for e in range(out.size):
            out[e] += gap[pick(start, prob, keep, alias, row, u[0, e])]
    return True


@njit(cache=True, nogil=True)
def _enter(agents, first, out, until, gaps, held):  # type: ignore[no-untyped-def]
    """Regret of these agents from `first` on; → one that was held there before, or −1."""
    for m in agents:
        if until[m] >= first:
            return m
    for m in agents:
        until[m] = first + out.size - 1
    for e in range(out.size):
        gaps[first - 1 + e] += out[e]
        held[first - 1 + e] += agents.size
    return -1


@njit(cache=True, nogil=True)
def _spread(when, out, gaps, held):  # type: ignore[no-untyped-def]
    """Regret of one agent that belongs to episodes `when` (from 0) of the run."""
    for e in range(when.size):
        gaps[when[e]] += out[e]
        held[when[e]] += 1


@njit(cache=True, nogil=True)
def _other(held, first, last, n):  # type: ignore[no-untyped-def]
    """The first of these episodes in which not n agents were held; 0 if there is none."""
    for t in range(first, last + 1):
        if held[t - 1] != n:
            return t
    return 0


class Ruler:
    """Group regret of every episode, (T,), and how many agents it is of: what was measured so far.

    `until` is the last episode in which each agent was held, so that none is held twice; a resumed
    run begins it anew.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.seconds = plan, 0.0
        self.gaps = np.zeros(plan.parameters.episodes)
        self.held = np.zeros(plan.parameters.episodes, np.int64)
        self.until = np.zeros(plan.parameters.n_agents, np.int64)

    def seat(self, agents: Any) -> Seat:
        """A place for agents that always follow one policy together."""
        who, M = np.asarray(agents, np.int64), len(self.until)
        if who.ndim != 1 or np.unique(who).size != who.size or (who < 0).any() or (who >= M).any():
            raise InvalidInput(
                f"ruler.seat was given {agents!r}: it takes a list of agents, 0 … {M - 1}, each "
                "once"
            )
        return Seat(self, who)

    def refuse_gaps(self, name: str, first: int, last: int) -> None:
        """Some agent was not measured in some episode of a stretch."""
        t = _other(self.held, first, last, len(self.until))
        if t > 0:
            raise InvalidInput(
                f"{name}: {self.held[t - 1]} of {len(self.until)} agents were held in episode {t}: "
                "advance() must call seat.hold for every agent and every episode that it plays"
            )

    def state(self, t: int) -> dict[str, np.ndarray]:
        """What was measured beyond episode t, by agents that ran ahead."""
        ahead = {"ahead": self.gaps[t:], "held": self.held[t:]}
        return {key: np.trim_zeros(array, "b") for key, array in ahead.items()}

    def restore(self, t: int, arrays: dict[str, np.ndarray]) -> None:
        """Put back what `state` gave at t."""
        if "held" not in arrays:
            raise WrongVersion(
                "the checkpoint of this run is of an earlier fedlsvi: finish the run with that, or "
                "begin it anew"
            )
        for array, key in ((self.gaps, "ahead"), (self.held, "held")):
            array[t : t + len(arrays[key])] = arrays[key]


class Seat:
    """Measures the common policy of some agents."""

    def __init__(self, ruler: Ruler, agents: np.ndarray) -> None:
        self.ruler, self._agents = ruler, agents
        envs = ruler.plan.envs
        distinct = {id(envs[m]): envs[m] for m in agents}
        self._groups = [
            (env, np.array([m for m in agents if envs[m] is env], np.int64), _slate(env))
            for env in distinct.values()
        ]

    def hold(self, first: int, n: int, policy: Any) -> None:
        """The agents follow `policy` in episodes first … first + n − 1."""
        ruler = self.ruler
        if not 1 <= first <= first - 1 + n <= len(ruler.gaps):
            raise InvalidInput(
                f"seat.hold(first={first}, n={n}): episodes are 1 … {len(ruler.gaps)}, and the "
                "first one that advance() plays is self.t + 1"
            )
        out = self.measure(first, n, policy)
        twice = _enter(self._agents, first, out, ruler.until, ruler.gaps, ruler.held)
        if twice >= 0:
            raise InvalidInput(
                f"seat.hold(first={first}, n={n}): agent {twice} was held up to episode "
                f"{ruler.until[twice]} before: hold each agent once in each episode, in their order"
            )

    def spread(self, first: int, n: int, policy: Any, when: np.ndarray) -> None:
        """The only agent here plays at its own pace: its own n episodes from `first` on belong to
        episodes `when`, counted from 0, of the run."""
        _spread(when, self.measure(first, n, policy), self.ruler.gaps, self.ruler.held)

    def measure(self, first: int, n: int, policy: Any) -> np.ndarray:
        """The regret of these episodes, summed over the agents, (n,)."""
        began = perf_counter()
        out = np.zeros(n)
        seed = self.ruler.plan.seed
        for env, agents, slate in self._groups:
            if slate:
                law, shape = env.initial_tables, slate[3].shape
                if not fits(policy, shape) or not _hold(
                    seed, agents, first, law, *slate, policy, out
                ):
                    raise InvalidInput(unfit(policy, env))
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
