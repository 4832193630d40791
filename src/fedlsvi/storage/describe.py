"""A prepared problem written down: its job, and the arrays that no name can rebuild."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedlsvi.algorithms import registry as algorithms
from fedlsvi.config import Settings
from fedlsvi.core.random import uniforms
from fedlsvi.envs.base import Environment, plain
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.errors import InvalidEnvironment, InvalidFeatures
from fedlsvi.features import registry
from fedlsvi.features.base import FeatureMap, probe_states
from fedlsvi.features.tabular import OneHot, TableFeatures
from fedlsvi.protocol.plan import Plan, own_features
from fedlsvi.storage.job import ARRAYS, GIVEN, SHOWN, Job, compact
from fedlsvi.storage.settings_file import Table

ENVIRONMENT = "environment.safetensors"
FEATURES = "features.safetensors"

TRIAL = 16
"""Steps of an episode that tell continuous environments apart."""

Files = dict[str, dict[str, np.ndarray]]


def describe(plan: Plan, algorithm: str, settings: Settings) -> tuple[Job, Files]:
    """The job of a plan, and the files of arrays that it names."""
    files: Files = {}
    distinct = list({id(env): env for env in plan.envs}.values())
    shared = len(distinct) == 1
    kept = distinct if shared else list(plan.envs)
    specs = [env.spec() for env in kept]
    if all(spec["name"] is not None and "name" not in spec["params"] for spec in specs):
        entries = compact(specs)
    else:
        entries = [_keep(env, m, shared, files) for m, env in enumerate(kept)]
    features = _features(plan, files)
    given = plain(dataclasses.asdict(settings))
    if algorithm in algorithms.names():  # what its constructor takes, where that is less
        given = {k: v for k, v in given.items() if k in algorithms.entry(algorithm).parameters()}
    job = Job(
        algorithm, given, plan.parameters.episodes, plan.seed,
        entries, features,
    )  # fmt: skip
    return job, files


def _keep(env: Environment, m: int, alone: bool, files: Files) -> Table:
    """An entry that points at the environment's arrays, with its own units and numbers."""
    if not isinstance(env, FiniteMDP):
        return {"name": GIVEN, "what": type(env).__name__, "n_actions": int(env.n_actions)}
    prefix = "" if alone else f"{m}."
    moving = env.reward_on_transition
    arrays = {"P": env.P, "r": env.r if moving is None else moving, "initial": env.initial_laws}
    if env.phi is not None:
        arrays["phi"] = env.phi
    files.setdefault(ENVIRONMENT, {}).update({prefix + key: a for key, a in arrays.items()})
    entry: Table = {"name": ARRAYS, "file": ENVIRONMENT, "horizon": env.horizon}
    shown = {key: (plain(getattr(env, key)), plain(getattr(FiniteMDP, key))) for key in SHOWN}
    entry |= {key: own for key, (own, usual) in shown.items() if own != usual}
    entry |= env.titled()
    return entry if alone else entry | {"entry": m}


def _features(plan: Plan, files: Files) -> Table | None:
    """How to make the features again; None where they are the environment's own."""
    phi = plan.features
    if is_own(phi, plan.envs):
        return None
    if isinstance(phi, TableFeatures):
        files[FEATURES] = {"table": phi.table}
        return {"name": "table", "file": FEATURES}
    params = _parameters(phi)
    if params is None:
        return {"name": GIVEN, "what": getattr(_function(phi), "__name__", type(phi).__name__)}
    return params


def is_own(phi: FeatureMap, envs: Sequence[Environment]) -> bool:
    """Whether the environments themselves give this map, as an object or by the same function."""
    try:
        own = own_features(envs)
    except (InvalidFeatures, InvalidEnvironment):  # they have none in common
        return False
    same = type(phi) is type(own) and _function(phi) is not None
    return phi is own or (same and _function(phi) == _function(own))


def _function(phi: FeatureMap) -> Any:
    return getattr(phi, "fn", None)


def _parameters(phi: FeatureMap) -> Table | None:
    """Name and parameters of a feature map: what its `spec()` says, or those of its registered
    class, read from the attributes of the same names; None where neither is to be had."""
    own = phi.spec()
    if own is not None:
        return {"name": own["name"], **plain(own["params"])}
    for name in registry.names():
        row = registry.entry(name)
        keys = row.parameters()
        if row.constructor is type(phi) and all(hasattr(phi, key) for key in keys):
            return {"name": name, **plain({key: getattr(phi, key) for key in keys})}
    return None


def fingerprints(plan: Plan) -> list[str | None]:
    """What the environments are made of, so that a resumed run cannot go on with others: one for
    each agent, or one where all are alike."""
    distinct = {id(env): env for env in plan.envs}
    known = {key: _fingerprint(env) for key, env in distinct.items()}
    return collapsed([known[id(env)] for env in plan.envs])


def _fingerprint(env: Environment) -> str | None:
    """SHA-256 of what an environment is made of: its arrays, what it does at fixed draws, or its
    name and parameters; None of a black box that no name makes again."""
    if isinstance(env, FiniteMDP):
        return env.fingerprint
    if isinstance(env, ContinuousMDP):
        return hashlib.sha256(_trial(env)).hexdigest()
    spec = env.spec()
    if spec["name"] is None:
        return None
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()


def _trial(env: ContinuousMDP, n: int = 8) -> bytes:
    """States and rewards of n episodes of a few steps, in which all actions take turns."""
    x, said = probe_states(env, n), [f"{env.horizon} {env.n_actions}".encode()]
    k = env.draws_per_step
    u = uniforms(0, range(n), 1, 1, TRIAL * k).reshape(n, TRIAL, k)
    for h in range(1, min(env.horizon, TRIAL) + 1):
        a = (np.arange(n, dtype=np.int32) + h) % env.n_actions
        r, following = env.step(h, x, a, np.ascontiguousarray(u[:, h - 1]))
        for array in (x, r, following):  # in few digits, as those of features
            said.append((np.round(array, 6) + 0.0).astype("<f4").tobytes())
        x = following
    return b"".join(said)


def features_fingerprint(plan: Plan, by_name: bool = True) -> str:
    """SHA-256 of what tells feature maps apart: all values where states are finite, else name and
    parameters, or the values at a few first states where no name makes the map again (or none is
    asked for)."""
    phi = plan.features
    digest = hashlib.sha256(f"{phi.dim}".encode())
    if isinstance(phi, TableFeatures | OneHot):
        digest.update((phi.index.astype("<i8") if phi.one_hot else phi.table + 0.0).data)
    elif by_name and (params := _parameters(phi)) is not None:
        digest.update(json.dumps(params, sort_keys=True).encode())
    else:  # rounded, because another machine's cosine may differ in its last bit
        digest.update((phi(probe_states(plan.envs[0])).round(6) + 0.0).tobytes())
    return digest.hexdigest()


def collapsed(prints: list[str | None]) -> list[str | None]:
    """One fingerprint where all are equal."""
    return prints[:1] if len(set(prints)) == 1 else prints
