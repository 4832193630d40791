"""Fed-LSVI as a user meets it: settings in, a finished run out."""

from __future__ import annotations

import logging
import secrets
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypedDict, Unpack

from fedlsvi.checks import refuse_unknown
from fedlsvi.config import Settings, cohort_count
from fedlsvi.core import theory
from fedlsvi.core.blas import one_blas_thread
from fedlsvi.core.statistics import Packing
from fedlsvi.data import Data
from fedlsvi.envs.base import Environment
from fedlsvi.errors import InvalidInput, UnknownName
from fedlsvi.groups import (
    Aggregation,
    Bonus,
    BonusSettings,
    Exchange,
    ExchangeSettings,
    Overshoot,
    PresenceSettings,
    Preset,
    Rounds,
    TriggerSettings,
    flat,
)
from fedlsvi.protocol.cohorts import check_source
from fedlsvi.protocol.plan import Plan, make_plan
from fedlsvi.protocol.records import STOP, Interrupt, Observer, RoundRecord, check_observers
from fedlsvi.protocol.session import FederatedPlayer, Session
from fedlsvi.protocol.snapshot import memory_of
from fedlsvi.protocol.transport import Transport
from fedlsvi.registry import resolve
from fedlsvi.run import Run

if TYPE_CHECKING:
    from fedlsvi.forecast import Forecast
    from fedlsvi.logs.agent_data import Logs
    from fedlsvi.logs.sources import Columns
    from fedlsvi.observers.progress import Progress
    from fedlsvi.protocol.warm_start import Prior

ENGINES = {"ray": "fedlsvi.remote.ray.transport:on_ray"}
"""Name → the function that makes a transport for a plan."""

Place = str | Transport | Callable[[Plan], Transport]
"""Where agents are: "inprocess", an engine's name, a transport, or what makes one for a plan."""

_UNATTENDED: ContextVar[bool] = ContextVar("unattended", default=False)


class Placing(TypedDict, total=False):
    """The fields of an `Execution` as keywords."""

    transport: Place
    cohorts: int | None
    threads: int | None
    block: int | None
    keep_models: bool


@dataclass(frozen=True, eq=False)
class Execution:
    """Where the agents of a run are, and how its work is cut; `learn` takes one as `execution=`, or
    the fields as keywords. The result never depends on it.

    Attributes:
        transport: "inprocess", "ray", a transport, or a function that makes one for a plan.
        cohorts: Shares into which the agents are cut.
        threads: Threads that explore.
        block: Episodes that are explored at once.
        keep_models: Keep the model and the policy of every round, for study; in memory only.
    """

    transport: Place = "inprocess"
    cohorts: int | None = None
    threads: int | None = None
    block: int | None = None
    keep_models: bool = False

    @classmethod
    def of(cls, execution: Execution | None, placing: Placing) -> Execution:
        """The object that was given, or one of these keywords."""
        keywords = cls(**placing)
        if execution is None:
            return keywords
        if placing:
            raise InvalidInput(
                f"execution= has {', '.join(placing)} itself: give that in it",
                code="execution-twice",
            )
        return execution

    def beside(self, folder: str | PathLike[str] | None) -> Execution:
        """The same, where the engine knows the run folder."""
        if not isinstance(self.transport, str) or self.transport == "inprocess" or folder is None:
            return self
        place = partial(engine(self.transport), cohorts=self.cohorts, folder=folder)
        return replace(self, transport=place)

    def player(self, plan: Plan, algorithm: str) -> FederatedPlayer:
        """Server and agents of a plan, placed."""
        p, transport = plan.parameters, self.transport
        # with secure sums, one site for each agent, or so many
        each = p.n_agents if p.aggregation == "secure" and self.cohorts is None else self.cohorts
        count = cohort_count(each, p.n_agents)
        if transport == "inprocess":
            return FederatedPlayer.of(plan, count, None, algorithm)
        if isinstance(transport, str):
            transport = engine(transport)(plan, self.cohorts)
        elif not isinstance(transport, Transport):
            transport = transport(plan)
        return FederatedPlayer.of(plan, count, transport, algorithm)


class Algorithm(ABC):
    """What every algorithm has: settings, `learn` and `prepare`."""

    name: ClassVar[str]
    """Its name in the registry."""

    settings_type: ClassVar[type]
    """The dataclass of its settings."""

    settings: Any
    """What was asked for."""

    takes_records: ClassVar[bool] = False
    """Whether it can begin with what agents recorded before, or with an earlier run."""

    pools_in: ClassVar[tuple[type, ...]] = (Environment,)
    """The kinds of environments in which its `stationary=True`, where it has that, is possible."""

    def can_pool(self, env: Environment) -> bool:
        """Whether it can learn one model for all steps in an environment of this kind."""
        return "stationary" in vars(self.settings) and isinstance(env, self.pools_in)

    @classmethod
    def flat(cls, **given: Any) -> dict[str, Any]:
        """Its settings by name, of keywords and groups."""
        settings = flat(given)
        known = [field.name for field in fields(cls.settings_type)]
        refuse_unknown(f"setting of algorithm '{cls.name}'", settings, known)
        return settings

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name, as scikit-learn asks for them."""
        own = vars(self.settings)
        return {field.name: own[field.name] for field in fields(self.settings)}

    def set_params(self, **settings: Any) -> Self:
        """Change settings, as scikit-learn does; returns itself."""
        self.settings = replace(self.settings, **self.flat(**settings))
        return self

    def __repr__(self) -> str:
        default = asdict(type(self.settings)(n_agents=1))
        shown = {k: v for k, v in asdict(self.settings).items() if v != default[k]}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in shown.items())})"

    def learn(
        self,
        env: Any,
        episodes: int,
        seed: int | None = 0,
        *,
        features: Any = None,
        horizon: int | None = None,
        reward_range: tuple[float, float] | Literal["clip"] | None = None,
        repeat: int = 1,
        clip_rewards: bool = False,
        actions: int | Sequence[int] | None = None,
        allowed: Any = None,
        at_least: int = 1,
        env_kwargs: dict[str, Any] | None = None,
        progress: bool | Forecast | None = None,
        observers: Iterable[Observer] = (),
        execution: Execution | None = None,
        folder: str | PathLike[str] | None = None,
        checkpoint_seconds: float = 5.0,
        data: Any = None,
        columns: Columns | None = None,
        warm_start: Any = None,
        warm_weight: float = 1.0,
        **placing: Unpack[Placing],
    ) -> Run:
        """Play `episodes` episodes per agent and return what was learned and what it cost.

        Args:
            env: An environment, its registered name, a Gymnasium id or `EnvSpec`, a function that
                makes an environment, or a list with one of these for each agent.
            episodes: T, episodes per agent.
            seed: The same seed gives the same run, to the last bit on one kind of CPU; None draws a
                fresh one, which `run.seed` keeps.
            features: A feature map, an (S, A, d) array, a callable on a batch of states, or None
                for the environment's own.
            horizon: H of a Gymnasium environment; None is that of its spec.
            reward_range: (low, high) of a Gymnasium environment's rewards; "clip" takes the range
                that random play shows, and clips what lies outside.
            repeat: Steps of a Gymnasium environment for which an action is held; H counts actions.
            clip_rewards: Clip its rewards outside `reward_range` and count them.
            actions: Of a Gymnasium environment whose actions are a Box: how many points of each
                dimension may be chosen, a number or one for each dimension.
            allowed: Actions that may be taken: booleans (S, A) or (H, S, A), or a function from
                (h, states) to booleans (n, A), in addition to the environment's own; "env" takes a
                Gymnasium environment's, such as `info["action_mask"]`, which else are not heeded;
                "seen", with `data=`, those that an agent's own log has seen at least `at_least`
                times in the state.
            at_least: See `allowed`.
            env_kwargs: Arguments of `gymnasium.make`.
            progress: A progress bar; None shows one in a terminal. What `plan` gave shows one that
                knows how long the rest will take.
            observers: Called with the record of each round; the run ends after it where one returns
                `fedlsvi.STOP`.
            execution: Where agents are and how the work is cut, an `Execution`, none of which
                changes the result.
            folder: A run folder to write as the run goes; `fedlsvi.resume` continues a killed run.
                Without one, Ctrl-C ends the run after its round, and what was learned is returned.
            checkpoint_seconds: Time between two checkpoints of the folder; 0 is after every round.
            data: What agents have recorded before, for Fed-LSVI: learned from in a round of its
                own, before the first episode. A log with an agent column, or a list with a log, or
                None, for each agent (`PEVI.learn` says what a log may be). An agent whose
                environment is None has a log alone and plays nothing. A `fedlsvi.data.Data` has all
                that concerns environments and records in one object.
            columns: What the columns are called in the logs, by our names.
            warm_start: An earlier run, or its folder, whose model is where this one begins, for
                Fed-LSVI.
            warm_weight: ρ > 0: what an episode of that run counts, beside one of this.
            **placing: The fields of an `Execution`: `transport`, `cohorts`, `threads`, `block`,
                `keep_models`.
        """
        watching = check_observers(observers)
        seed = secrets.randbits(31) if seed is None else seed
        execution = Execution.of(execution, placing).beside(folder)
        given = Data.of(
            data, columns=columns, horizon=horizon, reward_range=reward_range, repeat=repeat,
            clip_rewards=clip_rewards, actions=actions, allowed=allowed, at_least=at_least,
            env_kwargs=env_kwargs, warm_start=warm_start, warm_weight=warm_weight,
        )  # fmt: skip
        env, before = given.open(env, self.settings.n_agents)
        if before and not self.takes_records:
            raise InvalidInput(
                f"'{self.name}' cannot use data= or warm_start=: use Fed-LSVI, or pevi to learn "
                "from logs alone",
                code="no-warm-start",
            )
        session = self.prepare(
            env, episodes, seed, features=features, execution=execution, **before
        )
        watching += _traffic(session, progress)
        if folder is not None:
            from fedlsvi.storage import record

            return record(
                session, self.name, self.settings, folder, watching, checkpoint_seconds,
                progress,
            )  # fmt: skip
        if progress is not False:
            from fedlsvi.observers.progress import bar

            watching += bar(session.plan.parameters, progress)
        return played(session, self, watching)

    @abstractmethod
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


class MoreSettings(TypedDict, total=False):
    """Fields of groups that `FedLSVI` takes by name; typed here because a type checker reads no
    dataclass for that. A test compares them."""

    cap: float | Literal["agents", "off"] | None
    min_round: int
    scalars: int | None
    overshoot: Overshoot
    taper: bool | Literal["auto"]
    lam: float | None
    xi: float
    confidence: float
    c_beta: float
    diversity: float | Literal["auto"]
    policy: Literal["auto", "exploit", "explore"]
    pessimism: float
    own_features: int
    packing: Packing | Literal["auto"]
    aggregation: Aggregation
    participation: float
    present: Sequence[Sequence[int]] | None


class FedLSVI(Algorithm):
    """Federated least-squares value iteration with optimism (Liang, Zhang, Xue).

    These are the settings that most runs need. The others are in groups, each an object, whose
    fields may be given by name as well: `FedLSVI(8, min_round=10)` is
    `FedLSVI(8, trigger=TriggerSettings(min_round=10))`. `fedlsvi list settings` explains them.

    Args:
        n_agents: M, the number of agents that learn together.
        preset: "practical" learns, "paper" is the theorems' λ = 1, β and clip.
        value_range: The largest return of an episode, where it is known to be below H; in rewards
            that are mapped to [0, 1], not in the environment's own units.
        gamma, rounds, beta, stationary, exchange, bonus, privacy: The fields of the groups that are
            used most; `exchange` and `bonus` take `groups.ExchangeSettings` and
            `groups.BonusSettings`, too.
        trigger: When a round ends, `groups.TriggerSettings`.
        presence: Who takes part in which rounds of a simulation, `groups.PresenceSettings`.
        **more: Fields of these groups.
    """

    name = "fed-lsvi"
    settings_type = Settings
    takes_records = True

    def __init__(
        self,
        n_agents: int = 1,
        *,
        preset: Preset = "practical",
        value_range: float | None = None,
        gamma: float | Literal["auto", "anytime"] = "auto",
        rounds: Rounds = None,
        beta: float | Literal["theory"] | None = None,
        stationary: bool | Literal["auto"] = "auto",
        exchange: Exchange | ExchangeSettings = "stepwise",
        privacy: Mapping[str, Any] | None = None,
        trigger: TriggerSettings | None = None,
        bonus: Bonus | Literal["auto"] | BonusSettings = "auto",
        presence: PresenceSettings | None = None,
        **more: Unpack[MoreSettings],
    ) -> None:
        self.settings = Settings(
            **self.flat(
                n_agents=n_agents, preset=preset, value_range=value_range, gamma=gamma,
                rounds=rounds, beta=beta, stationary=stationary, exchange=exchange,
                privacy=privacy, trigger=trigger, bonus=bonus, presence=presence, **more,
            )
        )  # fmt: skip

    def plan(
        self,
        env: Any,
        episodes: int,
        seed: int = 0,
        *,
        features: Any = None,
        cohorts: int | None = None,
        threads: int | None = None,
        block: int | None = None,
        **data: Any,
    ) -> Forecast:
        """What `learn` would take in this process: rounds, scalars, memory and time, from a few
        seconds of playing.

        Args:
            env, episodes, seed, features, cohorts, threads, block: As in `learn`.
            **data: What else `learn` takes about environments and records: `data`, `horizon`, ….
        """
        from fedlsvi.forecast import forecast

        env, before = Data.of(data.pop("data", None), **data).open(env, self.settings.n_agents)
        session = self.prepare(
            env, episodes, seed, features=features, cohorts=cohorts, threads=threads, block=block,
            **before,
        )  # fmt: skip
        session.close()
        count = len(session.player.cohorts)

        def begin(plan: Plan) -> Session:
            return Session(FederatedPlayer.of(plan, count))

        with unattended():
            return forecast(session.plan, begin)

    def prepare(
        self,
        env: Any,
        episodes: int,
        seed: int = 0,
        *,
        features: Any = None,
        execution: Execution | None = None,
        logs: Logs = (),
        prior: Prior | None = None,
        **placing: Unpack[Placing],
    ) -> Session:
        """Check everything that `learn` is given, and make ready to play.

        Args:
            env, episodes, seed, features, execution, placing: As in `learn`.
            logs: Each agent's log; if a log is also the agent's environment, the agent has only the
                log.
            prior: What was learned before.
        """
        where = Execution.of(execution, placing)
        cut = (where.threads, where.block)
        plan = make_plan(self.settings, env, episodes, seed, features, *cut, logs, prior)
        check_source(plan)
        if prior is not None:
            from fedlsvi.warm_start import check_prior

            check_prior(prior, plan)
        return Session(where.player(plan, self.name), where.keep_models)


def engine(name: str) -> Callable[..., Transport]:
    """The function that places the agents of a plan on an engine, imported when it is needed."""
    if name not in ENGINES:
        raise UnknownName("transport", name, ["inprocess", *ENGINES])
    found: Callable[..., Transport] = resolve(ENGINES[name])
    return found


@contextmanager
def unattended() -> Iterator[None]:
    """Runs that the program plays for itself: Ctrl-C ends all of them, traffic is nobody's news."""
    token = _UNATTENDED.set(True)
    try:
        yield
    finally:
        _UNATTENDED.reset(token)


def _traffic(session: Session, progress: Progress) -> list[Observer]:
    """Say what Fed-LSVI will send, warn where that is much, and watch for it; one agent that learns
    alone sends nothing to anybody, and of one episode there is nothing to say."""
    p = session.player.parameters
    silent = _UNATTENDED.get() or 1 in (p.n_agents, p.episodes)
    if silent or session.player.algorithm != FedLSVI.name:
        return []
    from fedlsvi.observers.progress import is_shown
    from fedlsvi.observers.traffic import Traffic, TrafficWatch, log

    watch = TrafficWatch(Traffic.of(p, session.plan.raw_scalars_per_step))
    said = watch.traffic if progress is None or isinstance(progress, bool) else progress
    sentence = said.sentence()
    if log.isEnabledFor(logging.INFO):
        log.info(sentence)
    elif is_shown(progress):
        print(sentence, file=sys.stderr)
    watch.before()
    return [watch]


def played(session: Session, learner: Algorithm, observers: Iterable[Observer]) -> Run:
    """Play a session that has no folder; Ctrl-C ends it cleanly."""

    def asked(record: RoundRecord) -> Any:
        if not interrupt.asked or session.ending == "finished":
            return None
        session.ending = "interrupted"
        print(
            f"fedlsvi: interrupted after episode {record.last:,} of "
            f"{session.player.parameters.episodes:,}; returning the run so far",
            file=sys.stderr,
        )
        return STOP

    with Interrupt(polite=True, active=not _UNATTENDED.get()) as interrupt:
        drive(session, [*observers, asked])
    run = Run.of(session, learner.settings)
    if _UNATTENDED.get():  # nobody goes on with it
        return run
    return replace(run, learner=learner, memory=memory_of(session))


def drive(
    session: Session, observers: Iterable[Observer], on_stop: Callable[[], None] | None = None
) -> None:
    """Run a session to its end, or until an observer returns `STOP`; then `on_stop` is called."""
    watching = list(observers)
    try:
        with one_blas_thread():
            for record in session.rounds():
                asked = [observe(record) is STOP for observe in watching]
                if any(asked) and session.ending != "finished":
                    if session.ending == "unfinished":
                        session.ending = "stopped"
                    if on_stop is not None:
                        on_stop()
                    break
    finally:
        for observe in watching:
            close = getattr(observe, "close", None)
            if close is not None:
                close()
        session.close()


def scalars(run: Run) -> dict[str, int]:
    """What Fed-LSVI sends: M(H(P + d) + 3) + K(2MH(P + d) + M) + 2Σs, and 2MHd + M for the pass at
    the end that makes a policy to deploy; M(H + 3KH) more where the bonus knows the noise, and
    5MH where agents say how well the model fits."""
    p, K = run.parameters, run.rounds
    size = (p.dim, p.horizon, p.packing, p.stationary)
    up = p.n_agents * theory.scalars_model(*size, 2 * p.noisy)
    model = p.n_agents * theory.scalars_model(*size, p.noisy)
    ends = run.policy_w is not None
    responses = p.n_agents * p.horizon * p.dim if ends else 0
    return {
        "init": model + 3 * p.n_agents,
        "signal": (K + ends) * p.n_agents + 2 * sum(r.signals for r in run.records),
        "up_stats": K * up + responses + (0 if run.fit is None else run.fit.size),
        "down_model": K * model + responses,
    }
