"""`check_env`: what every environment must satisfy, run over every registered one by the tests."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from fedlsvi.envs.base import Environment
from fedlsvi.envs.conformance_continuous import check_continuous, require
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.errors import InvalidEnvironment
from fedlsvi.features.base import check_norms


def check_env(env: Any) -> None:
    """Raise InvalidEnvironment at the first promise of the interface that `env` breaks."""
    require(isinstance(env, Environment), "environment", "must derive from fedlsvi Environment")
    name = getattr(env, "name", None)
    require(isinstance(name, str) and name != "", "name", f"must be a word, got {name!r}")
    for field in ("horizon", "n_actions"):
        value = getattr(env, field, None)
        require(isinstance(value, int) and value >= 1, field, f"must be an int ≥ 1, got {value!r}")
    _check_spec(env)
    if isinstance(env, FiniteMDP):
        _check_finite(env)
    elif isinstance(env, ContinuousMDP):
        check_continuous(env)
    elif isinstance(env, GymWorld):
        _check_world(env)
    else:
        require(False, "environment", "must be a FiniteMDP, a ContinuousMDP or a GymWorld")


def _check_spec(env: Environment) -> None:
    """The record survives JSON, and a registered name rebuilds the same environment."""
    from fedlsvi.envs.registry import from_spec

    spec = env.spec()
    try:
        back = json.loads(json.dumps(spec))
    except TypeError as error:
        raise InvalidEnvironment(f"check_env: spec() is not ready for JSON: {error}") from None
    require(back == spec, "spec()", "must not change on its way through JSON")
    if spec["name"] is not None:
        again = from_spec(back)
        require(type(again) is type(env), "spec()", "rebuilds another class")
        require(again.spec() == spec, "spec()", "rebuilds something with another spec")
        if isinstance(env, FiniteMDP) and isinstance(again, FiniteMDP):
            require(again.fingerprint == env.fingerprint, "spec()", "rebuilds other arrays")


def _check_finite(env: FiniteMDP) -> None:
    S, A, H = env.n_states, env.n_actions, env.horizon
    require(env.P.shape in ((1, S, A, S), (H, S, A, S)), "P", f"has shape {env.P.shape}")
    require(env.r.shape in ((1, S, A), (H, S, A)), "r", f"has shape {env.r.shape}")
    for field in ("P", "r"):
        require(not getattr(env, field).flags.writeable, field, "must be read-only")
    require(env.P.min() >= 0.0, "P", "has a negative entry")
    require(np.abs(env.P.sum(-1) - 1.0).max() <= 1e-9, "P", "has rows that do not sum to 1")
    require(env.r.min() >= 0.0 and env.r.max() <= 1.0, "r", "leaves [0, 1]")

    values = env.optimal_values()
    steps_left = np.arange(H, -1, -1)[:, None]
    require(values.shape == (H + 1, S), "optimal_values()", f"has shape {values.shape}")
    require(
        (values >= 0.0).all() and (values <= steps_left + 1e-9).all(),
        "optimal_values()",
        "must lie in [0, H−h+1]",
    )
    for h in range(1, H + 1):
        bellman = (env.reward(h) + env.transition(h) @ values[h]).max(axis=1)
        require(
            np.abs(bellman - values[h - 1]).max() <= 1e-9,
            "optimal_values()",
            f"break Bellman, {h=}",
        )
    gap = np.abs(env.policy_values(env.greedy_policy()) - values).max()
    require(gap <= 1e-9, "greedy_policy()", f"misses V* by {gap:.3g}")
    require((env.uniform_values() <= values + 1e-9).all(), "uniform_values()", "exceed V*")

    rows = env.P.reshape(-1, S)
    off = np.abs(_law_of(env.tables, S) - rows).max()
    require(off <= 1e-9, "tables", f"sample laws that differ from P by {off:.3g}")
    for u in (0.0, 0.5, 1.0 - 2.0**-53):
        x = env.first_state(0, u)
        require(env.initial_law(0)[x] > 0.0, "first_state", f"gave the impossible state {x}")
        reward, y = env.step(1, x, A - 1, u)
        require(env.transition(1)[x, A - 1, y] > 0.0, "step", f"gave the impossible state {y}")
        require(0.0 <= reward <= 1.0, "step", f"gave the reward {reward}")
    features = env.default_features()
    phi = features(np.arange(min(S, 16)))
    require(phi.shape[1:] == (A, features.dim), "default_features()", f"give shape {phi.shape}")
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


def _check_world(env: GymWorld) -> None:
    """Gymnasium's own `check_env` looks at the environment; here only at what was made of it."""
    low, high = env.reward_range
    require(low <= 0.0 <= high and low < high, "reward_range", f"is ({low}, {high})")
    first = env.probe(4)
    shape = (4,) if env.finite else (4, env.state_dim)
    require(first.shape == shape, "probe", f"gave shape {first.shape}")
    require(np.array_equal(first, env.probe(4)), "reset", "does not repeat with its seed")
