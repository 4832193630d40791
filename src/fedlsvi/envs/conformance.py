"""`check_env`: what every environment must satisfy; the tests run it over every registered one."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import log, sqrt
from typing import Any

import numpy as np

from fedlsvi.envs.base import Environment
from fedlsvi.envs.continuous import VALUES, ContinuousMDP, Policy
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.convert import as_environment
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.errors import InvalidEnvironment
from fedlsvi.features.base import check_norms

ROWS = 64
"""First states of the batches that are tried."""

STARTS, EPISODES = 8, 2048
"""First states at which V^π is compared with play, and the episodes played from each."""

DOUBT = 1e-6
"""Probability that a correct value is refused at one first state. The draws are seeded."""

ALONE = (
    "must treat rows independently and use only the uniforms it is given: a permuted half of the "
    "batch gave different numbers"
)


def check_env(env: Any, **options: Any) -> None:
    """Check that an environment keeps to the interface.

    Args:
        env: Whatever `learn` takes for one agent: an environment, a name, a Gymnasium id, an
            `EnvSpec`, or a function that makes a Gymnasium environment.
        **options: For Gymnasium environments, as in `as_environment`: horizon, reward_range, …

    Raises:
        InvalidEnvironment: At the first rule that it breaks.
    """
    env = as_environment(env, **options)
    _require(
        isinstance(env, Environment), "env", f"must be one environment, got {type(env).__name__}"
    )
    name = getattr(env, "name", None)
    _require(isinstance(name, str) and name != "", "name", f"must be a string, got {name!r}")
    for field in ("horizon", "n_actions"):
        value = getattr(env, field, None)
        _require(isinstance(value, int) and value >= 1, field, f"must be an int ≥ 1, got {value!r}")
    _check_spec(env)
    if isinstance(env, FiniteMDP):
        _check_finite(env)
    elif isinstance(env, ContinuousMDP):
        _check_continuous(env)
    elif isinstance(env, GymWorld):
        _check_world(env)
    else:
        _require(False, "env", "must be a FiniteMDP, a ContinuousMDP or a GymWorld")


def _require(holds: bool | np.bool_, field: str, why: str) -> None:
    if not holds:
        raise InvalidEnvironment(f"check_env: {field} {why}", code=f"bad-{field.strip('()')}")


def _check_spec(env: Environment) -> None:
    """The record survives JSON, and a registered name rebuilds the same environment."""
    from fedlsvi.envs.registry import from_spec

    spec = env.spec()
    try:
        back = json.loads(json.dumps(spec))
    except TypeError as error:
        raise InvalidEnvironment(
            f"check_env: spec() cannot be written as JSON: {error}", code="bad-spec"
        ) from None
    _require(back == spec, "spec()", "must not change when it is written to JSON and read back")
    if spec["name"] is not None:
        again = from_spec(back)
        _require(type(again) is type(env), "spec()", "rebuilds a different class")
        _require(again.spec() == spec, "spec()", "rebuilds an environment with a different spec")
        if isinstance(env, FiniteMDP) and isinstance(again, FiniteMDP):
            _require(again.fingerprint == env.fingerprint, "spec()", "rebuilds different arrays")


def _check_finite(env: FiniteMDP) -> None:
    S, A, H = env.n_states, env.n_actions, env.horizon
    _require(env.P.shape in ((1, S, A, S), (H, S, A, S)), "P", f"has shape {env.P.shape}")
    _require(env.r.shape in ((1, S, A), (H, S, A)), "r", f"has shape {env.r.shape}")
    for field in ("P", "r"):
        _require(not getattr(env, field).flags.writeable, field, "must be read-only")
    _require(env.P.min() >= 0.0, "P", "has a negative entry")
    _require(np.abs(env.P.sum(-1) - 1.0).max() <= 1e-9, "P", "has rows that do not sum to 1")
    _require(env.r.min() >= 0.0 and env.r.max() <= 1.0, "r", "leaves [0, 1]")

    values = env.optimal_values()
    steps_left = np.arange(H, -1, -1)[:, None]
    _require(values.shape == (H + 1, S), "optimal_values()", f"has shape {values.shape}")
    _require(
        (values >= 0.0).all() and (values <= steps_left + 1e-9).all(),
        "optimal_values()",
        "must lie in [0, H−h+1]",
    )
    for h in range(1, H + 1):
        scores = env.reward(h) + env.transition(h) @ values[h]
        if env.allowed is not None:
            scores = np.where(env.allowed[min(h, len(env.allowed)) - 1], scores, -np.inf)
        bellman = scores.max(axis=1)
        _require(
            np.abs(bellman - values[h - 1]).max() <= 1e-9,
            "optimal_values()",
            f"break Bellman, {h=}",
        )
    gap = np.abs(env.policy_values(env.greedy_policy()) - values).max()
    _require(gap <= 1e-9, "greedy_policy()", f"misses V* by {gap:.3g}")
    _require((env.uniform_values() <= values + 1e-9).all(), "uniform_values()", "exceed V*")

    rows = env.P.reshape(-1, S)
    off = np.abs(_law_of(env.tables, S) - rows).max()
    _require(off <= 1e-9, "tables", f"sample laws that differ from P by {off:.3g}")
    for u in (0.0, 0.5, 1.0 - 2.0**-53):
        x = env.first_state(0, u)
        _require(env.initial_law(0)[x] > 0.0, "first_state", f"gave the impossible state {x}")
        reward, y = env.step(1, x, A - 1, u)
        _require(env.transition(1)[x, A - 1, y] > 0.0, "step", f"gave the impossible state {y}")
        _require(0.0 <= reward <= 1.0, "step", f"gave the reward {reward}")
    features = env.default_features()
    phi = features(np.arange(min(S, 16)))
    _require(phi.shape[1:] == (A, features.dim), "default_features()", f"give shape {phi.shape}")
    check_norms("default_features()", phi)


def _law_of(tables: Any, n_states: int) -> np.ndarray:
    """The laws that alias tables sample: cell k adds prob/n to keep and (1−prob)/n to alias."""
    sizes = np.diff(tables.start)
    row = np.repeat(np.arange(len(sizes)), sizes)
    share = 1.0 / sizes[row]
    law = np.zeros((len(sizes), n_states))
    np.add.at(law, (row, tables.keep), tables.prob * share)
    np.add.at(law, (row, tables.alias), (1.0 - tables.prob) * share)
    return law


def _check_continuous(env: ContinuousMDP) -> None:
    """Pure batches, and values that play agrees with."""
    for field, least in (("state_dim", 1), ("draws_at_reset", 0), ("draws_per_step", 0)):
        value = getattr(env, field, None)
        whole = isinstance(value, int) and value >= least
        _require(whole, field, f"must be an int ≥ {least}, got {value!r}")
    rng = np.random.default_rng(0)
    first = _check_reset(env, rng)
    _check_steps(env, first, rng)
    if env.knows_values:
        _check_values(env, first, rng)
    else:
        one = next((name for name in VALUES if env.writes(name)), "")
        _require(not one, one, f"does not suffice: write {' and '.join(VALUES)}, or neither")
    if env.writes("default_features"):
        features = env.default_features()
        phi = features(first)
        shape = (ROWS, env.n_actions, features.dim)
        _require(phi.shape == shape, "default_features()", f"give shape {phi.shape}")
        check_norms("default_features()", phi)


def _check_reset(env: ContinuousMDP, rng: np.random.Generator) -> np.ndarray:
    u, agents = rng.random((ROWS, env.draws_at_reset)), np.arange(ROWS)
    x = _numbers("reset", env.reset(u, agents), (ROWS, env.state_dim), "states")
    half = rng.permutation(ROWS)[: ROWS // 2]
    part = env.reset(u[half], agents[half])
    _require(np.array_equal(part, x[half]), "reset", ALONE)
    return x


def _check_steps(env: ContinuousMDP, x: np.ndarray, rng: np.random.Generator) -> None:
    for h in range(1, env.horizon + 1):
        a = rng.integers(env.n_actions, size=ROWS)
        u = rng.random((ROWS, env.draws_per_step))
        kept = x.copy()
        r, y = _stepped(env, h, x, a, u)
        _require(np.array_equal(x, kept), "step", "must not change the states it is given")
        _require(r.min() >= 0.0 and r.max() <= 1.0, "step", "gave rewards outside [0, 1]")
        half = rng.permutation(ROWS)[: ROWS // 2]
        part = env.step(h, x[half], a[half], u[half])
        same = np.array_equal(part[0], r[half]) and np.array_equal(part[1], y[half])
        _require(same, "step", ALONE)
        x = y


def _check_values(env: ContinuousMDP, first: np.ndarray, rng: np.random.Generator) -> None:
    best = _numbers(VALUES[0], env.optimal_values_at(first), (ROWS,), "values")
    _require(best.min() >= 0.0 and best.max() <= env.horizon, VALUES[0], "leave [0, H]")
    middle = float(np.median(first[:, 0]))

    def in_turn(h: int, x: np.ndarray) -> np.ndarray:
        return np.full(len(x), h % env.n_actions)

    def by_state(h: int, x: np.ndarray) -> np.ndarray:
        return np.where(x[:, 0] > middle, h % env.n_actions, 0)

    for policy in (in_turn, by_state):
        found = _numbers(VALUES[1], env.policy_values_at(policy, first), (ROWS,), "values")
        _require((found <= best + 1e-9).all(), VALUES[1], "exceed V*")
        returns = _play(env, policy, first[:STARTS], rng)
        off = np.abs(returns.mean(axis=1) - found[:STARTS]) - _tolerance(returns, env.horizon)
        k = int(off.argmax())
        _require(
            off[k] <= 0.0,
            VALUES[1],
            f"says {found[k]:.4g} at the state {first[k]}, where {EPISODES:,} episodes earned "
            f"{returns[k].mean():.4g} on average: make it agree with reset and step",
        )
    greedy: Callable[..., Any] | None = getattr(env, "greedy_policy", None)
    if greedy is not None:
        gap = np.abs(env.policy_values_at(greedy, first) - best).max()
        _require(gap <= 1e-6, "greedy_policy", f"misses V* by {gap:.3g}")


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
    _require(
        pair, "step", f"gave a value of type {type(answer).__name__}: return (rewards, next states)"
    )
    r = _numbers("step", answer[0], (len(x),), "rewards")
    return r, _numbers("step", answer[1], x.shape, "states")


def _numbers(field: str, array: Any, shape: tuple[int, ...], what: str) -> np.ndarray:
    """What a method gave, where it is a finite array of this shape."""
    is_array = isinstance(array, np.ndarray) and array.dtype.kind in "fiub"
    kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
    wanted = f"a NumPy array of numbers of shape {shape}"
    _require(is_array, field, f"gave {what} as {kind}: return {wanted}")
    _require(array.shape == shape, field, f"gave {what} of shape {array.shape}: return {wanted}")
    _require(np.isfinite(array).all(), field, f"gave {what} that are not finite")
    found: np.ndarray = array
    return found


def _check_world(env: GymWorld) -> None:
    """Gymnasium's own `check_env` looks at the environment; here only at what was made of it."""
    low, high = env.reward_range
    _require(low <= 0.0 <= high and low < high, "reward_range", f"is ({low}, {high})")
    first = env.probe(4)
    shape = (4,) if env.finite else (4, env.state_dim)
    _require(first.shape == shape, "probe", f"gave shape {first.shape}")
    _require(np.array_equal(first, env.probe(4)), "reset", "is not reproducible with its seed")
