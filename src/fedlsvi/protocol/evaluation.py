"""What episodes were worth: exact regret Σ_m V*₁(x₁) − V^π₁(x₁), or what agents earned.

The evaluator is a measuring instrument of the simulation, not a party of the federation: it knows
the environments, and because randomness is keyed it knows every initial state without being told.
The policy is frozen within a round, so its exact value is computed once per round. Where V* is not
known, `ReturnLog` keeps what agents earned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np
from numba import njit

from fedlsvi.core.alias import pick
from fedlsvi.core.random import ENVIRONMENT, fill_uniforms, uniforms
from fedlsvi.envs.allowed import same_mask
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.errors import InvalidInput
from fedlsvi.experience.values import BlockValues, TabularValues


class Evaluator(Protocol):
    """Measures the policy in force."""

    def begin(self) -> None:
        """A round begins: the policy is now frozen."""
        ...

    def regret(self, first: int, n: int) -> np.ndarray:
        """Group regret of each of the n episodes from `first` on, under the frozen policy."""
        ...

    def regret_of(self, agents: np.ndarray, firsts: np.ndarray, n: int) -> np.ndarray:
        """The regret of these agents together, each of which plays n episodes from its own first
        one on."""
        ...


@njit(cache=True, nogil=True)
def _random_starts(seed, agents, first, law, gap, out):  # type: ignore[no-untyped-def]
    """out[e] += Σ_m gap[x₁ of agent m in episode first + e]."""
    start, prob, keep, alias = law
    laws = start.size - 1
    u = np.empty((1, out.size))
    for agent in agents:
        fill_uniforms(seed, np.int64(ENVIRONMENT), agent, first, out.size, u)
        for e in range(out.size):
            out[e] += gap[pick(start, prob, keep, alias, agent % laws, u[0, e])]


class FiniteEvaluator:
    """Backward induction on the true model, once per round and distinct environment."""

    def __init__(self, envs: Mapping[int, FiniteMDP], seed: int, values: TabularValues) -> None:
        self.seed, self.values = seed, values
        distinct = {id(env): env for env in envs.values()}
        self._groups = [
            (env, np.array([m for m, e in envs.items() if e is env], np.int64))
            for env in distinct.values()
        ]

    def begin(self) -> None:
        self._gaps = [
            env.optimal_values()[0] - env.policy_values(self._policy(env))[0]
            for env, _ in self._groups
        ]

    def _policy(self, env: FiniteMDP) -> np.ndarray:
        """The table that agents in this environment follow, whose mask may be their own."""
        if env.allowed is None or same_mask(env.allowed, self.values.allowed):
            return self.values.policy
        return self.values.policy_under(env.allowed)

    def regret(self, first: int, n: int) -> np.ndarray:
        out = np.zeros(n)
        for (env, agents), gap in zip(self._groups, self._gaps, strict=True):
            law = env.initial_tables
            if len(law.keep) == len(law.start) - 1:  # every law is a point: nothing to draw
                out += gap[law.keep[agents % len(law.keep)]].sum()
            else:
                _random_starts(self.seed, agents, first, law, gap, out)
        return out

    def regret_of(self, agents: np.ndarray, firsts: np.ndarray, n: int) -> np.ndarray:
        out = np.zeros(n)
        for (env, own), gap in zip(self._groups, self._gaps, strict=True):
            here = np.isin(agents, own)
            for m, first in zip(agents[here], firsts[here], strict=True):
                _random_starts(self.seed, np.array([m]), first, env.initial_tables, gap, out)
        return out


class ContinuousEvaluator:
    """V* and V^π of the environment itself, at the initial states of the round's episodes."""

    def __init__(self, envs: Mapping[int, ContinuousMDP], seed: int, values: BlockValues) -> None:
        self.seed, self.values, self._envs = seed, values, envs

    def begin(self) -> None:
        self._policy = self.values.frozen()

    def regret(self, first: int, n: int) -> np.ndarray:
        total = np.zeros(n)
        distinct = {id(env): env for env in self._envs.values()}
        for env in distinct.values():
            agents = np.array([m for m, e in self._envs.items() if e is env], np.int64)
            total += self._gaps(env, agents, first, n).sum(axis=0)
        return total

    def _gaps(self, env: ContinuousMDP, agents: np.ndarray, first: int, n: int) -> np.ndarray:
        """(m, n) V* − V^π of agents in one environment, from the same episode on."""
        u = uniforms(self.seed, agents, first, n, env.draws_at_reset)
        x = env.reset(u.reshape(len(agents) * n, -1), np.repeat(agents, n))
        policy = self._policy if env.allowed is None else self._policy.under(env.allowed)
        gap = env.optimal_values_at(x) - env.policy_values_at(policy.act_quickly, x)
        found: np.ndarray = gap.reshape(len(agents), n)
        return found

    def regret_of(self, agents: np.ndarray, firsts: np.ndarray, n: int) -> np.ndarray:
        total = np.zeros(n)
        for m, first in zip(agents.tolist(), firsts.tolist(), strict=True):
            total += self._gaps(self._envs[m], np.array([m]), first, n)[0]
        return total


class ReturnLog:
    """Returns in the environment's own units, by agent, of episodes not yet recorded.

    Whoever plays episodes of a plan writes their returns here, and whoever records them reads them;
    so no environment is stepped twice only to be measured.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[int, np.ndarray]] = {}

    def put(self, agents: Iterable[int], first: int, earned: np.ndarray) -> None:
        """Agents played episodes from `first` on and earned (m, n); what was known of these
        episodes and later ones is replaced."""
        for m, row in zip(agents, earned, strict=True):
            begin, before = self._kept.get(int(m), (first, row[:0]))
            if not begin <= first <= begin + len(before):
                begin, before = first, row[:0]
            self._kept[int(m)] = (begin, np.concatenate([before[: first - begin], row]))

    def take(self, agents: Iterable[int], first: int, n: int) -> np.ndarray:
        """(m, n) returns of episodes first … first+n−1; earlier ones are forgotten."""
        found = []
        for m in agents:
            begin, earned = self._kept.get(int(m), (first, np.empty(0)))
            here = earned[first - begin : first - begin + n]
            if begin > first or len(here) < n:
                raise InvalidInput(
                    f"record(first={first}, n={n}): agent {m} has not played these episodes: call "
                    "record() after play()",
                    code="recorded-before-played",
                )
            self._kept[int(m)] = (first, earned[first - begin :])
            found.append(here)
        return np.stack(found)
