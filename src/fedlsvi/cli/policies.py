"""`fedlsvi evaluate` and `fedlsvi record`: a learned policy in its environment, or in another."""

from __future__ import annotations

import argparse
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

from fedlsvi.cli.text import as_json
from fedlsvi.envs import registry
from fedlsvi.envs.base import Environment
from fedlsvi.envs.gym import REGISTERED, as_environment
from fedlsvi.envs.gym_ids import find_spec
from fedlsvi.envs.gym_play import evaluate_policy, record
from fedlsvi.errors import InvalidInput, refuse_unknown
from fedlsvi.job import ARRAYS, GIVEN, Job
from fedlsvi.plugin import IDS
from fedlsvi.policy import Policy
from fedlsvi.settings_file import Table, assign

LEARNING = ("env.reward_range", "env.tables")
"""Parameters of Gymnasium environments that say how one learns in them."""


class Stage(NamedTuple):
    """Where a policy is played."""

    env: Any
    """An environment of this package, or a Gymnasium id."""
    kwargs: dict[str, Any] | None
    """Options of `gymnasium.make`."""
    name: str


def do_evaluate(arguments: argparse.Namespace) -> int:
    """Play whole episodes; print the mean return and its interval."""
    policy, (env, kwargs, name) = _ready(arguments)
    found = evaluate_policy(policy, env, arguments.episodes, arguments.seed, kwargs=kwargs)
    low, high = found.interval
    if arguments.format == "json":
        print(as_json({"environment": name, "mean": found.mean, "low": low, "high": high,
                       "episodes": len(found.returns)}))  # fmt: skip
    else:
        print(f"mean return in {name}: {found}")
    return 0


def do_record(arguments: argparse.Namespace) -> int:
    """Play one episode into a file."""
    policy, (env, kwargs, name) = _ready(arguments)
    earned = record(policy, env, arguments.out, arguments.seed, kwargs=kwargs)
    found = {"file": arguments.out, "environment": name, "return": earned}
    text = f"wrote {arguments.out}: one episode in {name}, return {earned:g}"
    print(as_json(found) if arguments.format == "json" else text)
    return 0


def _ready(arguments: argparse.Namespace) -> tuple[Policy, Stage]:
    """The policy, and where it is played."""
    policy = _policy(arguments.policy)
    stage = _stage(arguments, policy)
    if (policy.environment or {}).get("name") == GIVEN:  # a run folder cannot make it
        env, H = stage.env, policy.horizon
        if not isinstance(env, Environment):
            env = as_environment(env, horizon=H, kwargs=stage.kwargs, tables=False)
        policy = _policy(arguments.policy, env)
    return policy, stage


def _policy(folder: str, env: Any = None) -> Policy:
    """A folder that `policy.save` wrote, or a run folder."""
    path = Path(folder)
    if (path / "policy.json").exists():
        return Policy.load(path)
    if (path / "settings.toml").exists():
        from fedlsvi.store import load

        return load(path, env=env).policy
    raise InvalidInput(
        f"{folder} holds neither a policy nor a run: give a folder of `policy.save` or of `run`"
    )


def _stage(arguments: argparse.Namespace, policy: Policy) -> Stage:
    """The environment that is asked for, by default the one that the policy was learned in."""
    entry = _entry(arguments, policy)
    name = entry["name"]
    if name == ARRAYS or (name in registry.names() and name != REGISTERED):
        made = Job.parse({"env": entry}, Path(arguments.policy)).environments()
        assert not isinstance(made, list)  # of one agent
        return Stage(made, None, made.name)
    find_spec(str(entry.get("id", name)))  # refuses what nobody has registered
    known = registry.entry(REGISTERED).parameters()
    refuse_unknown(f"parameter of environment '{name}'", entry.keys() - {"name"}, known)
    if entry.get("horizon") not in (None, policy.horizon):
        raise InvalidInput(
            f"env.horizon is {entry['horizon']!r}, the policy knows {policy.horizon} steps: "
            "leave it out"
        )
    for key in (change.partition("=")[0].strip() for change in arguments.changes):
        if key in LEARNING:
            raise InvalidInput(
                f"{key} is for learning: here the environment itself is stepped and returns are "
                "in its own units, leave it out"
            )
    id, kwargs = str(entry.get("id", name)), entry.get("kwargs") or {}
    if not isinstance(kwargs, dict):
        raise InvalidInput(f"env.kwargs is {kwargs!r}: give --set env.kwargs.NAME=VALUE")
    inside = ", ".join(f"{key} = {value!r}" for key, value in kwargs.items())
    return Stage(id, kwargs, f"{id} ({inside})" if inside else id)


def _entry(arguments: argparse.Namespace, policy: Policy) -> Table:
    """The table of the environment, as in a settings file. What the policy's own was made with
    stays only where --env names the same one, or none."""
    entry = _own(arguments, policy)
    if arguments.env is not None:
        name = IDS.get(arguments.env, arguments.env)
        if entry is None or name not in (entry["name"], entry.get("id")):
            entry = {"name": name}
            own = name in registry.names() and name != REGISTERED
            if own and "horizon" in registry.entry(name).parameters():
                entry["horizon"] = policy.horizon
    if entry is None:
        raise InvalidInput(
            f"{arguments.policy} does not say how its environment is made: give --env NAME"
        )
    table: Table = {"env": entry}
    for change in arguments.changes:
        assign(table, change)
        if set(table) != {"env"} or not isinstance(table["env"], dict):
            raise InvalidInput(
                f"--set {change!r} is no parameter of the environment: write env.KEY=VALUE, "
                "e.g. env.kwargs.is_slippery=false"
            )
    return entry


def _own(arguments: argparse.Namespace, policy: Policy) -> Table | None:
    """How the policy's own environment is made, where it can be made again."""
    made = policy.environment or {}
    name = made.get("name")
    if name in (None, GIVEN):
        return None
    if name == ARRAYS and not (Path(arguments.policy) / "settings.toml").exists():
        return None  # they stayed in the run's folder
    return {"name": name, **deepcopy(made["params"])}
