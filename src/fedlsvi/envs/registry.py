"""Environments by name: what settings, run folders and the command line say."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fedlsvi.envs.base import Environment
from fedlsvi.envs.chains import DeepSea, NChain, RiverSwim
from fedlsvi.envs.continuous_linear import ContinuousLinearMDP
from fedlsvi.envs.garnet import Garnet, RandomMDP
from fedlsvi.envs.gym.convert import REGISTERED, gymnasium
from fedlsvi.envs.gym.ids import looks_like_id
from fedlsvi.envs.hard import CombinationLock, HardChain
from fedlsvi.envs.heterogeneous import XiCloseMDP
from fedlsvi.envs.linear import RandomLinearMDP
from fedlsvi.errors import FedLSVIError, InvalidEnvironment, UnknownName, refuse_unknown
from fedlsvi.registry import load_extensions


@dataclass(frozen=True)
class EnvironmentEntry:
    """A row of the registry; `defaults` go before the constructor's own."""

    name: str
    constructor: Callable[..., Environment]
    summary: str
    defaults: dict[str, Any] = field(default_factory=dict)

    def parameters(self) -> dict[str, Any]:
        """Parameters and their defaults (None where there is none)."""
        return {
            key: None if parameter.default is inspect.Parameter.empty else parameter.default
            for key, parameter in inspect.signature(self.constructor).parameters.items()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        } | self.defaults

    def takes_anything(self) -> bool:
        """Whether the constructor has **kwargs, so that its parameters cannot be checked here."""
        kinds = [p.kind for p in inspect.signature(self.constructor).parameters.values()]
        return inspect.Parameter.VAR_KEYWORD in kinds


_ENTRIES: dict[str, EnvironmentEntry] = {}


def register(
    name: str,
    constructor: Callable[..., Environment],
    summary: str,
    defaults: dict[str, Any] | None = None,
) -> None:
    """Add an environment; a name is taken once. Its parameters must be ready for JSON."""
    if name in _ENTRIES:
        raise InvalidEnvironment(f"environment '{name}' is registered already: choose another name")
    _ENTRIES[name] = EnvironmentEntry(name, constructor, summary, defaults or {})


def names() -> list[str]:
    """Every registered name, sorted."""
    load_extensions()
    return sorted(_ENTRIES)


def entry(name: str) -> EnvironmentEntry:
    """The row of a name; a Gymnasium id is a row of its own."""
    if name not in _ENTRIES:
        load_extensions()
    if name not in _ENTRIES:
        if looks_like_id(name):
            row = _ENTRIES[REGISTERED]
            return EnvironmentEntry(name, row.constructor, row.summary, {"id": name})
        raise UnknownName("environment", name, _ENTRIES)
    return _ENTRIES[name]


def make(name: str, /, **params: Any) -> Environment:
    """The environment of this name; parameters left out take the defaults of its row."""
    row = entry(name)
    known = row.parameters()
    if not row.takes_anything():
        refuse_unknown(f"parameter of environment '{name}'", params, known)
    given = row.defaults | params
    try:
        env = row.constructor(**given)
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        if isinstance(error, FedLSVIError):
            raise
        raise InvalidEnvironment(
            f"environment '{name}' cannot be made from {given}: {error}"
        ) from error
    if not isinstance(env, Environment):
        raise InvalidEnvironment(
            f"the constructor of environment '{name}' returned {env!r}: it must return an "
            "environment"
        )
    if env.spec()["name"] is None and row.constructor is not gymnasium:  # which records itself
        env.record(name, **given)
    return env


def from_spec(spec: dict[str, Any]) -> Environment:
    """Rebuild the environment that gave this `spec()`."""
    if not isinstance(spec, dict) or set(spec) != {"name", "params"}:
        raise InvalidEnvironment(
            f"spec is {spec!r}: give {{'name': ..., 'params': {{...}}}}, as env.spec() does"
        )
    if spec["name"] is None:
        raise InvalidEnvironment(
            "spec has no name, because the environment was made from arrays: give the environment "
            "itself again, or register a constructor with fedlsvi.envs.register"
        )
    return make(spec["name"], **spec["params"])


register(
    "random-linear", RandomLinearMDP, "random linear MDP with simplex features and anchor pairs"
)
register("hard-chain", HardChain, "hard linear MDP of Zhou, Gu & Szepesvári; 2^(dim−1) actions")
register("combination-lock", CombinationLock, "one action opens, every other falls off for good")
register("river-swim", RiverSwim, "swim right against the current for a reward at the far end")
register("n-chain", NChain, "deterministic chain, reward at the far end, a trifle at the near one")
register("deep-sea", DeepSea, "N rights in a row or nothing")
register("garnet", Garnet, "random sparse MDP with b successors per pair")
register("random-mdp", RandomMDP, "Fed-UCBVI's instance: P ~ Dirichlet(1), r ~ U[0,1], per step")
register("continuous-linear", ContinuousLinearMDP, "linear MDP on [0, 1] with exact V*")
register(
    "xi-close",
    XiCloseMDP,
    "one agent's MDP, xi-close to a linear reference (Definition 2)",
    {"reference": {"name": "random-linear", "params": {}}},
)
register(REGISTERED, gymnasium, "any Gymnasium environment with discrete actions, by its id")
