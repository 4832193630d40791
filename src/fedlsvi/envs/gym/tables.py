"""Transition tables of Gymnasium environments that know their own model.

Two forms are read: `unwrapped.P`, the toy-text dictionary P[x][a] = [(p, x', reward, terminated)],
and `unwrapped.dynamics`, the arrays of ICU-Sepsis. A transition that ends the episode leads to an
absorbing state that pays nothing: x' itself where no episode can go on from it, else one state
added behind all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.errors import InvalidEnvironment

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

    @property
    def reward_range(self) -> tuple[float, float]:
        """The smallest interval that holds 0 and every reward that can be paid."""
        paid = self.rewards if self.rewards.ndim == 2 else self.rewards[self.P > 0.0]
        return min(0.0, float(paid.min())), max(0.0, float(paid.max()))


def read_tables(env: Any) -> Tables | None:
    """The tables of a Gymnasium environment, or None where it has none that can be trusted."""
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
        return tables if agree(env, tables) else None
    dynamics = getattr(inner, "dynamics", None)
    if isinstance(dynamics, Mapping) and {"tx_mat", "r_mat", "d_0"} <= set(dynamics):
        return _from_dynamics(inner, dynamics)
    return None


def agree(env: Any, tables: Tables, steps: int = 200) -> bool:
    """Whether a random walk in the environment is possible in its tables: starts and steps."""
    rng, first = np.random.default_rng(0), tables.first_observation
    # apart from the walk, because one that never ends shows one start only
    starts = [env.reset(seed=k)[0] - first for k in range(steps)]
    if not all(0 <= x < len(tables.P) and tables.initial[x] > 0.0 for x in starts):
        return False
    x = env.reset(seed=0)[0] - first
    for k in range(steps):
        a = int(rng.integers(env.action_space.n))
        y, reward, terminated, truncated, _ = env.step(a + tables.first_action)
        y = y - first
        if not (0 <= x < len(tables.P) and 0 <= y < len(tables.P)):
            return False
        # an episode that ended in a state that others pass through lies in the added state
        to = y if tables.P[x, a, y] > 0.0 else len(tables.P) - 1
        paid = tables.rewards[x, a] if tables.rewards.ndim == 2 else tables.rewards[x, a, to]
        if tables.P[x, a, to] == 0.0 or not np.isclose(paid, reward, rtol=1e-9, atol=1e-9):
            return False
        if terminated and not (tables.P[to, :, to] == 1.0).all():
            return False
        x = y
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
    earned = np.zeros((n, n_actions, n))  # Σ p·reward, whichever way
    for x, row in P.items():
        for a in range(n_actions):
            for p, to, reward, terminated in row[a]:
                (ending if terminated else going)[x, a, to] += p
                earned[x, a, to] += p * float(reward)
    live = _reached(going.sum(axis=1) > 0.0, initial > 0.0)
    # an end may stay where it is if no episode passes through it otherwise
    shared = (ending[live].sum(axis=(0, 1)) > 0.0) & live
    size = n + int(shared.any())
    law = np.zeros((size, n_actions, size))
    pay = np.zeros((size, n_actions, size))
    law[:n, :, :n] = going + np.where(shared, 0.0, ending)
    both = going + ending
    pay[:n, :, :n] = np.divide(earned, both, out=np.zeros_like(earned), where=both > 0.0)
    if shared.any():
        # rewards of the transitions sent to the added state: their mean given that they end
        leaving = np.where(shared, ending, 0.0)
        mass = leaving.sum(axis=2)
        law[:n, :, n] = mass
        total = (leaving * pay[:n, :, :n]).sum(axis=2)
        pay[:n, :, n] = np.divide(total, mass, out=np.zeros_like(mass), where=mass > 0.0)
    ends = np.zeros(size, bool)
    ends[:n] = (ending[live].sum(axis=(0, 1)) > 0.0) & ~live
    ends[n:] = True
    _absorb(law, pay, ends)
    start = np.zeros(size)
    start[:n] = initial
    return Tables(law, _compact(law, pay), start)


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
