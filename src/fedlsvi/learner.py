"""Fed-LSVI as a user meets it: settings in, a finished run out."""

from __future__ import annotations

import logging
import secrets
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from threadpoolctl import threadpool_limits

from fedlsvi.config import (
    Aggregation,
    Exchange,
    Overshoot,
    Preset,
    Settings,
    cohort_count,
)
from fedlsvi.core.statistics import Packing
from fedlsvi.envs.base import Environment
from fedlsvi.errors import InvalidInput, InvalidSetting, UnknownName
from fedlsvi.protocol.plan import Plan, make_plan
from fedlsvi.protocol.records import STOP, Interrupt, Observer, RoundRecord, check_observers
from fedlsvi.protocol.session import FederatedPlayer, Session
from fedlsvi.protocol.snapshot import memory_of
from fedlsvi.protocol.transport import Transport
from fedlsvi.registry import resolve
from fedlsvi.run import Run, raw_scalars_per_step

if TYPE_CHECKING:
    from fedlsvi.envs.logged.agent_data import Logs
    from fedlsvi.envs.logged.sources import Columns
    from fedlsvi.protocol.warm_start import Prior

ENGINES = {"ray": "fedlsvi.remote.ray.transport:on_ray"}
"""Name → the function that makes a transport for a plan."""

AS_IT_IS = {"horizon": None, "reward_range": None, "kwargs": None, "repeat": 1,
            "clip_rewards": False, "allowed": None}  # fmt: skip
"""What `learn` is asked of an environment that is taken as it is."""

_UNATTENDED: ContextVar[bool] = ContextVar("unattended", default=False)


class Algorithm(ABC):
    """What every algorithm has: settings, `learn` and `prepare`."""

    name: ClassVar[str]
    """Its name in the registry."""

    settings: Any
    """A dataclass of what was asked for."""

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
        allowed: Any = None,
        at_least: int = 1,
        env_kwargs: dict[str, Any] | None = None,
        progress: bool | None = None,
        observers: Iterable[Observer] = (),
        transport: str | Transport | Callable[[Plan], Transport] = "inprocess",
        cohorts: int | None = None,
        threads: int | None = None,
        block: int | None = None,
        keep_models: bool = False,
        folder: str | PathLike[str] | None = None,
        checkpoint_seconds: float = 5.0,
        data: Any = None,
        columns: Columns | None = None,
        warm_start: Any = None,
        warm_weight: float = 1.0,
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
            allowed: Actions that may be taken: booleans (S, A) or (H, S, A), or a function from
                (h, states) to booleans (n, A), in addition to the environment's own; "env" takes a
                Gymnasium environment's, such as `info["action_mask"]`, which else are not heeded;
                "seen", with `data=`, those that an agent's own log has seen at least `at_least`
                times in the state.
            at_least: See `allowed`.
            env_kwargs: Arguments of `gymnasium.make`.
            progress: A progress bar; None shows one in a terminal.
            observers: Called with the record of each round; the run ends after it where one returns
                `fedlsvi.STOP`.
            transport: "inprocess", "ray", a transport, or a function that makes one for a plan; it
                changes where agents are and never the result.
            cohorts: Shares into which the agents are cut; changes the time and never the result.
            threads: Threads that explore; likewise.
            block: Episodes that are explored at once; likewise.
            keep_models: Keep the model and the policy of every round, for study; in memory only.
            folder: A run folder to write as the run goes; `fedlsvi.resume` continues a killed run.
                Without one, Ctrl-C ends the run after its round, and what was learned is returned.
            checkpoint_seconds: Time between two checkpoints of the folder; 0 is after every round.
            data: What agents have recorded before, for Fed-LSVI: learned from in a round of its
                own, before the first episode. A log with an agent column, or a list with a log, or
                None, for each agent (`fedlsvi.offline` says what a log may be). An agent whose
                environment is None has a log alone and plays nothing.
            columns: What the columns are called in the logs, by our names.
            warm_start: An earlier run, or its folder, whose model is where this one begins, for
                Fed-LSVI.
            warm_weight: ρ > 0: what an episode of that run counts, beside one of this.
        """
        watching = check_observers(observers)
        seed = secrets.randbits(31) if seed is None else seed
        logs: Logs = ()
        asked = {"horizon": horizon, "reward_range": reward_range, "kwargs": env_kwargs,
                 "repeat": repeat, "clip_rewards": clip_rewards, "allowed": allowed}  # fmt: skip
        as_it_is = all(asked[name] is usual for name, usual in AS_IT_IS.items())
        if not isinstance(env, Environment) or data is not None or not as_it_is:
            from fedlsvi.envs.logged.agent_data import worlds_and_logs

            env, logs = worlds_and_logs(
                env, data, self.settings.n_agents, columns, at_least=at_least, **asked
            )
        known = self._known_before(logs, warm_start, warm_weight)
        session = self.prepare(
            env, episodes, seed, features=features, transport=placed(transport, folder, cohorts),
            cohorts=cohorts, threads=threads, block=block, keep_models=keep_models, **known,
        )  # fmt: skip
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

    def _known_before(self, logs: Logs, warm_start: Any, weight: float) -> dict[str, Any]:
        """What `prepare` takes of logs and of an earlier run; nothing, where there is neither."""
        known: dict[str, Any] = {"logs": logs} if logs else {}
        if warm_start is not None:
            from fedlsvi.warm_start import prior_of

            known["prior"] = prior_of(warm_start, weight)
        if known and self.name != FedLSVI.name:
            raise InvalidInput(
                f"'{self.name}' cannot use data= or warm_start=: use Fed-LSVI, or pevi to learn "
                "from logs alone",
                code="no-warm-start",
            )
        return known

    @abstractmethod
    def prepare(
        self,
        env: Any,
        episodes: int,
        seed: int = 0,
        *,
        features: Any = None,
        transport: str | Transport | Callable[[Plan], Transport] = "inprocess",
        cohorts: int | None = None,
        threads: int | None = None,
        block: int | None = None,
        keep_models: bool = False,
    ) -> Session:
        """Check everything that `learn` is given, and make ready to play."""


class FedLSVI(Algorithm):
    """Federated least-squares value iteration with optimism (Liang, Zhang, Xue).

    Args:
        n_agents: M, the number of agents that learn together.
        gamma: Trigger threshold γ ≥ 1; "auto" is max(T/(Md), 1), "anytime" grows with the episode,
            max(8t/(Md), 1), and needs no T.
        beta: Bonus scale β; None takes the preset's, "theory" the theorems'.
        taper: True makes β shrink with the remaining value range, β_h = β·v_h/v_1 with
            v_h = min(H − h + 1, value_range); False has it the same at every step. "auto" is True
            where β is the practical preset's own.
        lam: Ridge λ > 0; None takes the preset's.
        xi: How far the agents' MDPs may be from one linear MDP; widens β as in Theorem 2.
        value_range: The largest return of an episode, where it is known to be below H; in rewards
            that are mapped to [0, 1], not in the environment's own units.
        preset: "practical" learns, "paper" is the theorems' λ = 1, β and clip.
        overshoot: "cut" drops episodes beyond the signal, "keep" keeps them (a world without undo).
        packing: How Gram matrices travel: "packed" d(d+1)/2, "dense" d², "diagonal" d; "auto" is
            diagonal for one-hot features and packed otherwise.
        confidence: p of the theorems.
        c_beta: The constant c of the theorems' β.
        cap: A determinant that grew by this factor ends a round however short it is; "agents" is
            1 + 1/M, "off" is the paper's trigger. None is "off" for preset="paper" and where
            gamma is a number, and "agents" otherwise.
        min_round: No round has fewer episodes, and so no upload sums up fewer.
        rounds: No run has more rounds: early ones are short and later ones long; "off" sets no
            limit. None is what the raw data would pay for, but at least 40, where gamma="auto" and
            the preset is practical, and "off" otherwise.
        scalars: No run sends more scalars in Fed-LSVI's messages; sets `rounds`.
        stationary: True learns from the data of all steps together, where laws and rewards are the
            same at every step: one Gram matrix, sent once. "auto" asks the environment, and is
            False in the paper's preset.
        policy: "exploit" ends the run with one more backward pass, without the bonus:
            `run.exploit()` is the policy to deploy. "explore" does without. "auto" exploits in the
            practical preset.
        pessimism: b ≥ 0: that pass subtracts b times the width, a lower confidence bound.
        diversity: σ: in every episode each agent's bonus varies by this share, by keyed draws, so
            that agents do not all do the same where the world leaves nothing to chance; 0 is one
            policy for all. "auto" is .2 in the practical preset where the environment may repeat
            itself: it is stepped, or its table has no chance in it.
        aggregation: How the server adds what agents send: "float" adds doubles, "exact" integers
            in fixed point, "secure" the same integers behind masks that cancel in the sum, so that
            it learns the sum of at least three sites and nothing else.
        exchange: "stepwise" asks agents once for each step, as the paper does; "one-trip" once for
            each synchronisation, for which they send tables of next states (finite states only).
        participation: The probability with which an agent takes part in a round; who is away
            neither plays nor sends, and its last response is carried.
        present: [agent, first, last] for each stay of an agent that joins late, leaves or comes
            back: it takes part in rounds that begin with episodes first to last. Agents without an
            entry are always there.
        privacy: {"epsilon": ε, "delta": δ} makes all that leaves the agents together (ε, δ)-
            differentially private: noise inside the sums, rounds of public lengths. "unit" is
            "episode", or "user" with "episodes_per_user"; "colluders" are sites whose noise does
            not count. Needs aggregation "secure" or "exact"; exchange="one-trip" takes less noise.
    """

    name = "fed-lsvi"

    def __init__(
        self,
        n_agents: int = 1,
        *,
        gamma: float | Literal["auto", "anytime"] = "auto",
        beta: float | Literal["theory"] | None = None,
        taper: bool | Literal["auto"] = "auto",
        lam: float | None = None,
        xi: float = 0.0,
        value_range: float | None = None,
        preset: Preset = "practical",
        overshoot: Overshoot = "cut",
        packing: Packing | Literal["auto"] = "auto",
        confidence: float = 0.05,
        c_beta: float = 1.0,
        cap: float | Literal["agents", "off"] | None = None,
        min_round: int = 1,
        rounds: int | Literal["off"] | None = None,
        scalars: int | None = None,
        stationary: bool | Literal["auto"] = "auto",
        policy: Literal["auto", "exploit", "explore"] = "auto",
        pessimism: float = 0.0,
        diversity: float | Literal["auto"] = "auto",
        aggregation: Aggregation = "float",
        exchange: Exchange = "stepwise",
        participation: float = 1.0,
        present: Sequence[Sequence[int]] | None = None,
        privacy: Mapping[str, Any] | None = None,
    ) -> None:
        given = dict(locals())
        del given["self"]
        self.settings = Settings(**given)

    def prepare(
        self,
        env: Any,
        episodes: int,
        seed: int = 0,
        *,
        features: Any = None,
        transport: str | Transport | Callable[[Plan], Transport] = "inprocess",
        cohorts: int | None = None,
        threads: int | None = None,
        block: int | None = None,
        keep_models: bool = False,
        logs: Logs = (),
        prior: Prior | None = None,
    ) -> Session:
        """Check everything that `learn` is given, and make ready to play.

        Args:
            env, episodes, seed, features, transport, cohorts, threads, block, keep_models: As in
                `learn`.
            logs: Each agent's log; if a log is also the agent's environment, the agent has only the
                log.
            prior: What was learned before.
        """
        if self.settings.some_away and transport != "inprocess":
            raise InvalidSetting(
                "participation and present simulate absent agents within one process: on this "
                "transport agents really can be absent. Leave both out, and choose what happens "
                'then with absent=, for example absent="carry"',
                code="bad-participation",
            )
        plan = make_plan(self.settings, env, episodes, seed, features, threads, block, logs, prior)
        plan.check_source()
        if prior is not None:
            from fedlsvi.warm_start import check_prior

            check_prior(prior, plan)
        secure = self.settings.aggregation == "secure"  # one site for each agent, or so many
        few = self.settings.n_agents if secure else None
        count = cohort_count(few if cohorts is None else cohorts, self.settings.n_agents)
        chosen = choose(transport, plan, cohorts)
        return Session(FederatedPlayer.of(plan, count, chosen), keep_models)


def choose(
    transport: str | Transport | Callable[[Plan], Transport], plan: Plan, cohorts: int | None = None
) -> Transport | None:
    """The transport that was asked for; None is this process."""
    if isinstance(transport, Transport):
        return transport
    if transport == "inprocess":
        return None
    if isinstance(transport, str):
        made: Transport = engine(transport)(plan, cohorts)
        return made
    return transport(plan)


def placed(transport: Any, folder: str | PathLike[str] | None, cohorts: int | None = None) -> Any:
    """The same transport, which knows the run folder."""
    if not isinstance(transport, str) or transport == "inprocess" or folder is None:
        return transport
    return partial(engine(transport), cohorts=cohorts, folder=folder)


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


def _traffic(session: Session, progress: bool | None) -> list[Observer]:
    """Say what Fed-LSVI will send, warn where that is much, and watch for it; one agent that learns
    alone sends nothing to anybody, and of one episode there is nothing to say."""
    p = session.player.parameters
    silent = _UNATTENDED.get() or 1 in (p.n_agents, p.episodes)
    if silent or session.player.algorithm != FedLSVI.name:
        return []
    from fedlsvi.observers.progress import is_shown
    from fedlsvi.observers.traffic import Traffic, TrafficWatch, log

    watch = TrafficWatch(Traffic.of(p, raw_scalars_per_step(session.plan)))
    if log.isEnabledFor(logging.INFO):
        log.info(watch.traffic.sentence())
    elif is_shown(progress):
        print(watch.traffic.sentence(), file=sys.stderr)
    watch.before(stacklevel=3)
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
    """Run a session to its end, or until an observer returns `STOP`; then `on_stop` is called.

    BLAS keeps to one thread: the compiled loops use the cores.
    """
    watching = list(observers)
    try:
        with threadpool_limits(limits=1, user_api="blas"):
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
