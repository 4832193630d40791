"""`check_features`: what every feature map must do; the tests run it on every registered one."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from fedlsvi.errors import FedLSVIError, InvalidFeatures
from fedlsvi.features.base import FeatureMap, alike, probe_states, resolve, try_out
from fedlsvi.features.registry import make

TRIALS = 64
"""Episodes whose states are tried, where states are continuous."""


def check_features(features: Any, env: Any, **options: Any) -> None:
    """Check that a feature map keeps to the interface in an environment.

    `learn` itself looks at a few first states only, and then at every batch.

    Args:
        features: Whatever `learn` takes.
        env: Whatever `learn` takes for one agent: an environment, a name, a Gymnasium id, an
            `EnvSpec`, or a function that makes a Gymnasium environment.
        **options: For Gymnasium environments, as in `as_environment`: horizon, reward_range, …

    Raises:
        InvalidFeatures: At the first rule that they break.
    """
    from fedlsvi.envs.gym.convert import as_environment

    env = as_environment(env, **options)
    phi = resolve(features, env)
    states = _states(env)
    found = try_out(phi, states)
    for half in np.array_split(np.random.default_rng(0).permutation(len(states)), 2):
        if len(half) and not alike(phi(states[half]), found[half]):
            raise InvalidFeatures(
                "check_features: the features of a state must not depend on the rest of the "
                "batch, but a permuted half of the batch gave different numbers",
                code="depends-on-batch",
            )
    _check_spec(phi, env, states, found)


def _states(env: Any) -> np.ndarray:
    """All states where finite; else those of a few episodes in which actions take turns."""
    if hasattr(env, "n_states"):
        return np.arange(env.n_states)
    if hasattr(env, "visited"):  # a Gymnasium world
        visited: np.ndarray = env.visited(TRIALS)
        return visited
    seen = [probe_states(env, TRIALS)]
    rng = np.random.default_rng(0)
    for h in range(1, env.horizon + 1):
        actions = (np.arange(TRIALS, dtype=np.int32) + h) % env.n_actions
        draws = rng.random((TRIALS, env.draws_per_step))
        seen.append(env.step(h, seen[-1], actions, draws)[1])
    return np.concatenate(seen)


def _check_spec(phi: FeatureMap, env: Any, states: np.ndarray, found: np.ndarray) -> None:
    """The spec survives JSON, and makes the same map again."""
    spec = phi.spec()
    if spec is None:
        return
    try:
        back = json.loads(json.dumps(spec))
        again = resolve(make(back["name"], **back["params"]), env)
    except (FedLSVIError, KeyError, TypeError, ValueError) as error:
        raise InvalidFeatures(
            f"check_features: no map can be made from spec(), {spec}: {error}",
            code="bad-spec",
        ) from None
    if again.dim != phi.dim or not alike(again(states), found):
        raise InvalidFeatures(
            f"check_features: the map made from spec(), {spec}, gives different numbers",
            code="spec-of-another-map",
        )
