"""Environments by name: what settings, run folders and the command line say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fedlsvi.envs.base import Environment
from fedlsvi.envs.gym.ids import looks_like_id
from fedlsvi.errors import InvalidEnvironment, UnknownName
from fedlsvi.registry import Entry, Registry

REGISTRY: Registry[Entry] = Registry(
    "environment", "an environment", InvalidEnvironment, base=Environment
)
names = REGISTRY.names


def register(
    name: str,
    constructor: Callable[..., Environment] | str,
    summary: str,
    defaults: dict[str, Any] | None = None,
) -> None:
    """Add an environment; a name is taken once.

    Args:
        name: What settings and the command line call it.
        constructor: Makes the environment from its parameters, which JSON must be able to hold; or
            "module:attribute", imported on use.
        summary: One line for `fedlsvi list environments`.
        defaults: Parameters that replace the constructor's own defaults.
    """
    REGISTRY.register(Entry(name, constructor, summary, defaults=defaults or {}))


def entry(name: str) -> Entry:
    """The row of a name; a Gymnasium id has a row too."""
    try:
        return REGISTRY.entry(name)
    except UnknownName:
        if not looks_like_id(name):
            raise
        return replace(GYMNASIUM, name=name, defaults={"id": name})


def make(name: str, /, **params: Any) -> Environment:
    """The environment of this name; parameters left out take the defaults of its row."""
    row = entry(name)
    env: Environment = REGISTRY.make(row, params)
    if env.spec()["name"] is None and row.target != GYMNASIUM.target:  # which records itself
        env.record(name, **row.defaults | params)
    return env


def from_spec(spec: dict[str, Any]) -> Environment:
    """Rebuild the environment that gave this `spec()`."""
    if not isinstance(spec, dict) or set(spec) != {"name", "params"}:
        raise InvalidEnvironment(
            f"spec is {spec!r}: give {{'name': ..., 'params': {{...}}}}, as env.spec() returns",
            code="bad-spec",
        )
    if spec["name"] is None:
        raise InvalidEnvironment(
            "spec has no name, because the environment was made from arrays: pass the environment "
            "itself, or register a constructor with fedlsvi.envs.register",
            code="unnamed-environment",
        )
    return make(spec["name"], **spec["params"])


for _name, _home, _summary in (
    (
        "random-linear",
        "linear:RandomLinearMDP",
        "random linear MDP with simplex features and anchor pairs",
    ),
    (
        "random-linear-mixture",
        "linear_mixture:RandomLinearMixtureMDP",
        "random mixture of known kernels with unknown weights",
    ),
    ("hard-chain", "hard:HardChain", "hard linear MDP of Zhou, Gu & Szepesvári; 2^(dim−1) actions"),
    (
        "combination-lock",
        "hard:CombinationLock",
        "combination lock: one action opens, every other fails for good",
    ),
    ("river-swim", "chains:RiverSwim", "swim right against the current to a reward at the far end"),
    (
        "n-chain",
        "chains:NChain",
        "chain with a large reward far away and a small one nearby",
    ),
    ("deep-sea", "chains:DeepSea", "N steps to the right in a row, or no reward"),
    ("garnet", "garnet:Garnet", "random sparse MDP with b successors per pair"),
    ("random-mdp", "garnet:RandomMDP", "Fed-UCBVI's instance: P ~ Dirichlet(1), r ~ U[0,1]"),
    (
        "continuous-linear",
        "continuous_linear:ContinuousLinearMDP",
        "linear MDP on [0, 1] with exact V*",
    ),
    ("gymnasium", "gym.convert:gymnasium", "any Gymnasium environment with discrete actions"),
):
    register(_name, f"fedlsvi.envs.{_home}", _summary)
register(
    "xi-close",
    "fedlsvi.envs.heterogeneous:XiCloseMDP",
    "one agent's MDP, xi-close to a linear reference (Definition 2)",
    {"reference": {"name": "random-linear", "params": {}}},
)
register(
    "restricted",
    "fedlsvi.envs.allowed:restricted",
    "another environment with only some actions allowed",
)
GYMNASIUM = REGISTRY.rows["gymnasium"]
