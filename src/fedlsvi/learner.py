"""Fed-LSVI as a user meets it: settings in, a finished run out."""

from __future__ import annotations

import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from functools import partial
from os import PathLike
from typing import Any, ClassVar, Literal

from threadpoolctl import threadpool_limits

from fedlsvi.checks import integer
from fedlsvi.config import (
    Aggregation,
    Overshoot,
    Preset,
    Settings,
    cohort_count,
    what_differs,
)
from fedlsvi.core.statistics import Packing
from fedlsvi.envs.gym.convert import as_environment
from fedlsvi.errors import GoesOnWarning, InvalidInput, UnknownName
from fedlsvi.policy import Policy
from fedlsvi.protocol.interrupt import Interrupt
from fedlsvi.protocol.plan import Plan, make_plan
from fedlsvi.protocol.records import STOP, Observer, RoundRecord, check_observers
from fedlsvi.protocol.session import FederatedPlayer, Session
from fedlsvi.protocol.snapshot import memory_of
from fedlsvi.protocol.transport import Transport
from fedlsvi.registry import resolve
from fedlsvi.run import Run

ENGINES = {"ray": "fedlsvi.remote.ray.transport:on_ray"}
"""Name → the function that makes a transport for a plan."""


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
        seed: int = 0,
        *,
        features: Any = None,
        horizon: int | None = None,
        reward_range: tuple[float, float] | Literal["clip"] | None = None,
        repeat: int = 1,
        clip_rewards: bool = False,
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
    ) -> Run:
        """Play `episodes` episodes per agent and return what was learned and what it cost.

        Args:
            env: An environment, its registered name, a Gymnasium id or `EnvSpec`, a function that
                makes an environment, or a list with one of these for each agent.
            episodes: T, episodes per agent.
            seed: The same seed gives the same run, to the last bit.
            features: A feature map, an (S, A, d) array, a callable on a batch of states, or None
                for the environment's own.
            horizon: H of a Gymnasium environment; None is that of its spec.
            reward_range: (low, high) of a Gymnasium environment's rewards; "clip" takes the range
                that random play shows, and clips what lies outside.
            repeat: Steps of a Gymnasium environment for which an action is held; H counts actions.
            clip_rewards: Clip its rewards outside `reward_range` and count them.
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
        """
        watching = check_observers(observers)
        env = as_environment(
            env, horizon=horizon, reward_range=reward_range, kwargs=env_kwargs, repeat=repeat,
            clip_rewards=clip_rewards,
        )  # fmt: skip
        session = self.prepare(
            env, episodes, seed, features=features, transport=placed(transport, folder, cohorts),
            cohorts=cohorts, threads=threads, block=block, keep_models=keep_models,
        )  # fmt: skip
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
            1 + 1/M, None is the paper's trigger.
        min_round: No round has fewer episodes, and so no upload sums up fewer.
        rounds: No run has more rounds: early ones are short and later ones long.
        scalars: No run sends more scalars in Fed-LSVI's messages; sets `rounds`.
        stationary: True learns from the data of all steps together, where laws and rewards are the
            same at every step: one Gram matrix, sent once. "auto" asks the environment, and is
            False in the paper's preset.
        policy: "exploit" ends the run with one more backward pass, without the bonus:
            `run.exploit()` is the policy to deploy. "explore" does without. "auto" exploits in the
            practical preset.
        pessimism: b ≥ 0: that pass subtracts b times the width, a lower confidence bound.
        aggregation: How the server adds what agents send: "float" adds doubles, "exact" integers
            in fixed point, "secure" the same integers behind masks that cancel in the sum, so that
            it learns the sum of at least three sites and nothing else.
    """

    name = "fed-lsvi"

    def __init__(
        self,
        n_agents: int = 1,
        *,
        gamma: float | Literal["auto", "anytime"] = "auto",
        beta: float | Literal["theory"] | None = None,
        lam: float | None = None,
        xi: float = 0.0,
        value_range: float | None = None,
        preset: Preset = "practical",
        overshoot: Overshoot = "cut",
        packing: Packing | Literal["auto"] = "auto",
        confidence: float = 0.05,
        c_beta: float = 1.0,
        cap: float | Literal["agents"] | None = None,
        min_round: int = 1,
        rounds: int | None = None,
        scalars: int | None = None,
        stationary: bool | Literal["auto"] = "auto",
        policy: Literal["auto", "exploit", "explore"] = "auto",
        pessimism: float = 0.0,
        aggregation: Aggregation = "float",
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
    ) -> Session:
        """Check everything that `learn` is given, and make ready to play."""
        plan = make_plan(self.settings, env, episodes, seed, features, threads, block)
        plan.check_source()
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


def played(session: Session, learner: Algorithm, observers: Iterable[Observer]) -> Run:
    """Play a session that has no folder; Ctrl-C ends it cleanly."""

    def asked(record: RoundRecord) -> Any:
        if not interrupt.asked or session.ending == "finished":
            return None
        session.ending = "interrupted"
        print(
            f"fedlsvi: interrupted after episode {record.last:,} of "
            f"{session.player.parameters.episodes:,}; this is the run so far",
            file=sys.stderr,
        )
        return STOP

    with Interrupt(polite=True) as interrupt:
        drive(session, [*observers, asked])
    return replace(Run.of(session, learner.settings), learner=learner, memory=memory_of(session))


def go_on(
    run: Run,
    episodes: int,
    progress: bool | None = None,
    observers: Iterable[Observer] = (),
    threads: int | None = None,
) -> Run:
    """A run in memory that goes on up to T = `episodes`; `Run.learn_more` explains it."""
    watching = check_observers(observers)
    learner, plan, memory = run.learner, run.plan, run.memory
    if learner is None or plan is None:
        raise InvalidInput(
            "this run was read back without what its agents remember: go on with the run that "
            "`learn` returned, or with one that has a folder",
            code="cannot-go-on",
        )
    refuse_longer(run, episodes, memory is not None)
    assert memory is not None
    shared = all(env is plan.envs[0] for env in plan.envs)
    session = learner.prepare(
        plan.envs[0] if shared else list(plan.envs), episodes, plan.seed, features=plan.features,
        cohorts=memory.plain["cohorts"] or None,
        threads=plan.threads if threads is None else threads, block=plan.block,
        keep_models=bool(run.models),
    )  # fmt: skip
    past = [record for record in run.records if record.last <= memory.t]
    if memory.history:
        session.player.extend(0, memory.history)
    session.restore(
        memory.arrays, memory.plain, None if run.regret is None else run.regret[: memory.t], past
    )
    session.models, session.policies = run.models[: len(past)], run.policies[: len(past)]
    differs = what_differs(run.parameters, session.plan.parameters, memory.t)
    if differs is not None:
        warnings.warn(differs, GoesOnWarning, stacklevel=3)
    if progress is not False:
        from fedlsvi.observers.progress import bar

        watching += bar(session.plan.parameters, progress, memory.t)
    longer = played(session, learner, watching)
    return replace(longer, extended=(*run.extended, *([differs] if differs else [])))


def exploited(run: Run, pessimism: float) -> Policy:
    """The policy of one more backward pass over what the agents of a run remember; `Run.exploit`
    explains it."""
    learner, plan, memory = run.learner, run.plan, run.memory
    if not isinstance(learner, FedLSVI) or plan is None or memory is None:
        raise InvalidInput(
            f"what the agents of this run of '{run.algorithm}' remember is not here: learn with "
            f'policy="exploit", pessimism={pessimism:g}, which ends the run with this policy',
            code="no-statistics",
        )
    asked = asdict(learner.settings) | {"policy": "exploit", "pessimism": pessimism}
    shared = all(env is plan.envs[0] for env in plan.envs)
    session = FedLSVI(**asked).prepare(
        plan.envs[0] if shared else list(plan.envs), plan.parameters.episodes, plan.seed,
        features=plan.features, cohorts=memory.plain["cohorts"] or None, threads=plan.threads,
    )  # fmt: skip
    player = session.player
    if memory.history:
        player.extend(0, memory.history)
    session.restore(memory.arrays, memory.plain, None, [])
    try:
        with threadpool_limits(limits=1, user_api="blas"):
            if memory.t < run.played:  # the last round is played again, with the same draws
                list(session.rounds())
            else:
                player.start()
                player.finish()
    finally:
        session.close()
    found = Policy.deployed_of(session)
    assert found is not None
    return found


def refuse_longer(run: Run, episodes: int, remembered: bool) -> None:
    """Refuse to go on where that is no run of the algorithm, or where nothing is remembered."""
    T = run.parameters.episodes
    integer("episodes", episodes, run.played + 1, f"{run.played:,} were played", error=InvalidInput)
    again = f"play a new run of {episodes:,} episodes"
    asked = [name for name in ("rounds", "scalars") if getattr(run.settings, name, None)]
    if episodes != T and asked:
        raise InvalidInput(
            f"{asked[0]} was a budget for {T:,} episodes, which a longer run might exceed: {again}",
            code="cannot-go-on",
        )
    if not remembered:
        raise InvalidInput(
            f"this run of '{run.algorithm}' cannot go on: its rounds or constants follow the "
            "number of episodes, its agents are in other processes, or they remember too much to "
            f"be kept: {again}",
            code="cannot-go-on",
        )


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
