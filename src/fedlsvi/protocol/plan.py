"""A problem made ready: environments, features and numbers, from which all else is built.

A plan is all that a process needs to hold some of the agents, wherever it runs. It builds nothing:
`experience.kinds` makes what agents know and see, `protocol.cohorts` the agents, and
`protocol.regret_meter` what measures them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlsvi.checks import check_seed, integer, refuse_large
from fedlsvi.config import Parameters, Settings
from fedlsvi.core.participation_schedule import ParticipationSchedule
from fedlsvi.core.statistics import packed_size
from fedlsvi.core.trigger import schedule
from fedlsvi.envs.allowed import same_mask
from fedlsvi.envs.base import Environment, units
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.envs.per_agent import first_world, own_features, per_agent, same_sizes
from fedlsvi.errors import InvalidSetting
from fedlsvi.experience.kinds import adds_up, prefers_sparse
from fedlsvi.features.base import FeatureMap, resolve
from fedlsvi.features.tabular import TableFeatures
from fedlsvi.groups import ProblemSize
from fedlsvi.incompatible import refuse
from fedlsvi.logs.patients import refuse_frequent
from fedlsvi.protocol.messages import Layout
from fedlsvi.protocol.return_log import ReturnLog
from fedlsvi.protocol.transport import layout

if TYPE_CHECKING:
    from fedlsvi.logs.world import LoggedWorld
    from fedlsvi.protocol.warm_start import Prior


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
    job: bytes = b""
    """(32,) hash of the job, where somebody else gave it to this process."""

    @cached_property
    def agreed(self) -> bytes:
        """(32,) hash of what all parties must have alike: of the job, or of what stands for it."""
        if self.job:
            return self.job
        phi, rewards = self.features, units(self.world.reward_range)
        made = sha256(f"{self.parameters}|{self.seed}|{rewards}|{type(phi).__name__}".encode())
        made.update(json.dumps(phi.spec(), sort_keys=True).encode())
        if isinstance(phi, TableFeatures):
            made.update(np.ascontiguousarray(phi.table, "<f8").data)
        return made.digest()

    @cached_property
    def returns(self) -> ReturnLog:
        """Of episodes just played, where values are not known; explorers write it, meters read
        it."""
        return ReturnLog()

    @cached_property
    def worlds(self) -> tuple[Environment, ...]:
        """The environments, each once: there may be a million agents in one."""
        return tuple({id(env): env for env in self.envs}.values())

    @property
    def players(self) -> Sequence[int]:
        """The agents that play: all but those that have a log and no world."""
        if not self.logs:
            return range(len(self.envs))
        return [m for m, env in enumerate(self.envs) if env is not self.logs[m]]

    @property
    def world(self) -> Environment:
        """The first environment that can be played; where there is none, the first log."""
        return first_world(self.envs)

    @property
    def knows_values(self) -> bool:
        """Whether V* and V^π are known, and with them regret. On continuous states V^π is an
        integral: with one policy for each agent and episode there would be too many."""
        worlds = self.worlds if not self.logs else [self.envs[m] for m in self.players]
        worlds = worlds or self.envs
        integrals = not worlds[0].finite and self.parameters.diversity > 0.0
        return not integrals and all(env.knows_values for env in worlds)

    @property
    def raw_scalars_per_step(self) -> int:
        """ρ = s + 2; s = 1 where states are finite."""
        return (1 if self.world.finite else self.world.state_dim) + 2

    @property
    def layout(self) -> Layout:
        """What server and agents agree on."""
        return layout(self.parameters)

    @property
    def schedule(self) -> ParticipationSchedule:
        """Who is there, round by round."""
        return schedule_of(self.parameters, self.seed)

    @property
    def masked(self) -> bool:
        """Whether some action is not allowed in some state of some agent, or may be."""
        return any(env.allowed is not None for env in self.worlds)

    def same_masks(self, lo: int, hi: int) -> bool:
        """Whether agents lo … hi−1 are allowed the same actions."""
        first = self.envs[lo]
        announced = isinstance(first, GymWorld) and first.masked  # by the infos of its steps
        if announced and self.parameters.some_away and hi - lo > 1:
            return False  # what one agent of a round saw is not in the policy of the others
        if len(self.worlds) == 1:
            return True
        return all(
            one is first or (not announced and same_mask(one.allowed, first.allowed))
            for one in self.envs[lo + 1 : hi]
        )


def schedule_of(p: Parameters, seed: int) -> ParticipationSchedule:
    """Who is there, round by round."""
    return ParticipationSchedule(p.n_agents, seed, p.participation, p.present)


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
        log.bind_features(phi)
    one_hot = phi.one_hot and first.finite
    different = {id(env): env for env in envs}.values()
    steady = all(env.stationary for env in different)
    masked = any(env.allowed is not None for env in different)
    longest = max((log.log.episodes for log in logs if log is not None), default=1)
    problem = ProblemSize(
        episodes, first.horizon, phi.dim, one_hot, steady=steady,
        states=first.n_states if first.finite else 0,
        repeats=not (isinstance(first, ContinuousMDP) or masked)
        and any(env.repeats for env in different),
        logged=(longest if logged is None else logged) if logs else 0,
        after=first.absorbing_reward,
        prior=0.0 if prior is None else prior.weight,
        nonnegative=phi.nonnegative,
    )  # fmt: skip
    parameters = settings.resolve(problem)
    if parameters.stationary and not steady:
        _refuse_steps(envs)
    if parameters.privacy is not None:
        known = [*envs, *(log for log in logs if log is not None)]
        _check_ends(parameters, known)
        recorded: list[Any] = [env for env in known if env.recorded]
        refuse_frequent(recorded, parameters.privacy)
        _check_public(parameters.privacy, phi)
    _check_room(parameters, first)
    plan = Plan(envs, phi, parameters, int(seed), threads, block, tuple(logs), prior)
    refuse(settings, **_facts(plan))
    if prior is not None:
        prior.check(parameters)
    return plan


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


def _check_public(privacy: Mapping[str, Any], phi: FeatureMap) -> None:
    """Refuse features that were made from data, unless these are said to be public: whatever they
    reveal is in no budget."""
    if phi.fitted and not privacy.get("public_features", False):
        raise InvalidSetting(
            "these features were fitted to observed states, and what they reveal of these is not "
            "part of epsilon: fit them to public or simulated states and give "
            'privacy={…, "public_features": True}, or use features that need no data, such as '
            '"rbf", or "fourier" with a bandwidth',
            code="fitted-features",
        )


def _check_ends(p: Parameters, envs: Sequence[Environment]) -> None:
    """Refuse a private run in which what follows an early end is worth more than V may be: noise is
    made for targets up to 1 + the clip of V."""
    for m, env in enumerate(envs):
        if not env.recorded and (not isinstance(env, GymWorld) or env.finite):
            continue
        paid = env.absorbing_reward
        after = paid * np.arange(p.horizon - 1, 0, -1)
        if (after < 0.0).any() or (after > p.ceilings[1:] + 1e-9).any():
            raise InvalidSetting(
                f"after an early end, {env.name} of agent {m} has reward {paid:g} "
                "at every step (mapped to [0, 1]), and their sum can leave [0, value_range]: "
                "privacy needs a larger value_range, or a reward_range that contains 0",
                code="bad-value_range",
            )


def _count(name: str, value: Any) -> int | None:
    """How the work is cut: an integer, or None."""
    if value is None:
        return None
    integer(name, value, 1, "it changes the speed, never the result")
    return int(value)


def _facts(plan: Plan) -> dict[str, Any]:
    """What `incompatible` asks of a problem."""
    first = plan.world
    reported = any(isinstance(env, GymWorld) and env.masked for env in plan.worlds)
    masks = "same" if plan.same_masks(0, plan.parameters.n_agents) else "differ"
    return {
        "data": bool(plan.logs),
        "warm_start": plan.prior is not None,
        "allowed": "all" if not plan.masked else "reported" if reported else masks,
        "state_space": "continuous" if isinstance(first, ContinuousMDP)
        else "finite" if first.finite else "stepped",
    }  # fmt: skip


def _check_room(p: Parameters, env: Environment) -> None:
    """Refuse a run whose regret, model or agents this machine cannot hold."""
    refuse_large(f"the regret of episodes = {p.episodes}", p.episodes, "give fewer")
    d = p.own_dim
    packed = packed_size(d, p.packing)
    each = p.matrices * (packed + d)  # Λ^loc and u, or what takes their place
    n_states, fewer = env.n_states if env.finite else 0, "give fewer"
    agents = p.n_agents
    if isinstance(env, FiniteMDP):
        sparse = prefers_sparse(p.matrices, d, n_states, env.n_actions)
        sparse = sparse and p.packing == "diagonal"
        if adds_up(p, env):
            each = p.matrices + 16  # the trigger's sums, the ledger and what a signal takes
            if p.some_away:
                agents = math.ceil(agents * p.share)
        elif not sparse:
            each += max(p.matrices - 1, 1) * d * n_states  # N
            if adds_up(replace(p, exchange="one-trip", aggregation="exact"), env):
                fewer += ', or use exchange="one-trip" with aggregation="exact"'
        each += _room_of_a_round(p, n_states, 1 if sparse else n_states)
    elif n_states:
        # the log of 64 episodes, their rewards, and three small arrays for each step
        each += (32 + 64 + 50) * (p.horizon + 1)
    else:
        # the trigger's determinants and one episode's rows, and 64 episodes with their rewards
        each += p.matrices * d**2 + p.horizon * (d + 64 * (env.width + 1))
    model = p.matrices * packed + p.horizon * (d + n_states + d * p.columns)
    if p.own_features:  # a model of each agent's own, and its sums
        each += model + p.matrices * d * d
    for what, n, fix in (
        (f"a model of horizon = {p.horizon} and dimension {d}", model, "make these smaller"),
        (f"the statistics of n_agents = {p.n_agents}", agents * each, fewer),
        (f"the features of n_actions = {env.n_actions}", env.n_actions * d, "give fewer"),
    ):
        refuse_large(what, n, fix)


def _room_of_a_round(p: Parameters, n_states: int, columns: int) -> int:
    """Numbers that an agent keeps of the longest round that will be played whatever is seen: the
    states of its episodes, or where these take more, counts (H, S, columns)."""
    from fedlsvi.experience.table_source import FEWEST_AT_ONCE

    longest = p.min_round
    if p.rounds is not None:  # the budget's rounds grow
        longest = int(np.diff(schedule(p.episodes, p.rounds, p.min_round), prepend=0).max())
    episode = (p.horizon + 1) / 2  # 32 bits for a state
    few = FEWEST_AT_ONCE * episode
    return int(max(few, min(longest * episode, p.horizon * n_states * columns)))
