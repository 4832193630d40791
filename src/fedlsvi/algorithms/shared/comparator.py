"""What all comparators share: the face of `FedLSVI`, and a player that a session can drive.

An algorithm has a name, settings and a player, whose `advance` plays until the next record is due.
Parties (agents, servers) hold their own state and meet only in `channel`; only the regret meter
measures.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from fedlsvi.algorithms.shared.channel import Channel
from fedlsvi.algorithms.shared.contract import Segment, check_model, check_segment, party_states
from fedlsvi.algorithms.shared.lsvi_sums import check_room, keeps_sums
from fedlsvi.algorithms.shared.regret_meter import RunMeter
from fedlsvi.core.statistics import identity
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.envs.per_agent import per_agent
from fedlsvi.errors import InvalidEnvironment, InvalidSetting
from fedlsvi.experience.kinds import empty_values
from fedlsvi.features.tabular import OneHot
from fedlsvi.learner import Algorithm, Execution, Placing
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.protocol.plan import Plan, make_plan
from fedlsvi.protocol.records import LISTED
from fedlsvi.protocol.session import Played, Player, Session, part_of, since, stepped

__all__ = ["Comparator", "Play", "Segment"]

RECORDS = 1024
"""Records of a run in which every episode is a round; more would only cost memory."""

PAUSE = 1000
"""A long round is interrupted by a record after this many episodes, so that observers see it."""


ANYWHERE = '"fed-lsvi", "centralised", "independent", "periodic", "stale" or "low-switching"'
"""Some algorithms that play every environment."""


class Play(ABC):
    """The player of an algorithm that is not Fed-LSVI (`fedlsvi.protocol.session.Player`).

    `w`, `gram`, `t`, `k` and `ledger` are what the run reports; `values` is the policy that it
    reports: the common one, or agent 0's where every agent has its own.
    """

    algorithm: str
    cohorts: Sequence[Cohort] = ()
    goes_on: ClassVar[bool] = False
    """Whether a longer run would have begun in the same way. Not so where a constant or a schedule
    follows T, or where T ends a round or a turn."""
    elsewhere: ClassVar[bool] = False
    deployed: ClassVar[None] = None
    deployed_w: ClassVar[None] = None
    fit: ClassVar[None] = None
    """No pass follows the last round."""
    noise_key: ClassVar[bytes | None] = None
    """No private run is resumed: with logs there is one release."""

    def __init__(self, plan: Plan, settings: Any, keep_models: bool = False) -> None:
        p = plan.parameters
        self.plan, self.parameters, self.settings = plan, p, settings
        self.measured = plan.knows_values
        self.ledger = Ledger(p.n_agents)
        self.channel, self.regret_meter = Channel(self.ledger), RunMeter(plan)
        self.values: Any = empty_values(plan)
        self.w = np.zeros((p.horizon, p.dim))
        self.gram = np.stack([identity(p.dim, p.lam, p.packing)] * p.horizon)
        self.t = self.k = 0
        self.counts: dict[str, int] = {}
        self.planning = 0.0
        self.segment_length = 1 if keep_models else max(1, p.episodes // RECORDS)
        self.pause = max(PAUSE, p.episodes // 100)

    @property
    def episodes(self) -> int:
        """T, the episode budget."""
        return self.parameters.episodes

    @abstractmethod
    def advance(self) -> Segment:
        """Play until the next record is due. Time spent planning goes into `planning`."""

    @abstractmethod
    def parties(self) -> dict[str, Any]:
        """Everyone who holds state, by name; no two of them share any."""

    def followed(self) -> np.ndarray | None:
        """The policy table that agent 0 follows now; None where states are not finite."""
        table: np.ndarray | None = self.values.policy
        return table

    def report(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(w, Λ) that the run reports after a segment; None leaves it as it is."""
        return None

    def resumed(self) -> None:  # noqa: B027 (nothing by default, as below)
        """Compute again, after a restart, what follows from the parties' state."""

    def use_noise_key(self, key: bytes) -> None:  # noqa: B027
        """There is none."""

    def dismiss(self) -> None:  # noqa: B027
        """Nobody keeps a secret."""

    def start(self) -> None:  # noqa: B027
        """Nobody needs to know that the run begins."""

    def finish(self) -> list[str]:
        """Nothing is left to do after the last round."""
        return []

    def may_end(self) -> bool:
        """Rounds that T cuts short are not taken back here."""
        return False

    def play_round(self) -> Played:
        """Advance, check what was played, and take over the model."""
        began, first = perf_counter(), self.t + 1
        self.planning, measured, before = 0.0, self.regret_meter.seconds, stepped(self.plan.worlds)
        done = self.advance()
        check_segment(self.algorithm, done, self.t, self.parameters)
        self.regret_meter.check_complete(self.algorithm, first, done.last)
        self.t, self.k = int(done.last), self.k + int(done.rounds)
        measured = self.regret_meter.seconds - measured
        explored = perf_counter() - began - measured - self.planning
        model = self.report()
        if model is not None:
            check_model(self.algorithm, model, self.w, self.gram)
            self.w[:], self.gram[:] = model
        diagonal = self.gram.ndim == 2
        gaps = self.regret_meter.gaps[first - 1 : self.t]
        steps, clipped = since(before, stepped(self.plan.worlds))
        return Played(
            first=first,
            last=self.t,
            signals=int(done.signals),
            triggers=[(int(m), int(h)) for m, h in done.triggers[:LISTED]],
            logdet=np.log(self.gram).sum(axis=1) if diagonal else np.linalg.slogdet(self.gram)[1],
            gaps=gaps if self.measured else None,
            mean_return=None if self.measured else float(gaps.mean() / self.parameters.n_agents),
            seconds={"explore": explored, "synchronise": self.planning, "evaluate": measured},
            rounds=int(done.rounds),
            steps=steps,
            clipped=clipped,
        )

    def rest(self) -> None:  # noqa: B027
        """Nothing to do between rounds."""

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values from which `restore` continues, taken between records."""
        kept = self.gram[: self.parameters.matrices]  # where steps share one, that one
        arrays = {"w": self.w, "gram": kept} | self.regret_meter.state(self.t)
        if self.parameters.noisy:
            arrays["noise"] = self.values.noise
        for name, state in party_states(self.algorithm, self.parties()):
            arrays |= {f"{name}.{key}": array for key, array in state.items()}
        plain = {"t": self.t, "k": self.k, "last": 0, "counts": self.counts}
        return arrays, plain | {"ledger": self.ledger.to_dict()}

    def history(self, first: int, last: int) -> dict[str, np.ndarray]:
        """Everything is in `state`."""
        return {}

    def extend(self, first: int, arrays: dict[str, np.ndarray]) -> None:  # noqa: B027
        """Nothing to put back."""

    def restore(self, arrays: dict[str, np.ndarray], plain: Mapping[str, Any]) -> None:
        """Continue after the record at which `state` was taken."""
        self.w[:], self.gram[:] = arrays["w"], arrays["gram"]
        self.t, self.k = plain["t"], plain["k"]
        self.regret_meter.restore(self.t, arrays)
        for name, party in self.parties().items():
            party.restore(part_of(name, arrays))
        self.counts = dict(plain["counts"])
        self.ledger.restore(plain["ledger"])
        self.resumed()

    def close(self) -> None:  # noqa: B027
        """Nothing to release."""


class Comparator(Algorithm):
    """A learner other than Fed-LSVI. Subclasses name their settings and their player."""

    play_type: ClassVar[type]
    worlds: ClassVar[tuple[type, ...]] = (FiniteMDP,)
    """The kinds of environments that it can play. FiniteMDP includes a Gymnasium environment that
    can only be stepped and has finitely many states; GymWorld is any that can only be stepped."""
    tabular: ClassVar[bool] = False
    """Whether it uses one-hot features, whatever features are given."""
    sums_of: ClassVar[Literal["nobody", "server", "agents"]] = "nobody"
    """Who keeps dense sums over (h, feature, next state)."""
    counts_where_large: ClassVar[bool] = False
    """Whether it counts transitions instead where `keeps_sums` says that sums are too many."""
    published: ClassVar[bool] = False
    """Whether stationary="auto" is False where the world is known: it was published like that."""
    masks: ClassVar[Literal["none", "known", "reported"]] = "none"
    """What it knows of allowed actions: nothing; masks that all agents share and that are known
    beforehand; or also those that a black box reports, and different ones for each agent."""
    needs_table: ClassVar[bool] = False
    """Whether it reads rewards or transitions off a table, which a black box does not have."""

    def __init__(self, n_agents: int = 1, **settings: Any) -> None:
        self.settings = self.settings_type(**self.flat(n_agents=n_agents, **settings))

    def prepare(
        self,
        env: Any,
        episodes: int,
        seed: int = 0,
        *,
        features: Any = None,
        execution: Execution | None = None,
        **placing: Unpack[Placing],
    ) -> Session:
        """Check everything that `learn` is given, and make ready to play."""
        where = Execution.of(execution, placing)
        if where.transport != "inprocess":
            raise InvalidSetting(
                f"transport is {where.transport!r}, but '{self.name}' runs only in this process: "
                'leave transport out, or choose the algorithm "fed-lsvi"',
                code="transport-not-supported",
            )
        envs = per_agent(env, self.settings.n_agents)
        for world in {id(world): world for world in envs}.values():
            check_world(self.name, world, self.worlds, self.needs_table)
        given = OneHot() if self.tabular else features
        settings = self.settings
        if self.published and not isinstance(envs[0], GymWorld) and settings.stationary == "auto":
            settings = replace(settings, stationary=False)
        plan = make_plan(settings, env, episodes, seed, given, where.threads, where.block)
        if plan.parameters.stationary and not self.can_pool(plan.envs[0]):
            raise InvalidSetting(
                f"'{self.name}' cannot learn one model for all steps of {plan.envs[0].name}: leave "
                'stationary out, or use the algorithm "fed-lsvi" or "periodic"',
                code="bad-stationary",
            )
        check_masks(self.name, plan, self.masks)
        p, env = plan.parameters, plan.envs[0]
        parties = {"nobody": 0, "server": 1, "agents": p.n_agents}
        if not self.counts_where_large or keeps_sums(plan):
            size = p.horizon * p.dim * (env.n_states if env.finite else 0)
            check_room(self.name, size, parties[self.sums_of])
        player = self.play(plan, where.cohorts, where.keep_models)
        return Session(player, where.keep_models)

    def play(self, plan: Plan, cohorts: int | None, keep_models: bool) -> Player:
        """Who plays the plan."""
        player: Player = self.play_type(plan, self.settings, keep_models)
        return player


def check_world(name: str, env: Any, worlds: tuple[type, ...], needs_table: bool = False) -> None:
    """Refuse an environment that the algorithm cannot play."""
    stepped = isinstance(env, GymWorld)
    if stepped and needs_table:
        raise InvalidEnvironment(
            f"{name} needs a table of rewards, but {env.name} is a black box that can only be "
            f"stepped: choose {ANYWHERE}",
            code="needs-known-transitions",
        )
    if isinstance(env, worlds) or (stepped and env.finite and FiniteMDP in worlds):
        return
    raise InvalidEnvironment(
        f"{name} needs a finite state space, but {env.name} has a continuous one: choose "
        f"{ANYWHERE}",
        code="needs-finite-states",
    )


def check_masks(name: str, plan: Plan, masks: str) -> None:
    """Refuse masks that the algorithm does not know."""
    if not plan.masked or masks == "reported":
        return
    reported = any(isinstance(env, GymWorld) for env in plan.envs)
    if masks == "known" and not reported and plan.same_masks(0, len(plan.envs)):
        return
    what = "which actions are allowed"
    if masks == "known":
        what = (
            "the masks that a black box reports" if reported else "masks that differ between agents"
        )
    raise InvalidEnvironment(
        f"{name} ignores {what} and would take forbidden actions: choose "
        '"fed-lsvi", "independent", "periodic", "stale" or "low-switching", or allow every action',
        code="masks-not-supported",
    )
