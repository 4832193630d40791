"""The part of `check_env` for continuous states: pure batches, and values that play agrees with."""

from __future__ import annotations

from collections.abc import Callable
from math import log, sqrt
from typing import Any

import numpy as np

from fedlsvi.envs.continuous import VALUES, ContinuousMDP, Policy
from fedlsvi.errors import InvalidEnvironment
from fedlsvi.features.base import check_norms

ROWS = 64
"""First states that are looked at."""

STARTS, EPISODES = 8, 2048
"""First states from which V^π is tried, and the episodes that are played from each."""

DOUBT = 1e-6
"""Probability that a right value is refused at one first state. The draws are seeded."""

ALONE = (
    "must treat rows alone and draw nothing but the uniforms it is given: a permuted half of the "
    "batch gave something else"
)


def require(holds: bool | np.bool_, field: str, why: str) -> None:
    """Refuse a broken promise."""
    if not holds:
        raise InvalidEnvironment(f"check_env: {field} {why}")


def check_continuous(env: ContinuousMDP) -> None:
    """Raise InvalidEnvironment at the first promise that `env` breaks."""
    for field, least in (("state_dim", 1), ("draws_at_reset", 0), ("draws_per_step", 0)):
        value = getattr(env, field, None)
        whole = isinstance(value, int) and value >= least
        require(whole, field, f"must be an int ≥ {least}, got {value!r}")
    rng = np.random.default_rng(0)
    first = _check_reset(env, rng)
    _check_steps(env, first, rng)
    if env.knows_values:
        _check_values(env, first, rng)
    else:
        one = next((name for name in VALUES if env.writes(name)), "")
        require(not one, one, f"does not suffice: write {' and '.join(VALUES)}, or neither")
    if env.writes("default_features"):
        features = env.default_features()
        phi = features(first)
        shape = (ROWS, env.n_actions, features.dim)
        require(phi.shape == shape, "default_features()", f"give shape {phi.shape}")
        check_norms("default_features()", phi)


def _check_reset(env: ContinuousMDP, rng: np.random.Generator) -> np.ndarray:
    u, agents = rng.random((ROWS, env.draws_at_reset)), np.arange(ROWS)
    x = _numbers("reset", env.reset(u, agents), (ROWS, env.state_dim), "states")
    half = rng.permutation(ROWS)[: ROWS // 2]
    part = env.reset(u[half], agents[half])
    require(np.array_equal(part, x[half]), "reset", ALONE)
    return x


def _check_steps(env: ContinuousMDP, x: np.ndarray, rng: np.random.Generator) -> None:
    for h in range(1, env.horizon + 1):
        a = rng.integers(env.n_actions, size=ROWS)
        u = rng.random((ROWS, env.draws_per_step))
        kept = x.copy()
        r, y = _stepped(env, h, x, a, u)
        require(np.array_equal(x, kept), "step", "must leave its states alone")
        require(r.min() >= 0.0 and r.max() <= 1.0, "step", "gave rewards outside [0, 1]")
        half = rng.permutation(ROWS)[: ROWS // 2]
        part = env.step(h, x[half], a[half], u[half])
        same = np.array_equal(part[0], r[half]) and np.array_equal(part[1], y[half])
        require(same, "step", ALONE)
        x = y


def _check_values(env: ContinuousMDP, first: np.ndarray, rng: np.random.Generator) -> None:
    best = _numbers(VALUES[0], env.optimal_values_at(first), (ROWS,), "values")
    require(best.min() >= 0.0 and best.max() <= env.horizon, VALUES[0], "leave [0, H]")
    middle = float(np.median(first[:, 0]))

    def in_turn(h: int, x: np.ndarray) -> np.ndarray:
        return np.full(len(x), h % env.n_actions)

    def by_state(h: int, x: np.ndarray) -> np.ndarray:
        return np.where(x[:, 0] > middle, h % env.n_actions, 0)

    for policy in (in_turn, by_state):
        found = _numbers(VALUES[1], env.policy_values_at(policy, first), (ROWS,), "values")
        require((found <= best + 1e-9).all(), VALUES[1], "exceed V*")
        returns = _play(env, policy, first[:STARTS], rng)
        off = np.abs(returns.mean(axis=1) - found[:STARTS]) - _tolerance(returns, env.horizon)
        k = int(off.argmax())
        require(
            off[k] <= 0.0,
            VALUES[1],
            f"says {found[k]:.4g} at the state {first[k]}, where {EPISODES:,} episodes earned "
            f"{returns[k].mean():.4g} on average: let it belong to what reset and step do",
        )
    greedy: Callable[..., Any] | None = getattr(env, "greedy_policy", None)
    if greedy is not None:
        gap = np.abs(env.policy_values_at(greedy, first) - best).max()
        require(gap <= 1e-6, "greedy_policy", f"misses V* by {gap:.3g}")


def _play(
    env: ContinuousMDP, policy: Policy, first: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Returns (states, EPISODES) of episodes from each of these first states."""
    x, total = np.repeat(first, EPISODES, axis=0), np.zeros(len(first) * EPISODES)
    for h in range(1, env.horizon + 1):
        r, x = env.step(h, x, policy(h, x), rng.random((len(x), env.draws_per_step)))
        total += r
    return total.reshape(len(first), EPISODES)


def _tolerance(returns: np.ndarray, horizon: int) -> np.ndarray:
    """How far a mean of n returns in [0, H] may be off, whatever their law: by more than
    √(2s²L/n) + 7HL/(3(n−1)), L = ln(4/δ), with probability at most δ (Maurer and Pontil 2009,
    Theorem 4, for both sides; s² is the sample variance)."""
    n, doubt = returns.shape[1], log(4.0 / DOUBT)
    spread = returns.std(axis=1, ddof=1) * sqrt(2.0 * doubt / n)
    tolerance: np.ndarray = spread + 7.0 * horizon * doubt / (3.0 * (n - 1))
    return tolerance


def _stepped(
    env: ContinuousMDP, h: int, x: np.ndarray, a: np.ndarray, u: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    answer: Any = env.step(h, x, a, u)
    pair = isinstance(answer, tuple) and len(answer) == 2
    require(pair, "step", f"gave a {type(answer).__name__}: return (rewards, next states)")
    r = _numbers("step", answer[0], (len(x),), "rewards")
    return r, _numbers("step", answer[1], x.shape, "states")


def _numbers(field: str, array: Any, shape: tuple[int, ...], what: str) -> np.ndarray:
    """What a method gave, where it is a finite array of this shape."""
    is_array = isinstance(array, np.ndarray) and array.dtype.kind in "fiub"
    kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
    wanted = f"a NumPy array of numbers of shape {shape}"
    require(is_array, field, f"gave {what} as {kind}: return {wanted}")
    require(array.shape == shape, field, f"gave {what} of shape {array.shape}: return {wanted}")
    require(np.isfinite(array).all(), field, f"gave {what} that are not finite")
    found: np.ndarray = array
    return found
