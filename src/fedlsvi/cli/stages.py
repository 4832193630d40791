"""Where a policy is played: the environments that it was learned in, or others."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from fedlsvi.checks import plural, refuse_unknown
from fedlsvi.cli.command import announce_module, refuse_parent
from fedlsvi.cli.evaluate import Request
from fedlsvi.envs import registry
from fedlsvi.envs.base import Environment, plain
from fedlsvi.envs.gym.convert import REGISTERED, as_environment
from fedlsvi.envs.gym.ids import IDS, find_spec, package
from fedlsvi.errors import InvalidInput
from fedlsvi.experience.values import BlockValues
from fedlsvi.features.base import FeatureMap, resolve
from fedlsvi.logs import RECORDS
from fedlsvi.logs.rows import InvalidRecord
from fedlsvi.logs.world import LoggedWorld, logged_worlds
from fedlsvi.policy import Policy
from fedlsvi.registry import refuse_unasked
from fedlsvi.remote import site
from fedlsvi.remote.mail import POLICY, STUDY
from fedlsvi.storage.run_header import read_header
from fedlsvi.storage.settings_file import ARRAYS, AT_SITES, GIVEN, Job, Table, assign

LEARNING = ("env.reward_range", "env.tables", "env.clip_rewards")
"""Parameters of Gymnasium environments that matter for learning only."""


class Stage(NamedTuple):
    """Where a policy is played."""

    env: Any
    """An environment of this package, or a Gymnasium id."""
    kwargs: dict[str, Any] | None
    """Options of `gymnasium.make`."""
    name: str
    agent: int = 0
    """Whose it is."""
    how: Mapping[str, Any] = MappingProxyType({})
    """How its decisions become steps: repeat and actions, where they are given."""


class Learned(NamedTuple):
    """A policy, and what its folder says of the environments that it was learned in."""

    policy: Policy
    made: list[dict[str, Any]]
    """One for all agents, or one for each."""
    n_agents: int


def choose_stages(request: Request) -> tuple[Policy, list[Stage]]:
    """The policy, and where to play it: in one environment, or in one for each agent."""
    package()  # refuses here if Gymnasium is missing: all environments are played through it
    path = Path(request.policy)
    if (kit := site.kit_of(path)) is not None:  # of a site, on its own environment
        path = site.policy_in(kit, path)
        request = replace(request, policy=str(path))
        if request.env is None and not request.changes:
            policy, env = site.policy_of_site(kit, path)
            return policy, [Stage(env, None, _named(env))]
    learned = _learned(request.policy)
    policy = learned.policy
    stages = _stages(request, learned)
    if any(made["name"] in (AT_SITES, GIVEN) for made in learned.made):  # no folder can make it
        env, H = stages[0].env, policy.horizon
        if not isinstance(env, Environment):
            env = as_environment(
                env, horizon=H, kwargs=stages[0].kwargs, tables=False, **stages[0].how
            )
        policy = _learned(request.policy, env).policy
    return policy, stages


def policy_on_logs(
    request: Request, data: list[str], reading: dict[str, Any]
) -> tuple[Policy, FeatureMap, list[LoggedWorld]]:
    """A policy, its feature map, and the logs on which it is evaluated.

    They are read as those that it was learned from: with the same columns, names and sizes.

    Args:
        request: The policy.
        data: The files.
        reading: What the command line says of columns and actions instead.
    """
    path, form = Path(request.policy), dict[str, Any]()
    if (kit := site.kit_of(path)) is not None:  # as its own log
        policy, form = site.policy_for_logs(kit, site.policy_in(kit, path))
    else:
        policy = _learned(request.policy).policy
    known = _reading(request.policy, policy) | form
    columns = known.get("columns", {}) | reading.pop("columns", {})
    worlds = logged_worlds(
        data if len(data) > 1 else data[0], **known | reading | {"columns": columns or None}
    )
    if (policy.environment or {}).get("name") == GIVEN:  # the run was given its logs as objects
        policy = _learned(request.policy, worlds[0]).policy
    if worlds[0].action_names is not None and not known.keys() | reading.keys() >= {"action_names"}:
        raise InvalidRecord(
            f"the logs have words for actions, {', '.join(worlds[0].action_names)}, which the "
            "policy numbers: give --actions NAME,NAME,…, all names in the order of their numbers",
            code="actions-unnamed",
        )
    phi = policy.values.features if isinstance(policy.values, BlockValues) else None
    if phi is None and (Path(request.policy) / "settings.toml").exists():
        phi = read_header(request.policy).job.feature_map()
    return policy, resolve(phi, worlds[0]), worlds


def _reading(folder: str, policy: Policy) -> dict[str, Any]:
    """How the logs were read that a policy was learned from, or began with."""
    made = policy.environment or {"name": None, "params": {}}
    logs = [made["params"]]
    if (Path(folder) / "settings.toml").exists():
        logs += read_header(folder).job.data
    kept, known = ("columns", "action_names", "reward_range"), dict[str, Any]()
    for log in reversed(logs):
        known |= {key: log[key] for key in kept if key in log}
    if made["name"] == GIVEN:  # its spaces are known once there is a log again
        sizes = ("horizon", "n_actions", "n_states")
        return known | {key: made["params"][key] for key in sizes if key in made["params"]}
    spaces = policy.spaces
    return known | {
        "horizon": policy.horizon, "n_actions": spaces.n_actions, "n_states": spaces.n_states
    }  # fmt: skip


def known_range(policy: Policy) -> float | None:
    """The largest return that was known when a policy was learned; None where none was kept."""
    top = float(policy.values.ceilings[0])
    return top if top > 0.0 else None


def learned_from_logs(folder: str) -> bool:
    """Whether this is the folder of a run that had logs and no environment."""
    if not (Path(folder) / "settings.toml").exists():
        return False
    return read_header(folder).job.algorithm == "pevi"


def _learned(folder: str, env: Any = None) -> Learned:
    """The policy in a folder that `policy.save` wrote, or in a run folder."""
    path = Path(folder)
    if (path / STUDY).exists() and (path / POLICY).exists():  # merged, so its sites are not here
        path = path / POLICY
    if (path / "policy.json").exists():
        policy = Policy.load(path)
        made = policy.environment
        return Learned(policy, [] if made is None else [made], 1)
    if (path / "settings.toml").exists():
        from fedlsvi.storage import load

        run = load(path, env=env)
        return Learned(run.policy, run.environment, run.parameters.n_agents)
    refuse_parent(path, "evaluate")
    raise InvalidInput(
        f"{folder} contains neither a policy nor a run: give a folder written by `policy.save` or "
        "`fedlsvi run`",
        code="no-policy",
    )


def _stages(request: Request, learned: Learned) -> list[Stage]:
    """The environments to play in, by default those that the policy was learned in."""
    entries = _entries(request, learned)
    if all(entry == entries[0] for entry in entries):
        return _stage(request, learned.policy, entries[0], learned.n_agents)
    stages = [_stage(request, learned.policy, entry, 1)[0] for entry in entries]
    return [stage._replace(agent=m) for m, stage in enumerate(stages)]


def _stage(request: Request, policy: Policy, entry: Table, n_agents: int) -> list[Stage]:
    """The environment of an entry; one for each agent where the entry names none."""
    name = entry["name"]
    if name == RECORDS:
        raise InvalidInput(
            "the policy was learned from a log, which cannot be played: give --env, or --data to "
            "estimate its value from a log",
            code="needs-world",
        )
    if name == ARRAYS or (name in registry.names() and name != REGISTERED):
        table = {"env": entry, "n_agents": n_agents}
        made = Job.parse(table, Path(request.policy)).environments()
        if isinstance(made, list):
            return [Stage(env, None, _named(env), m) for m, env in enumerate(made)]
        whose = entry.get("agent", 0)
        return [Stage(made, None, _named(made), whose if isinstance(whose, int) else 0)]
    id = str(entry.get("id", name))
    refuse_unasked(entry)
    find_spec(id)  # refuses an unknown id
    known = registry.entry(REGISTERED).parameters()
    refuse_unknown(f"parameter of environment '{name}'", entry.keys() - {"name"}, known)
    if entry.get("horizon") not in (None, policy.horizon):
        raise InvalidInput(
            f"env.horizon is {entry['horizon']!r}, but the policy has "
            f"{plural(policy.horizon, 'step')}: leave it out",
            code="wrong-horizon",
        )
    for key in (change.partition("=")[0].strip() for change in request.changes):
        if key in LEARNING:
            raise InvalidInput(
                f"{key} applies only to learning: leave it out. Here the environment itself is "
                "stepped, and returns are in its own units",
                code="learning-only",
            )
    kwargs = entry.get("kwargs") or {}
    if not isinstance(kwargs, dict):
        raise InvalidInput(
            f"env.kwargs is {kwargs!r}: give --set env.kwargs.NAME=VALUE", code="bad-kwargs"
        )
    how = {key: value for key, value in entry.items() if key in ("repeat", "actions")}
    return [Stage(id, kwargs, _with(id, kwargs | how), how=how)]


def _named(env: Environment) -> str:
    """An environment's name, with its agent and the parameters that are not defaults."""
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


def _entries(request: Request, learned: Learned) -> list[Table]:
    """The environments' tables, as in a settings file.

    Parameters of the policy's own environment are kept if --env names the same one, or none.
    """
    entries = _own(request, learned)
    if request.env is not None:
        name = IDS.get(request.env, request.env)
        announce_module(name)
        if not entries or any(name not in (one["name"], one.get("id")) for one in entries):
            entry: Table = {"name": name}
            own = name in registry.names() and name != REGISTERED
            if own and "horizon" in registry.entry(name).parameters():
                entry["horizon"] = learned.policy.horizon
            entries = [entry]
    if not entries:
        raise InvalidInput(
            f"{request.policy} does not say how to make its environment: give --env NAME",
            code="no-environment",
        )
    for entry in entries:
        table: Table = {"env": entry}
        for change in request.changes:
            assign(table, change)
            if set(table) != {"env"} or not isinstance(table["env"], dict):
                raise InvalidInput(
                    f"--set {change!r} does not set a parameter of the environment: write "
                    "env.KEY=VALUE, e.g. env.kwargs.is_slippery=false",
                    code="bad-assignment",
                )
    return entries


def _own(request: Request, learned: Learned) -> list[Table]:
    """The tables of the policy's own environments, if these can be rebuilt."""
    names = {made["name"] for made in learned.made}
    if names & {None, AT_SITES, GIVEN}:
        return []
    if ARRAYS in names and not (Path(request.policy) / "settings.toml").exists():
        return []  # they stayed in the run's folder
    return [{"name": made["name"], **deepcopy(made["params"])} for made in learned.made]
