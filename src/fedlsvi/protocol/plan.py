"""A problem made ready: environments, features and numbers, from which cohorts are built.

A plan is all that a process needs to hold some of the agents, wherever it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlsvi.checks import check_seed, integer, refuse_large
from fedlsvi.config import Parameters, Settings
from fedlsvi.core.statistics import packed_size
from fedlsvi.envs.allowed import same_mask
from fedlsvi.envs.base import Environment, units
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.errors import InvalidEnvironment, InvalidSetting
from fedlsvi.experience.kinds import Kind, experience_class, prefers_sparse
from fedlsvi.experience.values import FEW_ROWS, ROWS, BlockValues, TabularValues
from fedlsvi.experience.workers import Workers
from fedlsvi.features.base import FeatureMap, alike, probe_states, resolve
from fedlsvi.features.tabular import OneHot, TableFeatures
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.evaluation import (
    ContinuousEvaluator,
    Evaluator,
    FiniteEvaluator,
    ReturnLog,
)
from fedlsvi.protocol.messages import Layout
from fedlsvi.protocol.transport import layout

if TYPE_CHECKING:
    from fedlsvi.envs.logged.world import LoggedWorld
    from fedlsvi.protocol.warm_start import Prior

STEPPED = (
    ". A black box has one extra state, after the end of an episode: step all of them, "
    "as_environment(env, tables=False)"
)
RANGES = ". Make all of them with one reward_range= that contains all their rewards"


@dataclass(frozen=True)
class Plan:
    """M environments (the same object where agents share one), features, numbers, seed."""

    envs: tuple[Environment, ...]
    features: FeatureMap
    parameters: Parameters
    seed: int
    threads: int | None = None
    block: int | None = None
    logs: tuple[LoggedWorld | None, ...] = ()
    """What each agent recorded before, where any did; in place of an environment too, where an
    agent has nothing else."""
    prior: Prior | None = None
    """What was learned before."""
    returns: ReturnLog = field(default_factory=ReturnLog, compare=False, repr=False)
    """Of episodes just played, where values are not known; explorers write it, meters read it."""

    @property
    def players(self) -> list[int]:
        """The agents that play: all but those that have a log and no world."""
        return [m for m, env in enumerate(self.envs) if not self._only_logged(m, env)]

    def _only_logged(self, m: int, env: Environment) -> bool:
        return bool(self.logs) and env is self.logs[m]

    @property
    def world(self) -> Environment:
        """The first environment that can be played; where there is none, the first log."""
        return first_world(self.envs)

    @property
    def knows_values(self) -> bool:
        """Whether V* and V^π are known, and with them regret."""
        worlds = [self.envs[m] for m in self.players] or self.envs
        stepped = isinstance(worlds[0], GymWorld)
        return not stepped and all(getattr(env, "knows_values", True) for env in worlds)

    @property
    def stepped(self) -> tuple[int, int] | None:
        """Steps taken here in black boxes so far, and rewards of theirs that were clipped; None
        where nothing is stepped."""
        worlds = {id(env): env for env in self.envs if isinstance(env, GymWorld)}.values()
        if not worlds:
            return None
        return sum(env.stepped for env in worlds), sum(env.clipped for env in worlds)

    @property
    def layout(self) -> Layout:
        """What server and agents agree on."""
        return layout(self.parameters)

    @property
    def known_before(self) -> dict[str, Any]:
        """Logs and prior, as `FedLSVI.prepare` takes them; nothing where there is neither."""
        known: dict[str, Any] = {"logs": self.logs} if self.logs else {}
        return known if self.prior is None else known | {"prior": self.prior}

    @property
    def logged_counts(self) -> dict[str, int]:
        """What there is in the logs, for summaries: agents that have one, those that have nothing
        else, episodes, transitions, how many of these have no target, and the shortest log."""
        p, logs = self.parameters, [log for log in self.logs if log is not None]
        return {
            "logged_agents": len(logs),
            "logged_only": p.n_agents - len(self.players),
            "logged_episodes": sum(min(p.logged, log.log.episodes) for log in logs),
            "logged_transitions": sum(log.log.transitions for log in logs),
            "left_out": sum(log.log.cut(p.horizon, p.stationary) for log in logs),
            "shortest_log": min((log.log.episodes for log in logs), default=0),
        }

    def values(self, agent: int = 0) -> TabularValues | BlockValues:
        """An empty model; the first broadcast fills it. The agent's environment has the mask."""
        p, env = self.parameters, self.envs[agent]
        size, stepped = (p.horizon, p.bonus, p.ceilings), isinstance(env, GymWorld)
        if hasattr(env, "n_states"):
            diagonal = p.packing == "diagonal"
            assert isinstance(self.features, TableFeatures | OneHot)  # what resolve gives there
            if p.diversity:  # `make_plan` refuses it beside masks
                from fedlsvi.experience.diverse_values import DiverseValues

                return DiverseValues(p.diversity, self.features, *size, diagonal, p.taper_factors)
            unseen = stepped and env.allowed is not None
            mask = np.ones_like(env.allowed) if unseen else env.allowed
            return TabularValues(self.features, *size, diagonal, p.taper_factors, mask, unseen)
        if stepped and env.allowed is not None:  # states carry their masks
            from fedlsvi.features.columns import WithoutMask

            seen = WithoutMask(self.features, env.state_dim)  # type: ignore[attr-defined]
            return BlockValues(seen, *size, FEW_ROWS, p.taper_factors, seen.allowed)
        # a site that has only logs does not know what others play: the same blocks everywhere
        rows = FEW_ROWS if stepped or p.logged else ROWS
        return BlockValues(self.features, *size, rows, p.taper_factors, env.allowed)

    @property
    def masked(self) -> bool:
        """Whether some action is not allowed in some state of some agent, or may be."""
        return any(env.allowed is not None for env in self.envs)

    def same_masks(self, lo: int, hi: int) -> bool:
        """Whether agents lo … hi−1 are allowed the same actions."""
        first = self.envs[lo]
        announced = isinstance(first, GymWorld) and first.masked  # by the infos of its steps
        return all(
            one is first or (not announced and same_mask(one.allowed, first.allowed))
            for one in self.envs[lo + 1 : hi]
        )

    def check_source(self) -> None:
        """Refuse to be optimistic about a log, or to be pessimistic and play."""
        for m, env in enumerate(self.envs):
            if self._only_logged(m, env):
                continue
            logged = env.recorded
            if logged != self.parameters.pessimistic:
                raise InvalidEnvironment(
                    f"{env.name} is a log, but an optimistic learner needs an environment to play "
                    "in: learn from the log with PEVI"
                    if logged
                    else f"pevi learns from logs, but {env.name} is not a log: give data=",
                    code="needs-world" if logged else "needs-records",
                )

    def cohort(
        self,
        lo: int,
        hi: int,
        values: TabularValues | BlockValues | None = None,
        workers: Workers | None = None,
    ) -> Cohort:
        """Agents lo … hi−1, with memories of their own; values and threads may be shared."""
        self.check_source()
        p, shared = self.parameters, values is not None
        if not self.same_masks(0 if shared else lo, hi):
            raise InvalidSetting(
                f"agents {lo} to {hi - 1} share one policy but not the same allowed actions: give "
                "each agent its own cohort, cohorts=n_agents, and leave out participation= and "
                "present=",
                code="masks-differ",
            )
        values = self.values(lo) if values is None else values
        workers = Workers(self.threads) if workers is None else workers
        agents = np.arange(lo, hi)
        experience = self._experience(agents, values, workers)
        about = (agents, p.horizon, p.packing, values, experience, p.trigger)
        if p.exchange == "one-trip":
            from fedlsvi.protocol.one_trip import OneTripCohort

            asked_once = OneTripCohort(*about)
            asked_once.stationary = p.stationary
            return asked_once
        return Cohort(*about)

    def _experience(self, agents: np.ndarray, values: Any, workers: Workers) -> Any:
        """What these agents know and see: of those that play, and of the logs of those that have
        one."""
        p = self.parameters
        if p.privacy is not None:  # which has no logs
            from fedlsvi.experience.bounded import BoundedExperience

            seen = self._seen(agents, self.envs, values, workers)
            most = p.privacy["episodes_per_user"] if p.privacy["unit"] == "user" else None
            return BoundedExperience(seen, agents, [self.envs[m] for m in agents], most)
        if not self.logs:
            return self._seen(agents, self.envs, values, workers)
        from fedlsvi.experience.warm import WarmExperience

        plays = np.flatnonzero(np.isin(agents, self.players))
        logged = np.array([i for i, m in enumerate(agents) if self.logs[m] is not None], np.int64)
        parts = [
            self._seen(agents[at], worlds, values, workers) if len(at) else None
            for at, worlds in ((plays, self.envs), (logged, self.logs))
        ]
        dim, shape = self.features.dim, (p.packing, p.stationary)
        known = (parts[0], plays, parts[1], logged)
        return WarmExperience(
            agents, p.horizon, dim, *shape, *known, p.logged, p.min_round, workers
        )

    def _seen(
        self, agents: np.ndarray, worlds: Sequence[Any], values: Any, workers: Workers
    ) -> Any:
        """What agents see in worlds of one kind."""
        p, envs = self.parameters, [worlds[m] for m in agents]
        kind, finite = _kind_of(envs[0]), isinstance(values, TabularValues)
        if kind == "dense":
            size = (p.matrices, p.dim, len(values.values[0]), envs[0].n_actions)
            if p.packing == "diagonal" and prefers_sparse(*size):
                kind = "sparse"
        elif kind == "logged" and finite:
            kind = "logged-finite"
        made = experience_class(kind, p.stationary, p.diversity > 0.0)
        experience = made(envs, agents, values, self.seed, p.packing, workers)
        if kind == "stepped":
            # elsewhere every episode reaches every step; in a private run what is sent when may
            # not depend on how many did, and noise hides the few
            if not p.stationary and p.privacy is None:
                experience.floor = p.min_round
            experience.diversity = p.diversity
        if self.block is not None:
            experience.block = min(self.block, experience.block)
        return experience

    def cohorts(self, n: int) -> list[Cohort]:
        """All agents, in n equal shares; where masks differ, in so many more."""
        M = self.parameters.n_agents
        cuts = {M * c // n for c in range(n + 1)}
        cuts |= {m for m in range(1, M) if not self.same_masks(m - 1, m + 1)}
        return [self.cohort(lo, hi) for lo, hi in pairwise(sorted(cuts))]

    def describe(self) -> list[dict[str, Any]]:
        """How to make the environments again: one entry for all agents, or one for each."""
        shared = all(env is self.envs[0] for env in self.envs)
        return [env.spec() for env in (self.envs[:1] if shared else self.envs)]

    def evaluator(self, values: TabularValues | BlockValues) -> Evaluator | None:
        """Measures the policy that `values` holds; None where V* is not known."""
        if not self.knows_values:
            return None
        kind: Any = FiniteEvaluator if isinstance(values, TabularValues) else ContinuousEvaluator
        if self.parameters.diversity:
            from fedlsvi.protocol.diverse_evaluation import DiverseEvaluator

            kind = DiverseEvaluator
        playing = {m: self.envs[m] for m in self.players}
        evaluator: Evaluator = kind(playing, self.seed, values)
        return evaluator


def _kind_of(env: Environment) -> Kind:
    """What a world is; whether a table is dense, and a log of numbers, is seen elsewhere."""
    if isinstance(env, GymWorld):
        return "stepped-finite" if env.finite else "stepped"
    if env.recorded:
        return "logged"
    return "dense" if hasattr(env, "n_states") else "continuous"


def make_plan(
    settings: Settings,
    env: Any,
    episodes: int,
    seed: int,
    features: Any = None,
    threads: int | None = None,
    block: int | None = None,
    logs: Sequence[LoggedWorld | None] = (),
    prior: Prior | None = None,
    logged: int | None = None,
) -> Plan:
    """Check that environments, features and settings fit together, and fix the numbers; `logged`
    is how many episodes of each log are read at most, None is all."""
    # at the least: its environment, its number and its row of the ledger
    refuse_large(f"n_agents = {settings.n_agents}", 8 * settings.n_agents, "give fewer")
    envs = per_agent(env, settings.n_agents)
    check_seed(seed)
    threads, block = _count("threads", threads), _count("block", block)
    first = first_world(envs)
    if logs:
        same_sizes([*envs, *(log for log in logs if log is not None)])
    worlds = [env for env in envs if not env.recorded] or envs
    phi = own_features(worlds) if features is None else resolve(features, first)
    for log in {id(one): one for one in (*envs, *logs) if one is not None}.values():
        if log.recorded:
            log.bind_features(phi)  # type: ignore[attr-defined]
    one_hot = phi.one_hot and hasattr(first, "n_states")
    steady = all(env.stationary for env in {id(env): env for env in envs}.values())
    # settings of other algorithms need not know what a stationary model or one trip is
    known: dict[str, Any] = {}
    if getattr(settings, "stationary", None) == "auto":
        known["steady"] = steady
    masked = any(env.allowed is not None for env in envs)
    if getattr(settings, "diversity", None) == "auto":
        known["repeats"] = not (isinstance(first, ContinuousMDP) or masked) and any(
            env.repeats for env in envs
        )
    if getattr(settings, "exchange", None) == "one-trip":
        known["states"] = getattr(first, "n_states", 0)
    if getattr(settings, "privacy", None) is not None:
        known["nonnegative"] = phi.nonnegative
    if logs:
        longest = max((log.log.episodes for log in logs if log is not None), default=1)
        known["logged"] = longest if logged is None else logged
    if prior is not None:
        known["prior"] = prior.weight
    parameters = settings.resolve(episodes, first.horizon, phi.dim, one_hot, **known)
    if parameters.stationary and not steady:
        _refuse_steps(envs)
    if parameters.diversity:
        _refuse_diversity(first, masked)
    if parameters.privacy is not None:
        _check_ends(parameters, envs)
    _check_room(parameters, first)
    if logs and any(isinstance(env, GymWorld) and env.masked for env in envs):
        raise InvalidSetting(
            "the environment gives a mask with each observation, but the observations in a log "
            'have none: leave out data= or allowed="env"',
            code="masks-and-logs",
        )
    if parameters.exchange == "one-trip" and masked:
        raise InvalidSetting(
            'exchange="one-trip" lets the server compute the values of all states, but only the '
            "agents know which actions are allowed: leave it out",
            code="one-trip-masks",
        )
    if prior is not None:
        prior.check(parameters)
    return Plan(envs, phi, parameters, int(seed), threads, block, tuple(logs), prior)


def _refuse_steps(envs: Sequence[Environment]) -> None:
    """The error for stationary=True where steps differ, or nobody says that they do not."""
    m, env = next((m, env) for m, env in enumerate(envs) if not env.stationary)
    why = "depends on the step" if isinstance(env, FiniteMDP) else "does not say that it is"
    fix = "" if isinstance(env, FiniteMDP) else ", or set stationary = True on its class"
    raise InvalidSetting(
        "stationary=True needs transitions and rewards that are the same at every step, but "
        f"{env.name} of agent {m} {why}: leave it out{fix}",
        code="not-stationary",
    )


def _check_ends(p: Parameters, envs: Sequence[Environment]) -> None:
    """Refuse a private run in which what follows an early end is worth more than V may be: noise is
    made for targets up to 1 + the clip of V."""
    for m, env in enumerate(envs):
        if not isinstance(env, GymWorld) or env.finite:
            continue
        after = env.absorbing_reward * np.arange(p.horizon - 1, 0, -1)
        if (after < 0.0).any() or (after > p.ceilings[1:] + 1e-9).any():
            raise InvalidSetting(
                f"after an early end, {env.name} of agent {m} has reward {env.absorbing_reward:g} "
                "at every step (mapped to [0, 1]), and their sum can leave [0, value_range]: "
                "privacy needs a larger value_range, or a reward_range that contains 0",
                code="bad-value_range",
            )


def _refuse_diversity(env: Environment, masked: bool) -> None:
    """The error for diversity where values or masks do not provide for it."""
    if isinstance(env, ContinuousMDP):
        raise InvalidSetting(
            f"diversity needs finite states or a black box that is stepped, but {env.name} is "
            "neither: give diversity=0",
            code="bad-diversity",
        )
    if masked:
        raise InvalidSetting(
            "diversity ignores which actions are allowed: give diversity=0 if some are forbidden",
            code="bad-diversity",
        )


def _count(name: str, value: Any) -> int | None:
    """How the work is cut: an integer, or None."""
    if value is None:
        return None
    integer(name, value, 1, "it changes the speed, never the result")
    return int(value)


def own_features(envs: Sequence[Environment]) -> FeatureMap:
    """The environments' own feature map, which has to be the same for all agents."""
    phi = resolve(None, envs[0])
    for m, other in enumerate(envs):
        own = phi if other is envs[0] else resolve(None, other)
        if own.dim != phi.dim:
            raise InvalidEnvironment(
                f"agent {m} has features of dimension {own.dim}, but agent 0 has {phi.dim}: give "
                "features= for all agents",
                code="features-disagree",
            )
        if not same_features(own, phi, envs[0]):
            raise InvalidEnvironment(
                f"agent {m} has features that differ from agent 0's: give features= for all agents",
                code="features-disagree",
            )
    return phi


def same_features(one: FeatureMap, other: FeatureMap, env: Environment) -> bool:
    """Whether two maps agree: on all states where these are finite, else on a few."""
    if one is other or (isinstance(one, OneHot) and isinstance(other, OneHot)):
        return True
    n_states = getattr(env, "n_states", None)
    states = probe_states(env) if n_states is None else np.arange(n_states)
    return one.dim == other.dim and alike(one(states), other(states))


def _check_room(p: Parameters, env: Environment) -> None:
    """Refuse a run whose regret, model or agents this machine cannot hold."""
    packed = packed_size(p.dim, p.packing)
    each = p.matrices * (packed + p.dim)  # Λ^loc and u, or what takes their place
    n_states = getattr(env, "n_states", 0)
    if isinstance(env, FiniteMDP):
        sparse = prefers_sparse(p.matrices, p.dim, n_states, env.n_actions)
        if not (sparse and p.packing == "diagonal"):
            each += max(p.matrices - 1, 1) * p.dim * n_states  # N
        each += 4 * (p.horizon + 1)  # the log of a few episodes, 32 bits for a state
    elif n_states:
        # the log of 64 episodes, their rewards, and three small arrays for each step
        each += (32 + 64 + 50) * (p.horizon + 1)
    else:
        # the trigger's determinants and one episode's rows, and 64 episodes with their rewards
        width = getattr(env, "width", getattr(env, "state_dim", 1))
        each += p.matrices * p.dim**2 + p.horizon * (p.dim + 64 * (width + 1))
    model = p.matrices * packed + p.horizon * (p.dim + n_states + p.dim * p.states)
    for what, n, fix in (
        (f"the regret of episodes = {p.episodes}", p.episodes, "give fewer"),
        (f"a model of horizon = {p.horizon} and dimension {p.dim}", model, "make these smaller"),
        (f"the statistics of n_agents = {p.n_agents}", p.n_agents * each, "give fewer"),
        (f"the features of n_actions = {env.n_actions}", env.n_actions * p.dim, "give fewer"),
    ):
        refuse_large(what, n, fix)


def per_agent(env: Any, n_agents: int) -> tuple[Environment, ...]:
    """One environment for each agent, all of the same kind and size."""
    if not isinstance(env, Environment):
        from fedlsvi.envs.gym.convert import as_environment

        env = as_environment(env)
    if isinstance(env, Environment):
        units(env.reward_range)
        return (env,) * n_agents
    if len(env) != n_agents:
        raise InvalidEnvironment(
            f"env is a list of {len(env)}, but n_agents is {n_agents}: give one environment per "
            "agent",
            code="wrong-number-of-environments",
        )
    same_sizes(env)
    known = isinstance(env[0], FiniteMDP | ContinuousMDP | GymWorld)
    if not (known or getattr(env[0], "recorded", False)):
        raise InvalidEnvironment(
            f"env is of type {type(env[0]).__name__}, not a finite or continuous environment: "
            "give one of these",
            code="bad-env",
        )
    return tuple(env)


def first_world(envs: Sequence[Environment]) -> Environment:
    """The first that can be played; where there is none, the first log."""
    return next((env for env in envs if not env.recorded), envs[0])


def same_sizes(env: Sequence[Any]) -> None:
    """Refuse environments that differ in size or units."""
    first = env[0]
    for m, other in enumerate(env):
        for size in ("horizon", "n_actions", "n_states", "state_dim", "reward_range"):
            here, there = getattr(other, size, None), getattr(first, size, None)
            if size == "reward_range":
                here, there = units(here), units(there)
            if here != there:
                mixed = isinstance(other, GymWorld) != isinstance(first, GymWorld)
                more = {"reward_range": RANGES, "n_states": STEPPED if mixed else ""}.get(size, "")
                raise InvalidEnvironment(
                    f"env[{m}].{size} is {here}, but env[0].{size} is {there}: all agents must "
                    f"agree{more}",
                    code="agents-disagree",
                )
