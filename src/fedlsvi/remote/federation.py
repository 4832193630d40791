"""What the parties of a federation agree on, and its run at the server.

The job (from the server, the same for all): episodes, seed, horizon, features, the units of rewards
and the settings of Fed-LSVI. What a site settles for itself is in
`site_settings`, its side of the run in `site`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlsvi import __version__, envs
from fedlsvi import features as feature_maps
from fedlsvi.algorithms.pevi import PEVISettings
from fedlsvi.checks import check_seed, choice, integer, plural, refuse_unknown
from fedlsvi.config import Parameters, Settings
from fedlsvi.core.privacy_settings import check_privacy
from fedlsvi.envs.base import Environment, units
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.errors import (
    InvalidEnvironment,
    InvalidInput,
    InvalidSetting,
)
from fedlsvi.experience.values import TabularValues
from fedlsvi.features.base import FeatureMap, resolve
from fedlsvi.features.tabular import OneHot, TableFeatures
from fedlsvi.groups import ProblemSize
from fedlsvi.incompatible import refuse
from fedlsvi.logs.action_names import checked_names
from fedlsvi.privacy.masks import check_sites
from fedlsvi.protocol.cohorts import check_source
from fedlsvi.protocol.plan import Plan, make_plan
from fedlsvi.protocol.records import Observer, RoundRecord
from fedlsvi.protocol.session import FederatedPlayer, Session
from fedlsvi.remote import closing_estimate
from fedlsvi.remote.audit import in_logs
from fedlsvi.remote.bounds import Bounds
from fedlsvi.remote.codec import run_id
from fedlsvi.remote.epoch import take_epoch
from fedlsvi.remote.frame_transport import FrameTransport
from fedlsvi.remote.retry_policy import RetryPolicy
from fedlsvi.run import Run
from fedlsvi.storage.run_header import header_files_at_sites
from fedlsvi.storage.runs import OpenedRun

if TYPE_CHECKING:
    from fedlsvi.logs.agent_data import Logs

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
LETTERS = "letters, digits, - and _, beginning with a letter or digit"
"""What a federation and its sites may be called: the names become folders and certificates."""

ALGORITHMS: dict[str, Any] = {"fed-lsvi": Settings, "pevi": PEVISettings}
"""What a federation can run, and the settings of each."""

_MAY_CHANGE = ("name", "retry", "max_agents", "evaluate", "revoked", "removed")
"""Keys of a job that are not part of its hash: an estimate at the end has one of its own."""

MOST_AGENTS = 1000
"""Agents that a site may have where nothing else was agreed."""


def _known(what: str, table: dict[str, Any], kind: Any) -> None:
    """Refuse keys that are no fields of a dataclass."""
    refuse_unknown(what, table, [own.name for own in fields(kind)])


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidSetting(f"name must be {LETTERS}, got {name!r}", code="bad-name")


@dataclass(frozen=True)
class Federation:
    """The job: plain values, so that any engine can carry them."""

    name: str
    episodes: int
    horizon: int
    dim: int
    seed: int = 0
    one_hot: bool = False
    nonnegative: bool = False
    simplex: bool = False
    reward_range: list[float] = field(default_factory=lambda: [0.0, 1.0])
    features: dict[str, Any] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    retry: dict[str, Any] = field(default_factory=dict)
    max_agents: int | dict[str, int] = MOST_AGENTS
    algorithm: str = "fed-lsvi"
    n_states: int = 0
    n_actions: int | None = None
    logged: int = 0
    evaluate: dict[str, Any] | None = None
    action_names: list[str] | None = None
    revoked: str | None = None
    removed: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, table: dict[str, Any]) -> Federation:
        """Read it back; keys that are unknown or missing are refused."""
        _known("key of a federation", table, cls)
        for own in fields(cls):
            needed = own.default is MISSING and own.default_factory is MISSING
            if needed and own.name not in table:
                raise InvalidInput(
                    f"a federation has no {own.name}: give {own.name} = …", code="missing-key"
                )
        _check_name(table["name"])  # a site makes a folder of it, whoever sent the job
        return cls(**table)

    def check(self, n_agents: int) -> None:
        """Refuse in a sentence what no site could play."""
        _check_name(self.name)
        integer("horizon", self.horizon, 1, "the number of steps of an episode")
        integer("dim", self.dim, 1, "the dimension of the features")
        integer("n_states", self.n_states, 0, "the number of states, where they are finite")
        check_seed(self.seed)
        choice("algorithm", self.algorithm, tuple(ALGORITHMS))
        integer("logged", self.logged, 0, "how many episodes of each agent's log are used")
        if self.logged and self.algorithm != "fed-lsvi":
            raise InvalidSetting(
                f'logged = {self.logged} works only with algorithm = "fed-lsvi", which plays '
                "after it has learned from logs: for pevi, give episodes = … instead",
                code="bad-logged",
            )
        if self.n_actions is not None:
            integer("n_actions", self.n_actions, 1, "the number of actions")
        if self.action_names is not None:
            checked_names(self.action_names, self.n_actions)
        for key in ("one_hot", "nonnegative", "simplex"):
            if not isinstance(flag := getattr(self, key), bool):
                raise InvalidSetting(
                    f"{key} must be true or false, got {flag!r}", code=f"bad-{key}"
                )
        units(self.reward_range)
        if not isinstance(self.removed, list) or not all(
            isinstance(site, str) and NAME.fullmatch(site) for site in self.removed
        ):
            raise InvalidSetting(
                f"removed must be a list of sites, got {self.removed!r}: `fedlsvi federate "
                "remove-site` writes it",
                code="bad-removed",
            )
        for key in ("settings", "retry"):
            if not isinstance(table := getattr(self, key), dict):
                raise InvalidSetting(
                    f"{key} must be a table, got {table!r}: write [{key}]", code="not-a-table"
                )
        table = self.max_agents if isinstance(self.max_agents, dict) else {"": self.max_agents}
        for most in table.values():
            integer("max_agents", most, 1, "the largest number of agents per site")
        if "n_agents" in self.settings:
            raise InvalidSetting(
                "n_agents does not belong in [settings]: each site sets its own number of agents",
                code="n_agents-in-settings",
            )
        _known("setting", self.settings, ALGORITHMS[self.algorithm])
        retry, p = self.retry_policy(), self.parameters(n_agents)
        if p.aggregation == "secure":
            check_sites(n_agents)
        retry.check(p)
        if p.exchange == "one-trip":
            self.values(p)
        if self.evaluate is not None:
            closing_estimate.check(self.evaluate, p)
        self.feature_map()

    def check_removal(self, n_agents: int) -> None:
        """Refuse to go on without a site where its data cannot be taken out again.

        Raises:
            InvalidSetting: Sums hide it, or all sites agreed on an estimate at the end.
        """
        replace(self.retry_policy(), absent="exclude").check(self.parameters(n_agents))
        if self.evaluate is not None:
            raise InvalidSetting(
                "all sites agreed on an estimate at the end (`evaluate`), so none can be removed: "
                'exclude it with absent = "exclude" in [retry]',
                code="removed-and-evaluate",
            )

    def agents_allowed(self, site: str) -> int:
        """How many agents this site may have; none if [max_agents] does not list it."""
        most = self.max_agents
        return most.get(site, 0) if isinstance(most, dict) else most

    def table(self) -> dict[str, Any]:
        """What `of` reads back."""
        return asdict(self)

    @property
    def agreed(self) -> bytes:
        """(32,) hash of what decides what a site's sums mean. Left out is what may change within a
        run, or concerns the server alone."""
        table = {key: value for key, value in self.table().items() if key not in _MAY_CHANGE}
        return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).digest()

    def open_run(
        self,
        folder: Path,
        cuts: Sequence[tuple[int, int]],
        notify: Callable[[str], None],
    ) -> OpenedRun:
        """The server's run folder, new or as far as it came; another run is refused."""
        n_agents = sum(agents for _, agents in cuts)
        p = self.parameters(n_agents)
        run = in_logs(run_id(p, self.seed))
        contents = header_files_at_sites(
            p, self.settings | self._of_learning(n_agents), self.seed, self.features,
            units(self.reward_range), cuts, run, self.algorithm,
        )  # fmt: skip
        return OpenedRun.of_sites(folder, contents, notify)

    def parameters(self, n_agents: int) -> Parameters:
        """The numbers in force for this many agents."""
        chosen = self.chosen(n_agents)
        low, high = units(self.reward_range)
        problem = ProblemSize(
            self.episodes, self.horizon, self.dim, self.one_hot, states=self.n_states,
            logged=self.logged, after=(0.0 - low) / (high - low),
            nonnegative=chosen.privacy is not None and self._nonnegative(),
        )  # fmt: skip
        parameters: Parameters = chosen.resolve(problem)
        return parameters

    def values(self, p: Parameters, mask: np.ndarray | None = None) -> TabularValues | None:
        """With one trip per synchronisation: what the server computes values with, for which it
        must know the features of all states, and which actions `mask` (S, A) allows."""
        if p.exchange != "one-trip":
            return None
        phi = self.feature_map()
        if phi is None:
            raise InvalidSetting(
                'exchange = "one-trip" makes the server compute values, so it needs to know the '
                'features: write [features] with a name, such as name = "one-hot"',
                code="one-trip-needs-features",
            )
        actions = self.n_actions or self.dim // self.n_states
        stub = SimpleNamespace(name=self.name, n_states=self.n_states, n_actions=actions,
                               horizon=self.horizon)  # fmt: skip
        bound = resolve(phi, stub)
        if bound.dim != self.dim or not isinstance(bound, TableFeatures | OneHot):
            raise InvalidSetting(
                f"[features] of {plural(self.n_states, 'state')} and {plural(actions, 'action')} "
                f"have dimension {bound.dim}, but dim is {self.dim}: give the sites' n_states and "
                "n_actions",
                code="other-dim",
            )
        allowed = None if mask is None else mask[None]
        return TabularValues(bound, p.head, p.packing == "diagonal", allowed)

    def chosen(self, n_agents: int) -> Any:
        """The settings of its algorithm. Sites know their environments and the server does not, so
        a stationary model and diversity are what the federation agreed on."""
        made = ALGORITHMS[self.algorithm]
        own = {key: value for key, value in self.settings.items() if value != "auto"}
        unsaid = {"stationary": False, "diversity": 0.0}
        own = {f.name: unsaid[f.name] for f in fields(made) if f.name in unsaid} | own
        return made(n_agents=n_agents, **own | self._of_learning(n_agents))

    @property
    def ends_are_public(self) -> bool:
        """Whether its rounds end on a public schedule; logs are read in one, which has no end."""
        return self.algorithm != "fed-lsvi" or self.chosen(MOST_AGENTS).ends_are_public

    @property
    def floor(self) -> int:
        """The fewest episodes of a round, or behind a sum of logs."""
        if self.algorithm != "fed-lsvi":
            return int(self.settings.get("min_round", 1))
        return int(self.chosen(MOST_AGENTS).floor(self.episodes))

    def budget(self, n_agents: int) -> dict[str, Any] | None:
        """What a private job may spend in all, its estimate included; None without privacy."""
        privacy = self.settings.get("privacy")
        return None if privacy is None else check_privacy(privacy, n_agents)

    def _of_learning(self, n_agents: int) -> dict[str, Any]:
        """What the estimate at the end leaves of the budget, in place of privacy=."""
        budget = self.budget(n_agents)
        if budget is None or self.evaluate is None:
            return {}
        return {"privacy": closing_estimate.divided(budget, self.evaluate)[0]}

    def retry_policy(self) -> RetryPolicy:
        """How long the server waits, and what it does then."""
        _known("key of [retry]", self.retry, RetryPolicy)
        return RetryPolicy(**self.retry)

    def feature_map(self) -> FeatureMap | None:
        """The features that all sites use; None is each environment's own."""
        if self.features is None:
            return None
        if not isinstance(self.features, dict) or not isinstance(self.features.get("name"), str):
            raise InvalidSetting(
                f"features must be a table with a name, got {self.features!r}: write [features]",
                code="bad-features",
            )
        params = {key: value for key, value in self.features.items() if key != "name"}
        return feature_maps.make(self.features["name"], **params).agreed()

    def plan(self, env: Any, n_agents: int, features: Any = None, logs: Logs = ()) -> Plan:
        """The plan of a site whose environment this is, or whose logs; sizes must be the
        federation's. `features` are the site's, where the federation names none."""
        phi = self.feature_map() or features
        settings = self.chosen(n_agents)
        plan = make_plan(
            settings, env, self.episodes, self.seed, phi, logs=logs,
            logged=self.logged or None,
        )  # fmt: skip
        check_source(plan)
        if plan.masked:  # other sites may be allowed others, and the server knows none
            refuse(settings, allowed="differ")
        mine, agreed = plan.parameters, self.parameters(n_agents)
        for size in ("horizon", "dim", "packing", "states"):
            if (own := getattr(mine, size)) != (theirs := getattr(agreed, size)):
                raise InvalidEnvironment(
                    f"this site's environment has {size} {own}, but the federation agreed on "
                    f"{theirs}",
                    code=f"other-{size}",
                    hint=_remedy(size, own, plan.world),
                )
        self._check_units(plan)
        self._check_features(plan)
        if mine.privacy is not None:  # the paper's β allows for the noise that was agreed on
            mine = replace(mine, beta=agreed.beta)
        # what is true here but was not agreed on makes no noise smaller and allows no more rounds
        mine = replace(mine, nonnegative=agreed.nonnegative, rounds=agreed.rounds)
        return replace(plan, parameters=mine, job=self.agreed)

    def _check_features(self, plan: Plan) -> None:
        """The server refuses uploads that break what was agreed about features."""
        ends = any(isinstance(env, GymWorld) and not env.finite for env in plan.envs)
        holds = {
            "nonnegative": plan.features.nonnegative,
            "simplex": plan.features.simplex and not ends,
        }
        for key, own in holds.items():
            if getattr(self, key) and not own:
                raise InvalidEnvironment(
                    f"the federation agreed on {key} = true, but this site's features are not "
                    f"{key}, or its episodes can end early: choose other features, or leave {key} "
                    "out of federation.toml",
                    code=f"not-{key}",
                )

    def bounds(self, p: Parameters) -> Bounds:
        """What the server knows about every site, for its checks. Sums of features are of no use
        where episodes may end early."""
        return Bounds.of(p, self._nonnegative(), self.simplex, ends=not self.simplex)

    def _nonnegative(self) -> bool:
        """Whether it was agreed that no feature is negative."""
        phi = self.feature_map()
        return self.nonnegative or self.simplex or (phi is not None and phi.nonnegative)

    def _check_units(self, plan: Plan) -> None:
        """A reward must be worth the same everywhere."""
        low, high = units(self.reward_range)
        for env in plan.envs:
            own = units(env.reward_range)
            if own != (low, high):
                raise InvalidEnvironment(
                    f"this site's rewards are in ({own[0]:g}, {own[1]:g}), but the federation "
                    f"agreed on reward_range = [{low:g}, {high:g}]: give that in [env] of this "
                    "site's settings, or agree on another in federation.toml",
                    code="other-reward_range",
                )


def _remedy(size: str, own: Any, env: Environment) -> str:
    """What to do about an environment whose sizes are not the federation's."""
    if size == "packing":
        one_hot = "true" if own == "diagonal" else "false"
        kind = "one-hot" if own == "diagonal" else "not one-hot"
        return (
            f"this site's features are {kind}; if those of all sites are, the organiser sets "
            f"one_hot = {one_hot} in federation.toml, else choose other features for this site"
        )
    counted = ""
    size = "n_states" if size == "states" else size
    if size in ("dim", "n_states") and env.finite:
        counted = (
            f" (it has {plural(env.n_states, 'state')} and {plural(env.n_actions, 'action')}; "
            "where episodes of a Gymnasium environment can end early, one state is added for those "
            "that have ended)"
        )
    return f"change [env] in this site's settings, or {size} in federation.toml{counted}"


@cache
def package() -> str:
    """The version of fedlsvi and the start of a hash of its modules, to notice a different one."""
    found, root = hashlib.sha256(), Path(envs.__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        found.update(f"{path.relative_to(root)}\0".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return f"{__version__} ({found.hexdigest()[:16]})"


def serve(
    opened: OpenedRun,
    transport: FrameTransport,
    observers: Sequence[Observer],
    values: TabularValues | None = None,
) -> Run:
    """Play a federation's run to its end, from the last checkpoint where there is one.

    A checkpoint is written after every round; agents keep theirs first.

    Args:
        opened: The server's run folder.
        transport: The way to the sites.
        observers: Called with the record of each round.
        values: With one trip per synchronisation (`Federation.values`).
    """
    if not opened.finished:
        p, job = opened.header.parameters, opened.header.job
        player = FederatedPlayer(
            p, transport, algorithm=job.algorithm, values=values, seed=job.seed
        )
        session = Session(player)
        opened.restore(session)
        take_epoch(transport, opened.header.run)
        forget = partial(_keep_last, session)
        # the process of a job that was aborted may take a moment to end
        opened.play(session, [forget, *observers], checkpoint_seconds=0.0, patience=60.0)
    return opened.result()


def _keep_last(session: Session, record: RoundRecord) -> None:
    """Records are on disk, from where the result is read: a long run stays small."""
    del session.records[:-1]
