"""What all comparators share: the face of `FedLSVI`, and a player that a session can drive.

An algorithm is a row of class attributes (name, settings, player); what is its own stands in the
player's `advance`, which plays on until the next record is due. Parties (agents, servers) hold
their own state and meet only in `channel`; measuring is the ruler's business, not theirs.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from fedlsvi.algorithms.shared.channel import Channel
from fedlsvi.algorithms.shared.contract import Stretch, check_model, check_stretch, states
from fedlsvi.algorithms.shared.lsvi_sums import check_room
from fedlsvi.algorithms.shared.regret_meter import Ruler
from fedlsvi.core.statistics import identity
from fedlsvi.envs.base import Environment
from fedlsvi.envs.continuous import VALUES, ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.errors import InvalidEnvironment, InvalidSetting, refuse_unknown
from fedlsvi.features.tabular import OneHot
from fedlsvi.learner import Algorithm
from fedlsvi.protocol.agent import Cohort
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.protocol.plan import Plan, make_plan, per_agent
from fedlsvi.protocol.records import LISTED
from fedlsvi.protocol.session import Played, Player, Session, part_of

__all__ = ["Comparator", "Play", "Stretch"]

RECORDS = 1024
"""Records of a run in which every episode is a round of its own; more would only cost memory."""

PAUSE = 1000
"""A long round is interrupted by a record after this many episodes, so that observers see it."""


class Play(ABC):
    """The player of an algorithm that is not Fed-LSVI (`fedlsvi.protocol.session.Player`).

    `w`, `gram`, `t`, `k` and `ledger` are what the run reports; `values` is the policy that it
    reports: the common one, or agent 0's where every agent has its own.
    """

    algorithm: str
    cohorts: Sequence[Cohort] = ()
    measured = True

    def __init__(self, plan: Plan, settings: Any, keep_models: bool = False) -> None:
        p = plan.parameters
        self.plan, self.parameters, self.settings = plan, p, settings
        self.ledger = Ledger(p.n_agents)
        self.channel, self.ruler = Channel(self.ledger), Ruler(plan)
        self.values: Any = plan.values()
        self.w = np.zeros((p.horizon, p.dim))
        self.gram = np.stack([identity(p.dim, p.lam, p.packing)] * p.horizon)
        self.t = self.k = 0
        self.counts: dict[str, int] = {}
        self.planning = 0.0
        self.stretch = 1 if keep_models else max(1, p.episodes // RECORDS)
        self.pause = max(PAUSE, p.episodes // 100)

    @property
    def episodes(self) -> int:
        """T, the episode budget."""
        return self.parameters.episodes

    @abstractmethod
    def advance(self) -> Stretch:
        """Play until the next record is due. Time spent planning goes into `planning`."""

    @abstractmethod
    def parties(self) -> dict[str, Any]:
        """Everyone who holds state, by name; no two of them share any."""

    def followed(self) -> np.ndarray | None:
        """The policy table that agent 0 follows now; None where states are not finite."""
        table: np.ndarray | None = getattr(self.values, "policy", None)
        return table

    def report(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(w, Λ) that the run reports after a stretch; None leaves it as it is."""
        return None

    def resumed(self) -> None:
        """Compute again, after a restart, what follows from the parties' state."""

    def start(self) -> None:
        """Nobody has to be told that the run begins."""

    def play_round(self) -> Played:
        """Advance, check what was played, and take over the model."""
        began, first = perf_counter(), self.t + 1
        self.planning, measured = 0.0, self.ruler.seconds
        done = self.advance()
        check_stretch(self.algorithm, done, self.t, self.parameters)
        self.ruler.refuse_gaps(self.algorithm, first, done.last)
        self.t, self.k = int(done.last), self.k + int(done.rounds)
        measured = self.ruler.seconds - measured
        explored = perf_counter() - began - measured - self.planning
        model = self.report()
        if model is not None:
            check_model(self.algorithm, model, self.w, self.gram)
            self.w[:], self.gram[:] = model
        diagonal = self.gram.ndim == 2
        return Played(
            first=first,
            last=self.t,
            signals=int(done.signals),
            triggers=[(int(m), int(h)) for m, h in done.triggers[:LISTED]],
            logdet=np.log(self.gram).sum(axis=1) if diagonal else np.linalg.slogdet(self.gram)[1],
            gaps=self.ruler.gaps[first - 1 : self.t],
            seconds={"explore": explored, "synchronise": self.planning, "evaluate": measured},
            rounds=int(done.rounds),
        )

    def rest(self) -> None:
        """Nothing to do between rounds."""

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values from which `restore` continues, taken between records."""
        arrays = {"w": self.w, "gram": self.gram} | self.ruler.state(self.t)
        for name, state in states(self.algorithm, self.parties()):
            arrays |= {f"{name}.{key}": array for key, array in state.items()}
        plain = {"t": self.t, "k": self.k, "last": 0, "counts": self.counts}
        return arrays, plain | {"ledger": self.ledger.to_dict()}

    def history(self, first: int, last: int) -> dict[str, np.ndarray]:
        """Everything is in `state`."""
        return {}

    def extend(self, first: int, arrays: dict[str, np.ndarray]) -> None:
        """Nothing to put back."""

    def restore(self, arrays: dict[str, np.ndarray], plain: Mapping[str, Any]) -> None:
        """Continue after the record at which `state` was taken."""
        self.w[:], self.gram[:] = arrays["w"], arrays["gram"]
        self.t, self.k = plain["t"], plain["k"]
        self.ruler.restore(self.t, arrays)
        for name, party in self.parties().items():
            party.restore(part_of(name, arrays))
        self.counts = dict(plain["counts"])
        self.ledger.restore(plain["ledger"])
        self.resumed()

    def close(self) -> None:
        """Nothing to release."""


class Comparator(Algorithm):
    """The face of a comparator. Subclasses name their settings and their player."""

    settings_type: ClassVar[type]
    play_type: ClassVar[type]
    worlds: ClassVar[tuple[type, ...]] = (FiniteMDP,)
    """Kinds of environments that it can play."""
    tabular: ClassVar[bool] = False
    """Whether it counts, whatever features there are."""

    def __init_subclass__(cls) -> None:
        if "settings_type" in vars(cls):
            cls.__signature__ = inspect.signature(cls.settings_type)  # type: ignore[attr-defined]

    def __init__(self, n_agents: int = 1, **settings: Any) -> None:
        known = inspect.signature(self.settings_type).parameters
        refuse_unknown(f"setting of algorithm '{self.name}'", settings, known)
        self.settings = self.settings_type(n_agents=n_agents, **settings)

    def prepare(
        self,
        env: Any,
        episodes: int,
        seed: int = 0,
        *,
        features: Any = None,
        transport: Any = "inprocess",
        cohorts: int | None = None,
        threads: int | None = None,
        block: int | None = None,
        keep_models: bool = False,
    ) -> Session:
        """Check everything that `learn` is given, and make ready to play."""
        if transport != "inprocess":
            raise InvalidSetting(
                f"transport is {transport!r}, but '{self.name}' runs in this process only: "
                'leave it out, or choose the algorithm "fed-lsvi"'
            )
        envs = per_agent(env, self.settings.n_agents)
        for world in {id(world): world for world in envs}.values():
            refuse_strange(self.name, world, self.worlds)
        given = OneHot() if self.tabular else features
        plan = make_plan(self.settings, env, episodes, seed, given, threads, block)
        n_states = getattr(plan.envs[0], "n_states", 0)
        numbers = plan.parameters.horizon * plan.parameters.dim * n_states
        check_room(self.name, numbers, self.sums(plan.parameters.n_agents))
        return Session(self.play(plan, cohorts, keep_models), keep_models)

    def sums(self, n_agents: int) -> int:
        """How many parties keep dense sums over (h, feature, next state)."""
        return 0

    def play(self, plan: Plan, cohorts: int | None, keep_models: bool) -> Player:
        """Who plays the plan."""
        player: Player = self.play_type(plan, self.settings, keep_models)
        return player


def refuse_strange(name: str, env: Any, worlds: tuple[type, ...]) -> None:
    """An environment of another kind than the algorithm can play."""
    measuring = '"centralised", "independent", "low-switching", "rare-switch", '
    anywhere = '"fed-lsvi", "periodic" or "stale"'
    measured = not isinstance(env, ContinuousMDP) or env.knows_values
    if isinstance(env, worlds) and (measured or Environment in worlds):
        return
    if isinstance(env, ContinuousMDP) and issubclass(ContinuousMDP, worlds):
        raise InvalidEnvironment(
            f"{name} needs an environment that knows V* and V^π, {env.name} does not: write its "
            f"{' and '.join(VALUES)}, or choose {anywhere}"
        )
    if isinstance(env, ContinuousMDP):
        raise InvalidEnvironment(
            f"{name} needs a finite state space, {env.name} has a continuous one: choose "
            f"{measuring if measured else ''}{anywhere}"
        )
    raise InvalidEnvironment(
        f"{name} needs an environment whose law is known to the simulation, {env.name} is a "
        f"{type(env).__name__}: choose {anywhere}"
    )
