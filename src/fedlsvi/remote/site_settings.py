"""What a site of a federation settles for itself: `local/fedlsvi.toml`, which is never sent.

    agents = 1                       # how many agents learn here
    [env]                            # a registered environment with its parameters …
    name = "river-swim"
    # gym = "FrozenLake-v1"          # … or a Gymnasium id, with its arguments beside it
    # entry = "clinic.ward:make"     # … or a Python function that makes the environment
    [require]                        # a job without these is refused here
    min_round = 20
    aggregation = "secure"
    [peers]                          # other sites' keys, as people have compared them
    south = "3f2a 91c0 …"

A site that has records and nothing to play in takes part in `algorithm = "pevi"`, and in Fed-LSVI
where the job says how many logged episodes count (`logged`). There a site may have both:

    data = "records.parquet"         # beside the settings file, or a whole path; or a table:
    # data = {file = "records.parquet", allowed = "seen", at_least = 5}
    held_out = "others.parquet"      # for a job that ends with an estimate of what was learned
    [features]                       # where the job names none
    name = "own"
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field, fields
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlsvi import envs
from fedlsvi import features as feature_maps
from fedlsvi.checks import integer, plural, refuse_unknown
from fedlsvi.envs.allowed import restrict
from fedlsvi.envs.gym.convert import as_environment
from fedlsvi.envs.per_agent import per_agent
from fedlsvi.errors import InvalidInput, InvalidSetting
from fedlsvi.features.base import FeatureMap
from fedlsvi.logs.sources import as_source
from fedlsvi.logs.world import LoggedWorld, logged_worlds
from fedlsvi.remote.requirements import Requirements
from fedlsvi.storage import settings_file

if TYPE_CHECKING:
    from fedlsvi.logs.agent_data import Logs


@dataclass(frozen=True)
class SiteSettings:
    """What a site settles for itself."""

    env: Any
    agents: int = 1
    durable: bool = True
    data: dict[str, Any] | None = None
    features: dict[str, Any] | None = None
    require: Requirements = field(default_factory=Requirements)
    held_out: dict[str, Any] | None = None
    peers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> SiteSettings:
        """From the site's TOML file; a log is named there, and read when the job is known."""
        table = settings_file.read(path)
        require, peers = demands(path)
        agents, durable = table.get("agents", 1), table.get("durable", True)
        integer("agents", agents, 1, "how many agents learn at this site")
        if not isinstance(durable, bool):
            raise InvalidSetting(
                f"durable must be true or false, got {durable!r}", code="bad-durable"
            )
        features = table.get("features")
        if features is not None and not isinstance(features, dict):
            raise InvalidSetting(
                f"features must be a table with a name, got {features!r}: write [features]",
                code="bad-features",
            )
        if "env" not in table and "data" not in table:
            raise InvalidInput(
                f"{path} has neither [env], an environment to play in, nor data, a log: add one "
                "of them",
                code="missing-env",
            )
        named, held_out = (_named_log(path, table, key) for key in ("data", "held_out"))
        if not isinstance(table.get("env", {}), dict):
            raise InvalidInput(
                f"{path} has no [env]: name an environment there", code="missing-env"
            )
        env = environment(table["env"]) if "env" in table else None
        return cls(env, agents, durable, named, features, require, held_out, peers)

    def feature_map(self) -> FeatureMap | None:
        """The site's own features, for a federation that names none."""
        if self.features is None:
            return None
        params = {key: value for key, value in self.features.items() if key != "name"}
        return feature_maps.make(str(self.features.get("name")), **params).agreed()

    def world(self, federation: Any, n_agents: int, first: int) -> tuple[Any, Logs]:
        """What it plays in, and its logs where the job learns from logs before it plays: one for
        every agent of the federation, of whom only those here are ever asked."""
        offline = federation.algorithm == "pevi"
        if self.data is None:
            return self.env, (None,) * n_agents if federation.logged else ()
        if not (offline or federation.logged):
            raise InvalidInput(
                "this site gives a log, but the job does not learn from logs: leave data out, or "
                "ask the organiser to set logged = …",
                code="data-not-asked",
            )
        logs = self.logs(federation, n_agents, first, self.data)
        if offline:
            return logs, ()
        if self.env is None or self.data.get("allowed") is None:
            return logs if self.env is None else self.env, tuple(logs)
        worlds = per_agent(self.env, n_agents)  # which keep to what the logs allow
        masked = {id(log): restrict(worlds[0], log.allowed) for log in logs}
        return [masked[id(log)] for log in logs], tuple(logs)

    def logs(
        self, federation: Any, n_agents: int, first: int, data: dict[str, Any]
    ) -> list[LoggedWorld]:
        """A log of this site, read with the federation's sizes, for every agent."""
        given = dict(data)
        known = ("file", "columns", "n_states", "n_actions", "allowed", "at_least")
        refuse_unknown("key of data", given, known)
        own_world = None if self.env is None else per_agent(self.env, 1)[0]
        names, n_actions = federation.action_names, given.get("n_actions", federation.n_actions)
        if names is None and as_source(given["file"], given.get("columns")).names_in_log():
            raise InvalidInput(
                f"{given['file']} has words for actions, and other sites may have other words: "
                "give action_names in federation.toml, so that all sites number them alike",
                code="actions-unnamed",
            )
        n_actions = len(names) if n_actions is None and names is not None else n_actions
        if n_actions is None and own_world is not None:
            n_actions = own_world.n_actions
        if n_actions is None:
            raise InvalidInput(
                "a log does not say how many actions there are: give n_actions in federation.toml, "
                "or in [data] of this site's settings",
                code="missing-n_actions",
            )
        integer("n_actions", n_actions, 1, "how many actions there are")
        n_states = given.get("n_states", federation.n_states or None)
        if n_states is None and own_world is not None and own_world.finite:
            n_states = own_world.n_states
        if n_states is None and federation.one_hot and self.features is None:
            n_states = federation.dim // n_actions if federation.features is None else None
        own = logged_worlds(
            given["file"], horizon=federation.horizon, n_states=n_states, n_actions=n_actions,
            reward_range=federation.reward_range, columns=given.get("columns"),
            allowed=given.get("allowed"), at_least=given.get("at_least", 1), action_names=names,
        )  # fmt: skip
        if len(own) != self.agents:
            raise InvalidInput(
                f"{given['file']} has the records of {plural(len(own), 'agent')}, but this site "
                f"has {self.agents}: set agents = {len(own)}",
                code="wrong-number-of-logs",
            )
        return [own[min(max(m - first, 0), self.agents - 1)] for m in range(n_agents)]


def demands(path: Path) -> tuple[Requirements, dict[str, str]]:
    """What a site's settings ask of every job and study: what it must have, and the keys of other
    sites. Where there is no such file, nothing."""
    table = settings_file.read(path) if path.exists() else {}
    refuse_unknown(f"key of {path.name}", table, [own.name for own in fields(SiteSettings)])
    peers = table.get("peers", {})
    if not isinstance(peers, dict) or not all(isinstance(f, str) for f in peers.values()):
        raise InvalidSetting(
            f"peers must be a table of sites and fingerprints, got {peers!r}: write [peers]",
            code="bad-peers",
        )
    return Requirements.of(table.get("require", {})), peers


def _named_log(path: Path, table: dict[str, Any], key: str) -> dict[str, Any] | None:
    """The log that a key of a site's settings names, with its file beside them."""
    if key not in table:
        return None
    named = {"file": table[key]} if isinstance(table[key], str) else table[key]
    if not isinstance(named, dict) or not isinstance(named.get("file"), str):
        raise InvalidInput(
            f"{key} must be a file name or a table with file, got {named!r}", code="bad-data"
        )
    return {**named, "file": str(path.parent / named["file"])}


def environment(table: dict[str, Any]) -> Any:
    """The environment that a table names: `name`, `gym` or `entry`, and its parameters."""
    rest = dict(table)
    ways = [key for key in ("name", "gym", "entry") if key in rest]
    if len(ways) != 1:
        raise InvalidInput(
            f"[env] must have exactly one of name, gym and entry, got {ways or 'none'}",
            code="bad-env",
        )
    what = rest.pop(ways[0])
    if not isinstance(what, str):
        raise InvalidInput(
            f"{ways[0]} in [env] must be a string, got {what!r}: write it in quotes", code="bad-env"
        )
    if ways[0] == "name":
        return envs.make(what, **rest)
    make: Any = _function(what) if ways[0] == "entry" else what
    taken = signature(make).parameters if ways[0] == "entry" else {}
    # sizes of a Gymnasium environment, unless the function takes them itself
    sizes = {key: rest.pop(key) for key in ("horizon", "reward_range", "allowed")
             if key in rest and key not in taken}  # fmt: skip
    if ways[0] == "entry":
        try:
            signature(make).bind(**rest)
        except TypeError as error:
            raise InvalidInput(
                f"[env] has keys that entry {what!r} does not accept: {error}",
                code="bad-entry-keys",
            ) from None
    return as_environment(make, **sizes, kwargs=rest or None)


def _function(what: str) -> Any:
    """The function that `entry` names."""
    module, colon, name = what.partition(":")
    if not colon or not name or not all(part.isidentifier() for part in module.split(".")):
        raise InvalidInput(f"entry must be module:function, got {what!r}", code="bad-entry")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(
            f"entry {what!r} cannot be found ({error}): install its package in the Python that "
            "starts this site",
            code="entry-not-found",
        ) from None
    except (Exception, SystemExit) as error:  # whatever somebody else's module may raise
        raise InvalidInput(
            f"entry {what!r} cannot be imported ({type(error).__name__}: {error}): fix the module",
            code="entry-failed",
        ) from error
    if not callable(function):
        raise InvalidInput(
            f"entry {what!r} is of type {type(function).__name__}: name a function",
            code="entry-not-a-function",
        )
    try:
        signature(function)
    except ValueError as error:  # some that are written in C
        raise InvalidInput(
            f"entry {what!r} has {error}: name a function written in Python",
            code="entry-not-a-function",
        ) from None
    return function
