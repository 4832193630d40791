"""What a run folder holds before the first episode: how to play it again, and on what.

settings.toml     the job: algorithm, settings, environments, features
parameters.json   the numbers in force, and fingerprints of environments and features
*.safetensors     arrays of environments and features that no name can rebuild
versions.json     the libraries, and hashes of the other files; it is written last
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite.binding import get_host_cpu_name
from numba.core.config import CPU_NAME

from fedlsvi import __version__
from fedlsvi.algorithms import registry as algorithms
from fedlsvi.checks import integer, number, plural
from fedlsvi.config import Parameters, Settings
from fedlsvi.core.random import uniforms
from fedlsvi.envs.base import Environment, plain, units
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.per_agent import own_features
from fedlsvi.errors import DamagedFile, InvalidEnvironment, InvalidFeatures, StoreError
from fedlsvi.features import registry
from fedlsvi.features.base import FeatureMap, probe_states
from fedlsvi.features.recovery import VisitRecovery, visit_recovery
from fedlsvi.features.tabular import OneHot, TableFeatures
from fedlsvi.protocol.plan import Plan
from fedlsvi.storage import files
from fedlsvi.storage.schema import Shape, check_shape, parse_json, shape_of
from fedlsvi.storage.settings_file import (
    ARRAYS,
    AT_SITES,
    GIVEN,
    Job,
    Table,
    compact,
    dump,
    parse,
)

SETTINGS, PARAMETERS, VERSIONS = "settings.toml", "parameters.json", "versions.json"
EXTENDED = "extended.json"
"""What a run that went on has in addition; see `fedlsvi.storage.extension`."""
ENVIRONMENT, FEATURES = "environment.safetensors", "features.safetensors"
PRIOR = "prior.safetensors"
"""The model that a run began with."""
LIBRARIES = ("numpy", "scipy", "numba", "safetensors")

TRIAL = 16
"""Steps of an episode that tell continuous environments apart."""

_TEXT_OR_NOTHING = (str, None)
FACTS: Shape = {
    "parameters": shape_of(Parameters),
    "raw_scalars_per_step": int,
    "fingerprints": [_TEXT_OR_NOTHING],
    "features": _TEXT_OR_NOTHING,
    "reward_range": [float],
    "sites": (None, {"cuts": [[int]], "run": str}),
    "visits": (None, shape_of(VisitRecovery)),
}
SEAL: Shape = {
    "format": int,
    "versions": {"fedlsvi": str, str: Any},
    "files": {SETTINGS: files.STAMP, PARAMETERS: files.STAMP, str: files.STAMP},
}

LONGER: Shape = {
    "format": int,
    "episodes": int,
    "parameters": shape_of(Parameters),
    "differs": [str],
}

ArrayFiles = dict[str, dict[str, np.ndarray]]
"""File → name → array."""


def describe(plan: Plan, algorithm: str, settings: Settings) -> tuple[Job, ArrayFiles]:
    """The job of a plan, and the files of arrays that it names."""
    arrays: ArrayFiles = {}
    distinct = list({id(env): env for env in plan.envs}.values())
    shared = len(distinct) == 1
    kept = distinct if shared else list(plan.envs)
    specs = [env.spec() for env in kept]
    if all(spec["name"] is not None and "name" not in spec["params"] for spec in specs):
        entries = compact(specs)
    else:
        entries = [_keep(env, m, shared, arrays) for m, env in enumerate(kept)]
    features = _features(plan, arrays)
    given = plain(dataclasses.asdict(settings))
    if algorithm in algorithms.names():  # what its constructor takes, where that is less
        given = {k: v for k, v in given.items() if k in algorithms.entry(algorithm).parameters()}
    job = Job(algorithm, given, plan.parameters.episodes, plan.seed, entries, features)
    if plan.logs or plan.prior is not None:
        from fedlsvi.storage import warm_sources

        data, warm = warm_sources.described(plan, arrays, PRIOR)
        job = dataclasses.replace(job, data=data, warm_start=warm)
    return job, arrays


def _keep(env: Environment, m: int, alone: bool, kept: ArrayFiles) -> Table:
    """An entry that points at the environment's arrays, with its own units and numbers."""
    spec = env.spec()
    if env.recorded and spec["name"] is not None:
        return {"name": spec["name"], **spec["params"]}
    if not isinstance(env, FiniteMDP):
        read = spec["params"] if env.recorded else {}  # so that another log can be read alike
        size = {"n_actions": int(env.n_actions)}
        return {"name": GIVEN, "what": type(env).__name__, **size, **read}
    prefix = "" if alone else f"{m}."
    moving = env.reward_on_transition
    arrays = {"P": env.P, "r": env.r if moving is None else moving, "initial": env.initial_laws}
    if env.phi is not None:
        arrays["phi"] = env.phi
    kept.setdefault(ENVIRONMENT, {}).update({prefix + key: a for key, a in arrays.items()})
    entry: Table = {"name": ARRAYS, "file": ENVIRONMENT, "horizon": env.horizon}
    shown = {key: (plain(own), plain(vars(Environment)[key])) for key, own in env.shown.items()}
    entry |= {key: own for key, (own, usual) in shown.items() if own != usual}
    entry |= env.titled()
    return entry if alone else entry | {"entry": m}


def _features(plan: Plan, kept: ArrayFiles) -> Table | None:
    """How to make the features again; None where they are the environment's own."""
    phi = plan.features
    if is_own(phi, plan.envs):
        return None
    if isinstance(phi, TableFeatures):
        kept[FEATURES] = {"table": phi.table}
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
    prints = [known[id(env)] for env in plan.envs]
    prints = prints[:1] if len(set(prints)) == 1 else prints
    return [*prints, *(log.fingerprint for log in plan.logs if log is not None)]


def _fingerprint(env: Environment) -> str | None:
    """SHA-256 of what an environment is made of: its arrays, what it does at fixed draws, or its
    name and parameters; None of a black box that no name makes again."""
    if isinstance(env, FiniteMDP) or env.recorded:
        return env.fingerprint  # type: ignore[attr-defined, no-any-return]
    if isinstance(env, ContinuousMDP):
        return hashlib.sha256(_trial(env)).hexdigest()
    spec = env.spec()
    if spec["name"] is None:
        return None
    return files.json_hash(spec)


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
        digest.update((phi(probe_states(plan.world)).round(6) + 0.0).tobytes())
    return digest.hexdigest()


@cache
def _installed(name: str) -> str | None:
    """The version of a library. Its metadata takes milliseconds to parse, so it is read once."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def versions() -> dict[str, Any]:
    """What decides the last bit of a result."""
    found: dict[str, Any] = {"fedlsvi": __version__, "python": platform.python_version()}
    found |= {name: _installed(name) for name in LIBRARIES}
    machine = {"platform": platform.platform(), "machine": platform.machine()}
    return found | machine | {"cpus": os.cpu_count(), "cpu": CPU_NAME or get_host_cpu_name()}


def header_files(plan: Plan, algorithm: str, settings: Settings) -> dict[str, bytes]:
    """Name → contents of the header of a run whose environments are here."""
    job, arrays = describe(plan, algorithm, settings)
    visits = visit_recovery(plan.features)
    facts = {
        "raw_scalars_per_step": plan.raw_scalars_per_step,
        "fingerprints": fingerprints(plan),
        "features": features_fingerprint(plan),
        "reward_range": plain(plan.world.reward_range),
        "sites": None,
        "visits": visits and dataclasses.asdict(visits),
    }
    again = "`fedlsvi run` on this file plays the same run again."
    return _contents(job, plan.parameters, facts, arrays, again)


def header_files_at_sites(
    parameters: Parameters,
    settings: Mapping[str, Any],
    seed: int,
    features: Table | None,
    reward_range: Sequence[float],
    cuts: Sequence[tuple[int, int]],
    run: str,
    algorithm: str = "fed-lsvi",
) -> dict[str, bytes]:
    """Name → contents of the header of a run whose environments are at sites, and known only there.

    Args:
        parameters: The numbers in force.
        settings: What was asked of the algorithm, without the number of agents.
        seed: The seed.
        features: Name and parameters of the features; None is each environment's own.
        reward_range: What rewards 0 and 1 stand for, at every site.
        cuts: (first agent, agents) of each site.
        run: What messages and logs call the run.
        algorithm: The algorithm's name.
    """
    p = parameters
    env = {"name": AT_SITES, "horizon": p.horizon, "dim": p.dim}
    job = Job(algorithm, {"n_agents": p.n_agents, **settings}, p.episodes, seed, [env], features)
    facts = {
        "raw_scalars_per_step": 0,
        "fingerprints": [None],
        "features": None,
        "reward_range": list(reward_range),
        "sites": {"cuts": [list(cut) for cut in cuts], "run": run},
        "visits": None,
    }
    return _contents(job, p, facts, {}, "The environments of this run are at its sites.")


def _contents(
    job: Job, p: Parameters, facts: dict[str, Any], arrays: ArrayFiles, note: str
) -> dict[str, bytes]:
    """versions.json comes last and vouches for the others."""
    from safetensors.numpy import save

    force = f"gamma = {p.gamma:g}, beta = {p.beta:g}, lam = {p.lam:g}, packing = {p.packing}"
    numbers = {"parameters": dataclasses.asdict(p), **facts}
    contents = {
        SETTINGS: f"# {note} In force: {force}\n{dump(job.table())}".encode(),
        PARAMETERS: json.dumps(numbers, indent=1).encode() + b"\n",
    }
    for name, parts in arrays.items():
        contents[name] = save({key: np.ascontiguousarray(a) for key, a in parts.items()})
    stamps = {name: files.stamp(data) for name, data in contents.items()}
    seal = {"format": files.FORMAT, "versions": versions(), "files": stamps}
    return contents | {VERSIONS: files.sealed(seal)}


@dataclasses.dataclass(frozen=True)
class RunHeader:
    """A header that was read back and verified.

    Attributes:
        run: The folder.
        job: What was asked for.
        parameters: The numbers in force.
        raw_scalars_per_step: ρ; 0 where no environment is here.
        fingerprints: Of the environments: one for each agent, or one where all are alike; None
            where an environment has none.
        features: Fingerprint of the feature map; None where no environment is here.
        reward_range: What rewards 0 and 1 stand for in agent 0's environment.
        sites: Where agents are at sites: their `cuts`, and the name of the `run` in logs.
        visits: What uploads give away about visits, where that is known.
        versions: What it ran on.
        extended: How the run differs from one that had its T from the start; see `Run.extended`.
    """

    run: Path
    job: Job
    parameters: Parameters
    raw_scalars_per_step: int
    fingerprints: list[str | None]
    features: str | None
    reward_range: tuple[float, float]
    sites: dict[str, Any] | None
    visits: VisitRecovery | None
    versions: dict[str, Any]
    extended: tuple[str, ...] = ()


def read_header(folder: str | PathLike[str]) -> RunHeader:
    """The header of a run folder."""
    run = Path(folder)
    if not files.exists(run / VERSIONS):
        where = f"it has no {VERSIONS}" if files.exists(run) else "there is no such folder"
        seeds = sorted(run.glob(f"seed-*/{VERSIONS}"))
        if seeds:
            where = f"it holds runs of several seeds, such as {seeds[0].parent}"
        raise StoreError(f"no run in {run}: {where}; give the folder of a run", code="no-run")
    sealed = files.read_json(files.inside(run, VERSIONS), SEAL)
    stamps = sealed["files"].items()
    contents = {name: files.read(files.inside(run, name), stamp) for name, stamp in stamps}
    header = parse_header(run, contents, sealed["versions"])
    return _longer(header) if files.exists(run / EXTENDED) else header


def _longer(header: RunHeader) -> RunHeader:
    """The header of a run that went on, with the numbers in force since."""
    path = files.inside(header.run, EXTENDED)
    content = files.read_json(path, LONGER)
    p = _checked(Parameters(**content["parameters"]))
    sizes = ("n_agents", "horizon", "dim", "packing")
    same = all(getattr(p, name) == getattr(header.parameters, name) for name in sizes)
    if not same or p.episodes != content["episodes"]:
        raise DamagedFile(
            f"{path} belongs to another run: restore it from a backup", code="damaged"
        )
    return dataclasses.replace(
        header,
        job=dataclasses.replace(header.job, episodes=p.episodes),
        parameters=p,
        extended=tuple(content["differs"]),
    )


def _checked(p: Parameters) -> Parameters:
    """The numbers in force, checked as those of a user."""
    for name in ("episodes", "horizon", "dim"):
        integer(name, getattr(p, name), 1)
    number("growth", p.growth, 0.0)
    asked = {field.name for field in dataclasses.fields(Settings)} - {"rounds"}
    Settings(**{name: value for name, value in vars(p).items() if name in asked})
    if p.privacy is not None:
        integer("rounds", p.rounds, 1)
        p.check_release()
    return p


def parse_header(
    run: Path, contents: Mapping[str, bytes], made: dict[str, Any] | None = None
) -> RunHeader:
    """The header that these files are; `made`: the versions that wrote them."""
    job = Job.parse(parse(contents[SETTINGS], run / SETTINGS), run)
    own = [name for name in (ENVIRONMENT, FEATURES, PRIOR) if name in contents]
    prior = {"name": ARRAYS, **(job.warm_start or {"file": own})}
    for entry in (*job.env, job.features or {}, prior):
        if entry.get("name") in (ARRAYS, "table") and entry.get("file", own) not in (own, *own):
            raise DamagedFile(
                f"{run / SETTINGS} names the file {entry['file']!r}, which does not belong to "
                "this run",
                code="foreign-file",
            )
    facts = parse_json(run / PARAMETERS, contents[PARAMETERS])
    check_shape(run / PARAMETERS, facts, FACTS)
    facts["parameters"] = p = _checked(Parameters(**facts["parameters"]))
    facts["reward_range"] = units(facts["reward_range"])
    facts["visits"] = facts["visits"] and VisitRecovery(**facts["visits"])
    if (job.episodes, job.settings.get("n_agents", p.n_agents)) != (p.episodes, p.n_agents):
        raise DamagedFile(
            f"{run / PARAMETERS} is of {plural(p.n_agents, 'agent')} and "
            f"{plural(p.episodes, 'episode')}, "
            f"{SETTINGS} of others",
            code="damaged",
        )
    return RunHeader(run=run, job=job, versions=made or versions(), **facts)
