"""Transition tables of Gymnasium environments that know their own model.

Two forms are read: `unwrapped.P`, the toy-text dictionary P[x][a] = [(p, x', reward, terminated)],
and `unwrapped.dynamics`, the arrays of ICU-Sepsis. A transition that ends the episode leads to an
absorbing state that pays nothing: x' itself where no episode can go on from it, else one state
added behind all others.

A transition (x, a, x') may be listed with several rewards, as in a slippery CliffWalking. The table
then pays their mean: the value of every policy, V* and regret are those of the environment, but the
rewards that agents see vary less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.errors import InvalidEnvironment, warn

NEUTRAL = {
    ("gymnasium", "TimeLimit"),
    ("gymnasium", "OrderEnforcing"),
    ("gymnasium", "PassiveEnvChecker"),
    ("gymnasium", "RecordEpisodeStatistics"),
    ("icu_sepsis", "FlattenActionWrapper"),
}
"""Wrappers, by package, that leave transitions and rewards as they are."""

MEAN, TERMINATE = "mean", "terminate"
"""What ICU-Sepsis does with an inadmissible action: `mean` is already in its arrays."""


@dataclass(frozen=True)
class Tables:
    """P (S, A, S), raw rewards (S, A) or (S, A, S) and the law of the first state (S,)."""

    P: np.ndarray
    rewards: np.ndarray
    initial: np.ndarray
    first_observation: int = 0
    """What the environment calls state 0."""
    first_action: int = 0
    averaged: int = 0
    """Transitions (x, a, x') whose reward is the mean of several."""
    extremes: tuple[float, float] = (0.0, 0.0)
    """The smallest and the largest reward of these."""

    @property
    def reward_range(self) -> tuple[float, float]:
        """The smallest interval that holds 0 and every reward that can be paid."""
        paid = self.rewards if self.rewards.ndim == 2 else self.rewards[self.P > 0.0]
        low, high = self.extremes
        return min(0.0, low, float(paid.min())), max(0.0, high, float(paid.max()))


def read_tables(env: Any, name: str) -> Tables | None:
    """The tables of a Gymnasium environment, or None where it has none that can be trusted. Warns
    where a table is not used, or not as it is."""
    inner = env.unwrapped
    if not hasattr(env.observation_space, "n") or not _only_neutral(env):
        return None
    P = getattr(inner, "P", None)
    initial = getattr(inner, "initial_state_distrib", None)
    if isinstance(P, Mapping) and initial is not None:
        if getattr(inner, "fickle_passenger", False):  # Taxi: not part of P
            return None
        n_actions, first = int(env.action_space.n), int(env.action_space.start)
        counted = _from_zero(P, n_actions)
        if counted is None:
            return None
        tables = replace(
            from_dictionary(counted, n_actions, np.asarray(initial, np.float64)),
            first_observation=int(env.observation_space.start),
            first_action=first,
        )
        if not agree(env, tables, counted):
            warn(
                f"{name} has a table, unwrapped.P, but does not behave as it says: the environment "
                "is stepped instead, so regret is unknown, and rewards outside [0, 1] need "
                "reward_range=. tables=False does the same without this warning"
            )
            return None
        if tables.averaged:
            pays = "transition pays" if tables.averaged == 1 else "transitions pay"
            warn(
                f"in the table of {name}, {tables.averaged} {pays} one of several rewards: agents "
                "receive their mean. Values and regret are exact, but rewards vary less than in "
                "the environment; tables=False steps the environment itself"
            )
        return tables
    dynamics = getattr(inner, "dynamics", None)
    if isinstance(dynamics, Mapping) and {"tx_mat", "r_mat", "d_0"} <= set(dynamics):
        return _from_dynamics(inner, dynamics)
    return None


def agree(
    env: Any, tables: Tables, listed: Mapping[int, Mapping[int, Any]], steps: int = 200
) -> bool:
    """Whether a random walk in the environment is possible in its tables: starts and steps."""
    rng, first = np.random.default_rng(0), tables.first_observation
    # apart from the walk, because one that never ends shows one start only
    starts = [env.reset(seed=k)[0] - first for k in range(steps)]
    if not all(0 <= x < len(listed) and tables.initial[x] > 0.0 for x in starts):
        return False
    x = env.reset(seed=0)[0] - first
    for k in range(steps):
        a = int(rng.integers(env.action_space.n))
        y, reward, terminated, truncated, _ = env.step(a + tables.first_action)
        if not any(
            p > 0.0 and to == y - first and bool(over) == terminated
            and np.isclose(paid, reward, rtol=1e-9, atol=1e-9)
            for p, to, paid, over in listed[x][a]
        ):  # fmt: skip
            return False
        x = y - first
        if terminated or truncated:
            x = env.reset(seed=k + 1)[0] - first
    return True


def _only_neutral(env: Any) -> bool:
    """Whether what surrounds the environment cannot change its transitions or rewards."""
    while env is not env.unwrapped:
        if (type(env).__module__.split(".")[0], type(env).__name__) not in NEUTRAL:
            return False
        env = env.env
    return True


def _from_zero(P: Mapping[Any, Any], n_actions: int) -> dict[int, dict[int, Any]] | None:
    """P with states and actions counted from 0; None where its keys are not consecutive states."""
    whole = all(isinstance(x, int | np.integer) for x in P)
    if not (P and whole and all(isinstance(row, Mapping) and row for row in P.values())):
        return None
    first, action = min(P), min(min(row) for row in P.values())
    if set(P) != set(range(first, first + len(P))):
        return None
    counted: dict[int, dict[int, Any]] = {}
    for x, row in P.items():
        for a in range(action, action + n_actions):
            try:
                outcomes = _outcomes(row[a], first, len(P))
            except (LookupError, TypeError, ValueError):
                raise InvalidEnvironment(
                    f"unwrapped.P[{x}][{a}] is {row.get(a, 'missing')!r}: give every state and "
                    "action a list of (p, next state, reward, terminated), or step the environment "
                    "instead, as_environment(env, tables=False)",
                    code="bad-table",
                ) from None
            counted.setdefault(int(x - first), {})[a - action] = outcomes
    return counted


def _outcomes(listed: Any, first: int, n: int) -> list[tuple[float, int, float, bool]]:
    """(p, x', reward, terminated), x' counted from 0; ValueError where it is not a state."""
    outcomes = [(p, to - first, reward, over) for p, to, reward, over in listed]
    if not all(0 <= to < n for _, to, _, _ in outcomes):
        raise ValueError
    return outcomes


def from_dictionary(
    P: Mapping[int, Mapping[int, Any]], n_actions: int, initial: np.ndarray
) -> Tables:
    """Tables of P[x][a] = [(p, x', reward, terminated), …]."""
    n = len(P)
    if initial.shape != (n,):
        raise InvalidEnvironment(
            f"unwrapped.P has {plural(n, 'state')}, but initial_state_distrib has shape "
            f"{initial.shape}: give one probability per state",
            code="bad-table",
        )
    going = np.zeros((n, n_actions, n))  # probability of going on to x'
    ending = np.zeros((n, n_actions, n))  # probability of ending in x'
    for x, row in P.items():
        for a in range(n_actions):
            for p, to, _, terminated in row[a]:
                (ending if terminated else going)[x, a, to] += p
    live = _reached(going.sum(axis=1) > 0.0, initial > 0.0)
    # an end may stay where it is if no episode passes through it otherwise
    shared = (ending[live].sum(axis=(0, 1)) > 0.0) & live
    size = n + int(shared.any())
    law = np.zeros((size, n_actions, size))
    pay = np.zeros((size, n_actions, size))
    several: dict[tuple[int, int, int], list[float]] = {}
    for x, row in P.items():
        for a in range(n_actions):
            # ends in states that others pass through are one transition, to the added state
            led = [(p, n if over and shared[to] else to, float(r)) for p, to, r, over in row[a]]
            for p, to, reward in led:
                law[x, a, to] += p
                pay[x, a, to] += p * reward
            several |= _several(x, a, [(to, reward) for p, to, reward in led if p > 0.0])
    np.divide(pay, law, out=pay, where=law > 0.0)
    ends = np.zeros(size, bool)
    ends[:n] = (ending[live].sum(axis=(0, 1)) > 0.0) & ~live
    ends[n:] = True
    _absorb(law, pay, ends)
    start = np.zeros(size)
    start[:n] = initial
    rewards = [r for (x, _, _), paid in several.items() if not ends[x] for r in paid]
    averaged = sum(not ends[x] for x, _, _ in several)
    extremes = (min(rewards, default=0.0), max(rewards, default=0.0))
    return Tables(law, _compact(law, pay), start, averaged=averaged, extremes=extremes)


def _several(
    x: int, a: int, paid: list[tuple[int, float]]
) -> dict[tuple[int, int, int], list[float]]:
    """(x, a, x') → its rewards, where it is listed with more than one."""
    rewards: dict[tuple[int, int, int], list[float]] = {}
    for to, reward in paid:
        rewards.setdefault((x, a, to), []).append(reward)
    return {key: listed for key, listed in rewards.items() if max(listed) > min(listed)}


def _from_dynamics(inner: Any, dynamics: Mapping[str, Any]) -> Tables:
    """Tables of ICU-Sepsis: its last three states are death, survival and what follows them."""
    law = np.array(dynamics["tx_mat"], np.float64)
    law /= law.sum(axis=2, keepdims=True)
    pay = np.asarray(dynamics["r_mat"], np.float64)
    strategy = getattr(inner, "_inadmissible_action_strategy", MEAN)
    if strategy == TERMINATE:
        for x, allowed in enumerate(dynamics["admissible_actions"]):
            banned = np.setdiff1d(np.arange(law.shape[1]), allowed)
            law[x, banned] = 0.0
            law[x, banned, len(law) - 3] = 1.0
    elif strategy != MEAN:
        raise InvalidEnvironment(
            f"inadmissible_action_strategy is '{strategy}', which raises an error in the middle of "
            f"an episode: use '{MEAN}' or '{TERMINATE}'",
            code="bad-inadmissible_action_strategy",
        )
    return Tables(law, _compact(law, pay), np.asarray(dynamics["d_0"], np.float64))


def _reached(follows: np.ndarray, start: np.ndarray) -> np.ndarray:
    """States that an episode may pass through, from `start` along follows (S, S)."""
    seen = start.copy()
    while True:
        more = seen | follows[seen].any(axis=0)
        if (more == seen).all():
            return seen
        seen = more


def _absorb(law: np.ndarray, pay: np.ndarray, ends: np.ndarray) -> None:
    """Make the end states stay where they are, and pay nothing there."""
    at = np.flatnonzero(ends)
    law[at] = 0.0
    law[at, :, at] = 1.0
    pay[at] = 0.0


def _compact(law: np.ndarray, pay: np.ndarray) -> np.ndarray:
    """(S, A) rewards where no reward depends on the next state, else (S, A, S)."""
    possible = law > 0.0
    low = pay.min(axis=2, where=possible, initial=np.inf)
    high = pay.max(axis=2, where=possible, initial=-np.inf)
    return low if np.array_equal(low, high) else pay
