"""What all comparators share: the face of `FedLSVI`, and a session that yields the same records.

An algorithm is a row of class attributes (name, settings, session); what is its own stands in its
session's `advance`, which plays on until the next record is due. Parties (agents, servers) hold
their own state and meet only in `channel`; measuring is the ruler's business, not theirs.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from fedlsvi.algorithms.shared.channel import Channel
from fedlsvi.algorithms.shared.contract import Stretch, check_model, check_stretch, states
from fedlsvi.algorithms.shared.lsvi_sums import check_room
from fedlsvi.algorithms.shared.regret_meter import Ruler
from fedlsvi.core.statistics import full
from fedlsvi.envs.base import Environment
from fedlsvi.envs.continuous import VALUES, ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.errors import InvalidEnvironment, InvalidSetting, refuse_unknown
from fedlsvi.features.tabular import OneHot
from fedlsvi.learner import Algorithm
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.protocol.plan import Plan, make_plan, per_agent
from fedlsvi.protocol.records import LISTED, RoundRecord
from fedlsvi.protocol.server import Server
from fedlsvi.protocol.session import Session
from fedlsvi.protocol.transport import InProcess

__all__ = ["Comparator", "Play", "Stretch"]

RECORDS = 1024
"""Records of a run in which every episode is a round of its own; more would only cost memory."""

PAUSE = 1000
"""A long round is interrupted by a record after this many episodes, so that observers see it."""


class Play(Session, ABC):
    """A session of parties that are not Fed-LSVI's.

    `server` holds the model that the run reports (w, Λ, t, k), `transport` its ledger, `values` the
    policy that the run reports: the common one, or agent 0's where every agent has its own.
    """

    def __init__(self, plan: Plan, settings: Any, keep_models: bool = False) -> None:
        p = plan.parameters
        self.plan, self.settings, self.keep_models = plan, settings, keep_models
        self.cohorts = []
        self.transport = InProcess([], p.gamma)
        self.transport.ledger = Ledger(p.n_agents)
        self.server = Server(plan.layout, p.lam, p.gamma, p.beta, p.episodes)
        self.channel, self.ruler = Channel(self.transport), Ruler(plan)
        self.values = plan.values()
        self.regret: np.ndarray | None = np.zeros(p.episodes)
        self.records: list[RoundRecord] = []
        self.models: list[tuple[np.ndarray, np.ndarray]] = []
        self.policies: list[np.ndarray] = []
        self.counts: dict[str, int] = {}
        self.planning = 0.0
        self.stretch = 1 if keep_models else max(1, p.episodes // RECORDS)
        self.pause = max(PAUSE, p.episodes // 100)

    @property
    def t(self) -> int:
        """Episodes that every agent has played."""
        return self.server.t

    @abstractmethod
    def advance(self) -> Stretch:
        """Play until the next record is due. Time spent planning goes into `planning`."""

    @abstractmethod
    def parties(self) -> dict[str, Any]:
        """Everyone who holds state, by name; no two of them share any."""

    def followed(self) -> np.ndarray:
        """The policy table that agent 0 follows now, where states are finite."""
        table: np.ndarray = self.values.policy  # type: ignore[attr-defined]
        return table

    def report(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(w, Λ) that the run reports after a stretch; None leaves it as it is."""
        return None

    def rounds(self) -> Iterator[RoundRecord]:
        """Play to the end of the episode budget."""
        while self.server.t < self.server.T:
            if self.keep_models and isinstance(self.plan.envs[0], FiniteMDP):
                self.policies.append(self.followed().copy())
            began, first = perf_counter(), self.server.t + 1
            self.planning, measured = 0.0, self.ruler.seconds
            done = self.advance()
            check_stretch(self.algorithm, done, self.t, self.plan.parameters)
            self.ruler.refuse_gaps(self.algorithm, first, done.last)
            self.server.t, self.server.k = int(done.last), self.server.k + int(done.rounds)
            regret = self._sum(first, done.last)
            measured = self.ruler.seconds - measured
            explored = perf_counter() - began - measured - self.planning
            seconds = {"explore": explored, "synchronise": self.planning, "evaluate": measured}
            model = self.report()
            if model is not None:
                check_model(self.algorithm, model, self.server.w, self.server.gram)
                self.server.w[:], self.server.gram[:] = model
            if self.keep_models:
                self.models.append((self.server.w.copy(), full(self.server.gram.copy())))
            record = self._entry(first, done, regret, seconds)
            self.records.append(record)
            yield record

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values from which `restore` continues, taken between records."""
        arrays = {"w": self.server.w, "gram": self.server.gram} | self.ruler.state(self.t)
        for name, state in states(self.algorithm, self.parties()):
            arrays |= {f"{name}.{key}": array for key, array in state.items()}
        plain = {"t": self.server.t, "k": self.server.k, "last": 0, "counts": self.counts}
        return arrays, plain | {"ledger": self.transport.ledger.to_dict()}

    def restore(
        self,
        arrays: dict[str, np.ndarray],
        plain: dict[str, Any],
        regret: np.ndarray | None,
        records: list[RoundRecord],
    ) -> None:
        """Continue after the record at which `state` was taken."""
        self.server.w[:], self.server.gram[:] = arrays["w"], arrays["gram"]
        self.server.t, self.server.k = plain["t"], plain["k"]
        self.ruler.restore(self.t, arrays)
        for name, party in self.parties().items():
            prefix = f"{name}."
            party.restore(
                {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
            )
        self.records, self.counts = list(records), dict(plain["counts"])
        if regret is not None and self.regret is not None:
            self.regret[: len(regret)] = regret
        self.transport.ledger = Ledger.from_dict(plain["ledger"])
        self.resumed()

    def resumed(self) -> None:
        """What follows from the parties' state and is not part of it is computed anew."""

    def _sum(self, first: int, last: int) -> float | None:
        """Extend the curve of cumulative regret."""
        if self.regret is None:
            return None
        before = self.regret[first - 2] if first > 1 else 0.0
        self.regret[first - 1 : last] = before + np.cumsum(self.ruler.gaps[first - 1 : last])
        return float(self.regret[last - 1])

    def _entry(
        self, first: int, done: Stretch, regret: float | None, seconds: dict[str, float]
    ) -> RoundRecord:
        gram = self.server.gram
        logdet = np.log(gram).sum(axis=1) if gram.ndim == 2 else np.linalg.slogdet(gram)[1]
        return RoundRecord(
            k=self.server.k,
            first=first,
            last=self.server.t,
            signals=int(done.signals),
            triggers=[(int(m), int(h)) for m, h in done.triggers[:LISTED]],
            logdet=logdet.tolist(),
            scalars=self.transport.ledger.scalars,
            regret=regret,
            overshoot=0,
            seconds=seconds,
            rounds=int(done.rounds),
        )


class Comparator(Algorithm):
    """The face of a comparator. Subclasses name their settings and their session."""

    settings_type: ClassVar[type]
    session_type: ClassVar[type]
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
        return self.session(plan, cohorts, keep_models)

    def sums(self, n_agents: int) -> int:
        """How many parties keep dense sums over (h, feature, next state)."""
        return 0

    def session(self, plan: Plan, cohorts: int | None, keep_models: bool) -> Session:
        """What plays the plan."""
        session: Session = self.session_type(plan, self.settings, keep_models)
        return session


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
