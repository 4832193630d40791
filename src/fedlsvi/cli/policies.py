"""`fedlsvi evaluate` and `fedlsvi record`: a learned policy in its environment, or in another."""

from __future__ import annotations

import argparse
import reprlib
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.cli.text import as_json
from fedlsvi.envs import registry
from fedlsvi.envs.base import Environment, plain
from fedlsvi.envs.gym.convert import REGISTERED, as_environment
from fedlsvi.envs.gym.ids import IDS, find_spec
from fedlsvi.envs.gym.play import Evaluation, evaluate_policy, record
from fedlsvi.errors import InvalidInput, refuse_unknown
from fedlsvi.policy import Policy
from fedlsvi.remote import federation
from fedlsvi.storage.job import ARRAYS, AT_SITES, GIVEN, Job
from fedlsvi.storage.settings_file import Table, assign

LEARNING = ("env.reward_range", "env.tables")
"""Parameters of Gymnasium environments that say how one learns in them."""


class Stage(NamedTuple):
    """Where a policy is played."""

    env: Any
    """An environment of this package, or a Gymnasium id."""
    kwargs: dict[str, Any] | None
    """Options of `gymnasium.make`."""
    name: str
    agent: int = 0
    """Whose it is."""


class Learned(NamedTuple):
    """A policy, and what its folder says of the environments that it was learned in."""

    policy: Policy
    made: list[dict[str, Any]]
    """One for all agents, or one for each."""
    n_agents: int


def do_evaluate(arguments: argparse.Namespace) -> int:
    """Play whole episodes in every agent's environment; print mean returns and intervals."""
    policy, stages = _ready(arguments)
    found = [
        evaluate_policy(policy, env, arguments.episodes, arguments.seed, kwargs=kwargs, agent=agent)
        for env, kwargs, _, agent in stages
    ]
    alone = len(stages) == 1
    name = stages[0].name if alone else f"the environments of {len(stages)} agents"
    # episode t of them all is the mean of the agents' episodes t, so that every agent counts alike
    returns, lengths = zip(*((one.returns, one.lengths) for one in found), strict=True)
    every = Evaluation(np.mean(returns, axis=0), np.mean(lengths, axis=0))
    if arguments.format == "json":
        agents = [
            {"agent": stage.agent, **_row(stage.name, one)}
            for stage, one in zip(stages, found, strict=True)
        ]
        print(as_json(_row(name, every) | ({} if alone else {"agents": agents})))
        return 0
    print(f"mean return in {name}: {every}")
    for stage, one in zip(stages, found, strict=True):
        if not alone:
            print(f"  agent {stage.agent}, {stage.name}: {one}")
    return 0


def _row(name: str, found: Evaluation) -> dict[str, Any]:
    """An evaluation, ready for JSON: null where there is no interval."""
    low, high = found.interval or (None, None)
    return {"environment": name, "mean": found.mean, "low": low, "high": high,
            "episodes": len(found.returns)}  # fmt: skip


def do_record(arguments: argparse.Namespace) -> int:
    """Play one episode, of the first agent where agents differ, into a file."""
    policy, stages = _ready(arguments)
    env, kwargs, name, agent = stages[0]
    earned = record(policy, env, arguments.out, arguments.seed, kwargs=kwargs, agent=agent)
    found = {"file": arguments.out, "environment": name, "return": earned}
    whose = "" if len(stages) == 1 else f" of agent {agent}"
    text = f"wrote {arguments.out}: one episode{whose} in {name}, return {earned:g}"
    print(as_json(found) if arguments.format == "json" else text)
    return 0


def _ready(arguments: argparse.Namespace) -> tuple[Policy, list[Stage]]:
    """The policy, and where it is played: in one place, or one for each agent."""
    path = Path(arguments.policy)
    if (kit := federation.kit_of(path)) is not None:  # of a site, on its own environment
        path = federation.policy_in(kit, path)
        arguments.policy = str(path)
        policy, env = federation.policy_of_site(kit, path)
        if arguments.env is None and not arguments.changes:
            return policy, [Stage(env, None, _named(env))]
    learned = _learned(arguments.policy)
    policy = learned.policy
    stages = _stages(arguments, learned)
    if any(made["name"] in (AT_SITES, GIVEN) for made in learned.made):  # no folder can make it
        env, H = stages[0].env, policy.horizon
        if not isinstance(env, Environment):
            env = as_environment(env, horizon=H, kwargs=stages[0].kwargs, tables=False)
        policy = _learned(arguments.policy, env).policy
    return policy, stages


def _learned(folder: str, env: Any = None) -> Learned:
    """A folder that `policy.save` wrote, or a run folder."""
    path = Path(folder)
    if (path / "policy.json").exists():
        policy = Policy.load(path)
        made = policy.environment
        return Learned(policy, [] if made is None else [made], 1)
    if (path / "settings.toml").exists():
        from fedlsvi.storage import load

        run = load(path, env=env)
        return Learned(run.policy, run.environment, run.parameters.n_agents)
    raise InvalidInput(
        f"{folder} holds neither a policy nor a run: give a folder of `policy.save` or of `run`"
    )


def _stages(arguments: argparse.Namespace, learned: Learned) -> list[Stage]:
    """The environments that are asked for, by default those that the policy was learned in."""
    entries = _entries(arguments, learned)
    if all(entry == entries[0] for entry in entries):
        return _stage(arguments, learned.policy, entries[0], learned.n_agents)
    stages = [_stage(arguments, learned.policy, entry, 1)[0] for entry in entries]
    return [stage._replace(agent=m) for m, stage in enumerate(stages)]


def _stage(
    arguments: argparse.Namespace, policy: Policy, entry: Table, n_agents: int
) -> list[Stage]:
    """The environment of an entry; one for each agent where that is left open."""
    name = entry["name"]
    if name == ARRAYS or (name in registry.names() and name != REGISTERED):
        table = {"env": entry, "n_agents": n_agents}
        made = Job.parse(table, Path(arguments.policy)).environments()
        if isinstance(made, list):
            return [Stage(env, None, _named(env), m) for m, env in enumerate(made)]
        whose = entry.get("agent", 0)
        return [Stage(made, None, _named(made), whose if isinstance(whose, int) else 0)]
    id = str(entry.get("id", name))
    find_spec(id)  # refuses what nobody has registered
    known = registry.entry(REGISTERED).parameters()
    refuse_unknown(f"parameter of environment '{name}'", entry.keys() - {"name"}, known)
    if entry.get("horizon") not in (None, policy.horizon):
        raise InvalidInput(
            f"env.horizon is {entry['horizon']!r}, the policy knows "
            f"{plural(policy.horizon, 'step')}: leave it out"
        )
    for key in (change.partition("=")[0].strip() for change in arguments.changes):
        if key in LEARNING:
            raise InvalidInput(
                f"{key} is for learning: here the environment itself is stepped and returns are "
                "in its own units, leave it out"
            )
    kwargs = entry.get("kwargs") or {}
    if not isinstance(kwargs, dict):
        raise InvalidInput(f"env.kwargs is {kwargs!r}: give --set env.kwargs.NAME=VALUE")
    return [Stage(id, kwargs, _with(id, kwargs))]


def _named(env: Environment) -> str:
    """An environment's name, with its agent and the parameters that are not the usual ones."""
    made = env.spec()
    if made["name"] is None:
        return env.name
    usual = plain(registry.entry(made["name"]).parameters())
    unusual = {
        key: value
        for key, value in made["params"].items()
        if key == "agent" or key not in usual or usual[key] != value
    }
    return _with(env.name, unusual)


def _with(name: str, parameters: Mapping[str, Any]) -> str:
    """Name (key = value, …)."""
    inside = ", ".join(f"{key} = {reprlib.repr(value)}" for key, value in parameters.items())
    return f"{name} ({inside})" if inside else name


def _entries(arguments: argparse.Namespace, learned: Learned) -> list[Table]:
    """The tables of the environments, as in a settings file. What the policy's own were made with
    stays only where --env names the same one, or none."""
    entries = _own(arguments, learned)
    if arguments.env is not None:
        name = IDS.get(arguments.env, arguments.env)
        if not entries or any(name not in (one["name"], one.get("id")) for one in entries):
            entry = {"name": name}
            own = name in registry.names() and name != REGISTERED
            if own and "horizon" in registry.entry(name).parameters():
                entry["horizon"] = learned.policy.horizon
            entries = [entry]
    if not entries:
        raise InvalidInput(
            f"{arguments.policy} does not say how its environment is made: give --env NAME"
        )
    for entry in entries:
        table: Table = {"env": entry}
        for change in arguments.changes:
            assign(table, change)
            if set(table) != {"env"} or not isinstance(table["env"], dict):
                raise InvalidInput(
                    f"--set {change!r} is no parameter of the environment: write env.KEY=VALUE, "
                    "e.g. env.kwargs.is_slippery=false"
                )
    return entries


def _own(arguments: argparse.Namespace, learned: Learned) -> list[Table]:
    """How the policy's own environments are made, where they can be made again."""
    names = {made["name"] for made in learned.made}
    if names & {None, AT_SITES, GIVEN}:
        return []
    if ARRAYS in names and not (Path(arguments.policy) / "settings.toml").exists():
        return []  # they stayed in the run's folder
    return [{"name": made["name"], **deepcopy(made["params"])} for made in learned.made]
