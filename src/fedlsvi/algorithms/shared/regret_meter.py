"""The regret curve of a run whose agents may follow policies of their own, new in every episode.

The meter counts who was recorded when, so that a curve has every agent in every episode once. It
measures with `protocol.regret_meter`; where values are not known, what the agents earned takes the
place of what they lost.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
from numba import njit

from fedlsvi.checks import plural
from fedlsvi.errors import InvalidInput
from fedlsvi.protocol.plan import Plan
from fedlsvi.protocol.regret_meter import meter_of


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


class RunMeter:
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

    def __init__(self, whole: RunMeter, agents: np.ndarray) -> None:
        self.whole, self._agents = whole, agents
        self._meter = meter_of(whole.plan, agents.tolist(), compiled=True)

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
        if self._meter is None:
            earned: np.ndarray = self.whole.plan.returns.take(self._agents, first, n).sum(axis=0)
            return earned
        began = perf_counter()
        self._meter.follow(policy)
        out = self._meter.regret(first, n)
        self.whole.seconds += perf_counter() - began
        return out
