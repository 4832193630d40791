"""What the parties of a federation agree on, and what a site settles for itself.

The job (from the server, the same for all): episodes, seed, horizon, features and the settings of
Fed-LSVI. A site's own settings (`local/fedlsvi.toml`, never sent):

    agents = 1                       # how many agents learn here
    [env]                            # a registered environment with its parameters …
    name = "river-swim"
    # gym = "FrozenLake-v1"          # … or a Gymnasium id, with its arguments beside it
    # entry = "clinic.ward:make"     # … or a Python function that makes the environment
"""

from __future__ import annotations

import importlib
from dataclasses import asdict, dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

from fedlsvi import envs, settings_file
from fedlsvi import features as feature_maps
from fedlsvi.config import Parameters, Settings
from fedlsvi.envs.gym import as_environment
from fedlsvi.errors import InvalidEnvironment, InvalidInput, UnknownName
from fedlsvi.federation.audit import Audit
from fedlsvi.federation.journal import Journal
from fedlsvi.plan import Plan, make_plan
from fedlsvi.transports.patience import Patience
from fedlsvi.transports.station import Station
from fedlsvi.transports.wired import run_name


@dataclass(frozen=True)
class Federation:
    """The job: plain values, so that any engine can carry them."""

    name: str
    episodes: int
    horizon: int
    dim: int
    seed: int = 0
    one_hot: bool = False
    features: dict[str, Any] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    patience: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, table: dict[str, Any]) -> Federation:
        """Read it back; unknown keys are refused."""
        known = set(cls.__dataclass_fields__)
        for key in table:
            if key not in known:
                raise UnknownName("key of a federation", key, known)
        return cls(**table)

    def table(self) -> dict[str, Any]:
        """What `of` reads back."""
        return asdict(self)

    def parameters(self, n_agents: int) -> Parameters:
        """The numbers in force for this many agents."""
        chosen = Settings(n_agents=n_agents, **self.settings)
        return chosen.resolve(self.episodes, self.horizon, self.dim, self.one_hot)

    def waits(self) -> Patience:
        """How long the server waits, and what it does then."""
        known = set(Patience.__dataclass_fields__)
        for key in self.patience:
            if key not in known:
                raise UnknownName("key of patience", key, known)
        return Patience(**self.patience)

    def plan(self, env: Any, n_agents: int) -> Plan:
        """The plan of a site whose environment this is; its sizes must be the federation's."""
        phi = None
        if self.features is not None:
            params = {key: value for key, value in self.features.items() if key != "name"}
            phi = feature_maps.make(self.features["name"], **params)
        settings = Settings(n_agents=n_agents, **self.settings)
        plan = make_plan(settings, env, self.episodes, self.seed, phi)
        mine, agreed = plan.parameters, self.parameters(n_agents)
        for size in ("horizon", "dim", "packing"):
            if getattr(mine, size) != getattr(agreed, size):
                raise InvalidEnvironment(
                    f"this site's environment has {size} {getattr(mine, size)}, the federation "
                    f"agreed on {getattr(agreed, size)}: change [env] in this site's settings"
                )
        return plan


@dataclass(frozen=True)
class SiteSettings:
    """What a site settles for itself."""

    env: Any
    agents: int = 1
    durable: bool = True

    @classmethod
    def read(cls, path: Path, first: int = 0) -> SiteSettings:
        """From the site's TOML file; `first` is the number of the site's first agent."""
        table = settings_file.read(path)
        for key in table:
            if key not in ("agents", "env", "durable"):
                raise UnknownName(f"key of {path.name}", key, ("agents", "env", "durable"))
        agents = table.get("agents", 1)
        if not isinstance(agents, int) or isinstance(agents, bool) or agents < 1:
            raise InvalidInput(f"agents must be an integer of at least 1, got {agents!r}")
        if not isinstance(table.get("env"), dict):
            raise InvalidInput(f"{path} has no [env]: name an environment there")
        return cls(environment(table["env"]), agents, table.get("durable", True))


def environment(table: dict[str, Any]) -> Any:
    """The environment that a table names: `name`, `gym` or `entry`, and its parameters."""
    rest = dict(table)
    ways = [key for key in ("name", "gym", "entry") if key in rest]
    if len(ways) != 1:
        raise InvalidInput(f"[env] must have one of name, gym and entry, got {ways or 'none'}")
    what = rest.pop(ways[0])
    if ways[0] == "name":
        return envs.make(what, **rest)
    make = _function(what) if ways[0] == "entry" else what
    taken = signature(make).parameters if ways[0] == "entry" else {}
    # sizes of a Gymnasium environment, unless the function takes them itself
    sizes = {key: rest.pop(key) for key in ("horizon", "reward_range")
             if key in rest and key not in taken}  # fmt: skip
    try:
        if ways[0] == "gym":
            return as_environment(make, **sizes, kwargs=rest or None)
        signature(make).bind(**rest)
    except TypeError as error:
        raise InvalidInput(f"[env] of {ways[0]} {what!r} has wrong keys: {error}") from None
    return as_environment(make, **sizes, kwargs=rest or None)


def _function(what: Any) -> Any:
    """The function that `entry` names."""
    module, colon, name = str(what).partition(":")
    if not colon:
        raise InvalidInput(f"entry must be module:function, got {what!r}")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(
            f"entry {what!r} cannot be found ({error}): install its package in the Python that "
            "starts this site"
        ) from None
    if not callable(function):
        raise InvalidInput(f"entry {what!r} is a {type(function).__name__}: name a function")
    return function


def open_station(
    federation: Federation, settings: SiteSettings, first: int, n_agents: int, folder: Path
) -> tuple[Station, Audit]:
    """The station of a site, from its journal, with its log of what leaves."""
    plan = federation.plan(settings.env, n_agents)
    lo, hi = first, first + settings.agents
    # the worker of a job that was aborted may take a moment to end
    journal = Journal(folder / "journal", settings.durable, patience=60.0)
    audit = Audit(folder / "sent.jsonl", settings.durable)
    run = run_name(plan.parameters, federation.seed)
    return Station(lambda: plan.cohort(lo, hi), plan.layout, run, journal, audit), audit
