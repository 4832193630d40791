"""A run folder read back as a `Run`, without changing a byte of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from fedlsvi.config import Parameters
from fedlsvi.core.model_fit import FIT
from fedlsvi.core.statistics import every_step
from fedlsvi.envs.base import Environment, units
from fedlsvi.envs.gym.convert import as_environment
from fedlsvi.envs.per_agent import first_world, same_features
from fedlsvi.envs.spaces import Spaces
from fedlsvi.errors import DamagedFile, FedLSVIError, InvalidInput, StoreError, UnknownName
from fedlsvi.experience.kinds import empty_values
from fedlsvi.experience.values import TabularValues
from fedlsvi.features.base import resolve
from fedlsvi.policy import Policy, Values
from fedlsvi.protocol.ledger import CATEGORIES, Ledger
from fedlsvi.protocol.plan import Plan, make_plan
from fedlsvi.protocol.records import Ending, RoundRecord
from fedlsvi.run import Run
from fedlsvi.storage import checkpoint, files
from fedlsvi.storage.checkpoint import AGENT_POLICIES, DEPLOYED, POLICY, RECORDS, REGRET, Manifest
from fedlsvi.storage.run_header import (
    RunHeader,
    features_fingerprint,
    fingerprints,
    is_own,
    read_header,
)
from fedlsvi.storage.schema import Shape, check_shape, parse_json, shape_of, suspect
from fedlsvi.storage.settings_file import GIVEN

RECORD: Shape = shape_of(RoundRecord) | {
    "scalars": dict.fromkeys(CATEGORIES, int),
    "seconds": dict.fromkeys(("explore", "synchronise", "evaluate"), float),
}
"""A line of records.jsonl."""

Found = tuple[Manifest, dict[str, np.ndarray]]


def notice(text: str) -> None:
    """Tell whoever is at the terminal; results go elsewhere."""
    print(f"fedlsvi: notice: {text}", file=sys.stderr)


def load(folder: str | PathLike[str], *, env: Any = None, features: Any = None) -> Run:
    """Read a run back, finished or not: as far as its newest checkpoint.

    Args:
        folder: The folder of the run.
        env: The environment; needed only to act with `run.policy` and for `run.references()`, and
            only where the folder cannot make it.
        features: The feature map, likewise.
    """
    header = read_header(folder)
    found = checkpoint.newest(header.run, notice)
    if found is None:
        again = f"`fedlsvi resume {quote(str(header.run))}` plays it"
        raise StoreError(
            f"the run in {header.run} has no checkpoint yet: {again}", code="no-checkpoint"
        )
    return loaded(header, found, env, features)


def loaded(header: RunHeader, found: Found, env: Any = None, features: Any = None) -> Run:
    """The run at a checkpoint. Its policy is built when it is first asked, because a report does
    not need the environment and must not fail where it cannot be made."""
    manifest, arrays = found
    path = header.run / checkpoint.CHECKPOINTS / f"{manifest.stem}.safetensors"
    check_model(path, header.parameters, manifest.plain["ledger"], arrays)
    past = records(header.run, manifest)
    with suspect(path):
        ledger = Ledger.from_dict(manifest.plain["ledger"])
        counts = dict(manifest.plain.get("counts", {}))
    horizon, entry = header.parameters.horizon, _spec(header.job.first_entry)
    exploring = Policy(lambda: _model(header, arrays, env, features), horizon, entry)
    weights, policy = arrays.get(DEPLOYED + "w"), exploring
    if weights is not None:
        policy = Policy(lambda: _model(header, arrays, env, features, DEPLOYED), horizon, entry)
    return Run(
        regret=regret(header.run, manifest),
        taus=[1, *(r.last + 1 for r in past)],
        w=arrays["w"],
        gram_packed=every_step(arrays["gram"], header.parameters.horizon),
        ledger=ledger,
        policy=policy,
        exploring_policy=exploring,
        policy_w=weights,
        agent_policies=_agent_policies(header, features),
        fit=arrays.get("fit"),
        records=past,
        parameters=header.parameters,
        settings=header.job.learner().settings,
        seed=header.job.seed,
        environment=[_spec(entry) for entry in header.job.env],
        algorithm=header.job.algorithm,
        raw_scalars_per_step=header.raw_scalars_per_step,
        folder=str(header.run),
        counts=counts,
        ending=_ending(header, manifest),
        extended=header.extended,
        world=lambda: _world(header, env),
        reward_range=header.reward_range,
        visits=header.visits,
    )


def _agent_policies(header: RunHeader, features: Any) -> tuple[Policy, ...]:
    """Each agent's, where the folder has them."""
    p = header.parameters
    paths = [header.run / AGENT_POLICIES / str(m) for m in range(p.n_agents * (p.own_features > 0))]
    if not all(map(files.exists, paths)):
        return ()
    entry = _spec(header.job.first_entry)
    builds = [partial(_agent_policy, path, header, features) for path in paths]
    return tuple(Policy(build, p.horizon, entry) for build in builds)


def _agent_policy(path: Path, header: RunHeader, features: Any) -> tuple[Values, Spaces]:
    from fedlsvi.storage.policy_file import read

    return read(path, _made(features, header.job.feature_map)).build()


def _ending(header: RunHeader, manifest: Manifest) -> Ending:
    """How the run came to this checkpoint."""
    if manifest.plain["t"] == header.parameters.episodes:
        return "finished"
    said = manifest.plain.get("ending")
    return said if said in ("stopped", "interrupted") else "unfinished"


def check_model(
    path: Path, p: Parameters, ledger: dict[str, Any], arrays: dict[str, np.ndarray]
) -> None:
    """Refuse a model or a ledger of other sizes than the run's."""
    square = (p.dim,) if p.packing == "diagonal" else (p.dim, p.dim)
    sizes = {"w": (p.horizon, p.dim), "gram": (p.matrices, *square)}
    if p.noisy:
        sizes["noise"] = (p.horizon,)
    if "fit" in arrays:
        sizes["fit"] = (p.n_agents, p.horizon, FIT)
    if DEPLOYED + "w" in arrays:
        sizes[DEPLOYED + "w"] = (p.horizon, p.dim)
    fits = all(
        name in arrays and arrays[name].shape == size and arrays[name].dtype == np.float64
        for name, size in sizes.items()
    )
    for table in (arrays[name] for name in (POLICY, DEPLOYED + POLICY) if name in arrays):
        fits = fits and table.ndim == 2 and len(table) == p.horizon and table.dtype.kind in "iu"
    if not fits or ledger["n_agents"] != p.n_agents:
        raise DamagedFile(
            f"{path} has a different number of steps, features or agents than the run: restore it "
            "from a backup, or start over",
            code="damaged",
        )


def _spec(entry: dict[str, Any]) -> dict[str, Any]:
    params = {key: value for key, value in entry.items() if key != "name"}
    return {"name": entry["name"], "params": params}


def problem(header: RunHeader, env: Any, features: Any) -> tuple[Any, Any]:
    """Environments and features: those given, else those that the folder describes."""
    return _made(env, header.job.environments), _made(features, header.job.feature_map)


def _made(given: Any, make: Callable[[], Any]) -> Any:
    try:
        return make() if given is None else given
    except UnknownName as error:
        raise InvalidInput(
            f"{error} Import the module that registers it first, or give env= or features= again",
            code=error.code,
        ) from None


def _first(header: RunHeader, env: Any) -> Any:
    """Agent 0's environment: all agents act alike."""
    found = _made(env, header.job.first_environment)
    if not isinstance(found, Sequence) or isinstance(found, str):
        return found
    if not found:
        raise InvalidInput(
            "env is an empty list: give one environment, or one per agent", code="bad-env"
        )
    # all of them, because they share a reward range
    return first_world(as_environment([one for one in found if one is not None]))


def _world(header: RunHeader, env: Any) -> Environment:
    """The same, in the units of the run."""
    found: Environment = as_environment(_first(header, env))
    check_units(header, found)
    return found


def _model(
    header: RunHeader, arrays: dict[str, np.ndarray], env: Any, features: Any, prefix: str = ""
) -> tuple[Values, Spaces]:
    """The model of the checkpoint, ready to act; `prefix`: of the arrays that it is made of."""
    if prefix:
        part = {name.removeprefix(prefix): a for name, a in arrays.items() if prefix in name}
        arrays = {"gram": arrays["gram"]} | part
    job, p = header.job, header.parameters
    world, phi = _first(header, env), _made(features, job.feature_map)
    begins = {"logs": (None,) * p.n_agents, "logged": p.logged} if p.logged else {}
    plan = make_plan(job.learner().settings, world, p.episodes, job.seed, phi, **begins)  # type: ignore[arg-type]
    values = empty_values(plan)
    check_sizes(header, plan, arrays.get(POLICY))
    # a table acts without features, whatever those of the environment are
    own = env is not None and job.features is None and POLICY not in arrays
    if features is not None or own:
        check_features(header, plan)
    values.head = p.head
    if prefix:
        values = values.another(-p.pessimism)
    grams, w = every_step(arrays["gram"], p.horizon), arrays["w"]
    if values.noise is not None:
        if "noise" not in arrays:
            raise DamagedFile(
                f"{header.run}: the settings ask for a bonus that knows the noise, and the last "
                "checkpoint has none: restore it from a backup",
                code="damaged",
            )
        w = np.column_stack([w, arrays["noise"]])
    for h in range(p.horizon, 0, -1):
        values.update(h, w[h - 1], grams[h - 1])
    if POLICY in arrays and isinstance(values, TabularValues):
        refuse_actions(header.run, arrays, plan)
        values.policy[:] = arrays[POLICY]
    return values, Spaces.of(plan.world)


def refuse_actions(path: Path, arrays: dict[str, np.ndarray], plan: Plan | None) -> None:
    """Refuse actions that do not exist: compiled code looks them up without a check."""
    for name, table in arrays.items():
        if plan is not None and table.size and name.split(".")[-1] in (POLICY, "actions"):
            n_actions = plan.world.n_actions
            if not 0 <= table.min() <= table.max() < n_actions:
                raise DamagedFile(
                    f"{path}: {name} holds actions from {table.min()} to {table.max()}, but there "
                    f"are only {n_actions}: restore it from a backup",
                    code="damaged",
                )


def check_sizes(header: RunHeader, plan: Plan, table: np.ndarray | None) -> None:
    """Refuse an environment or features of another size than those of the run."""
    then, now, env = header.parameters, plan.parameters, plan.world
    n_states = env.n_states if env.finite else None
    size = plan.raw_scalars_per_step
    entry = header.job.first_entry  # elsewhere a parameter of this name may be another number
    n_actions = entry.get("n_actions", env.n_actions) if entry["name"] == GIVEN else env.n_actions
    for what, here, there in (
        ("horizon", now.horizon, then.horizon),
        ("number of states", n_states, n_states if table is None else table.shape[1]),
        ("length of a state", size - 2, (header.raw_scalars_per_step or size) - 2),
        ("number of actions", env.n_actions, n_actions),
        ("dimension of the features", now.dim, then.dim),
    ):
        _check_same(header, env, what, here, there)


def check_features(header: RunHeader, plan: Plan) -> None:
    """Refuse features other than those of the run: the folder's own where it makes them, else
    those of its fingerprint."""
    env, phi = plan.world, plan.features
    if header.job.features is None and is_own(phi, plan.envs):  # to compare them tells nothing
        same = header.features in (None, features_fingerprint(plan))
        if not same and (phi.spec() is not None or not _same_values(header, plan)):
            raise StoreError(
                f"the features of {env.name} are not those that the run in {header.run} started "
                "with: give the environment it was learned in, env=...",
                code="other-features",
            )
        return
    try:
        same = same_features(resolve(header.job.feature_map(), env), phi, env)
    except UnknownName:  # the fingerprint is of a name, and an object may stand in its place
        same = phi.spec() is None or header.features in (None, features_fingerprint(plan))
    except (FedLSVIError, ImportError):  # they were an object, and the fingerprint is of values
        same = _same_values(header, plan)
    if not same:
        raise StoreError(
            f"the run in {header.run} started with different features: give the same ones, "
            "features=..., or leave features out if the folder names them",
            code="other-features",
        )


def _same_values(header: RunHeader, plan: Plan) -> bool:
    """Whether φ has the values of the fingerprint at first states, as far as these can be told to
    be those of the run: at others the values are others too, and so they are every time where the
    resets of a black box do not repeat."""
    found = features_fingerprint(plan, by_name=False)
    comparable = header.fingerprints[0] in (None, fingerprints(plan)[0])
    comparable = comparable and features_fingerprint(plan, by_name=False) == found
    return header.features in (None, found) or not comparable


def check_units(header: RunHeader, env: Environment) -> None:
    """Refuse an environment whose rewards 0 and 1 stand for others than those of the run."""
    _check_same(header, env, "reward range", units(env.reward_range), header.reward_range)


def _check_same(header: RunHeader, env: Environment, what: str, here: Any, there: Any) -> None:
    if here != there:
        raise InvalidInput(
            f"the {what} is {here} in {env.name}, but {there} in the run in {header.run}: give "
            "the same env= or features= as for learning",
            code="other-problem",
        )


def records(run: Path, manifest: Manifest) -> list[RoundRecord]:
    """The records that the checkpoint vouches for."""
    path, t = files.inside(run, RECORDS), manifest.plain["t"]
    found = parse_records(path, files.read_prefix(path, manifest.appended[RECORDS]))
    if [1, *(r.last + 1 for r in found)] != [*(r.first for r in found), t + 1]:
        raise DamagedFile(f"{path}: the rounds do not lead to episode {t}", code="damaged")
    return found


def parse_records(path: Path, lines: bytes) -> list[RoundRecord]:
    """The records that stand in records.jsonl."""
    contents = [parse_json(path, line) for line in lines.splitlines()]
    check_shape(path, contents, [RECORD])
    return [RoundRecord.from_dict(content) for content in contents]


def regret(run: Path, manifest: Manifest) -> np.ndarray | None:
    """Cumulative regret of the episodes so far; None where nobody knows V*."""
    if REGRET not in manifest.appended:
        return None
    data = files.read_prefix(files.inside(run, REGRET), manifest.appended[REGRET])
    return np.frombuffer(data, "<f8").astype(np.float64)
