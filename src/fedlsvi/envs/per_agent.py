"""One environment for each agent: all of the same kind and size, and with the same features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedlsvi.envs.base import Environment, units
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.errors import InvalidEnvironment
from fedlsvi.features.base import FeatureMap, alike, probe_states, resolve
from fedlsvi.features.tabular import OneHot

STEPPED = (
    ". A black box has one extra state, after the end of an episode: step all of them, "
    "as_environment(env, tables=False)"
)
RANGES = ". Make all of them with one reward_range= that contains all their rewards"


def per_agent(env: Any, n_agents: int) -> tuple[Environment, ...]:
    """One environment for each agent, all of the same kind and size."""
    if not isinstance(env, Environment):
        from fedlsvi.envs.gym.convert import as_environment

        env = as_environment(env)
    if isinstance(env, Environment):
        units(env.reward_range)
        return (env,) * n_agents
    for m, one in enumerate(env):
        if not isinstance(one, Environment):
            raise InvalidEnvironment(
                f"env[{m}] is of type {type(one).__name__}, not a finite or continuous "
                "environment: give one of these",
                code="bad-env",
            )
    if len(env) != n_agents:
        raise InvalidEnvironment(
            f"env is a list of {len(env)}, but n_agents is {n_agents}: give one environment per "
            "agent",
            code="wrong-number-of-environments",
        )
    same_sizes(env)
    if not (isinstance(env[0], FiniteMDP | ContinuousMDP | GymWorld) or env[0].recorded):
        raise InvalidEnvironment(
            f"env is of type {type(env[0]).__name__}, not a finite or continuous environment: "
            "give one of these",
            code="bad-env",
        )
    return tuple(env)


def first_world(envs: Sequence[Environment]) -> Environment:
    """The first that can be played; where there is none, the first log."""
    return next((env for env in envs if not env.recorded), envs[0])


def _sizes(env: Environment) -> dict[str, Any]:
    return {
        "horizon": env.horizon, "n_actions": env.n_actions,
        "n_states": env.n_states if env.finite else None,
        "state_dim": None if env.finite else env.state_dim,
        "reward_range": units(env.reward_range),
    }  # fmt: skip


def same_sizes(env: Sequence[Environment]) -> None:
    """Refuse environments that differ in size or units."""
    first = _sizes(env[0])
    for m, other in enumerate(env):
        for size, here in _sizes(other).items():
            there = first[size]
            if here != there:
                mixed = isinstance(other, GymWorld) != isinstance(env[0], GymWorld)
                more = {"reward_range": RANGES, "n_states": STEPPED if mixed else ""}.get(size, "")
                raise InvalidEnvironment(
                    f"env[{m}].{size} is {here}, but env[0].{size} is {there}: all agents must "
                    f"agree{more}",
                    code="agents-disagree",
                )


def own_features(envs: Sequence[Environment]) -> FeatureMap:
    """The environments' own feature map, which has to be the same for all agents."""
    phi = resolve(None, envs[0])
    for m, other in enumerate(envs):
        if other is envs[0]:
            continue
        own = resolve(None, other)
        if own.dim != phi.dim:
            raise InvalidEnvironment(
                f"agent {m} has features of dimension {own.dim}, but agent 0 has {phi.dim}: give "
                "features= for all agents",
                code="features-disagree",
            )
        if not same_features(own, phi, envs[0]):
            raise InvalidEnvironment(
                f"agent {m} has features that differ from agent 0's: give features= for all agents",
                code="features-disagree",
            )
    return phi


def same_features(one: FeatureMap, other: FeatureMap, env: Environment) -> bool:
    """Whether two maps agree: on all states where these are finite, else on a few."""
    if one is other or (isinstance(one, OneHot) and isinstance(other, OneHot)):
        return True
    states = np.arange(env.n_states) if env.finite else probe_states(env)
    return one.dim == other.dim and alike(one(states), other(states))
