"""Pessimistic value iteration (PEVI; Jin, Yang & Wang 2021), federated: learning from logs alone.

Every agent has a log and no world to play in. There is one synchronisation, Fed-LSVI's own:
backward through the steps each agent sends (Λ_h^loc, b_h) over its log, the server adds them up and
returns (w_h, Λ_h), and the bonus is taken off instead of added:

    Q_h = clip(φᵀw_h − β‖φ‖_{Λ_h⁻¹}, 0, H − h + 1).

What was not seen is worth nothing, so the learned policy keeps to what the logs cover. Only sums
enter, hence the policy is the one that all logs in one place would give, up to rounding.

Server, agents and messages are those of Fed-LSVI with a budget of one round: episode t of an agent
is the t-th of its log, T is the number of episodes of the longest one, and all signal at T. At the
theorem's β (preset="paper") V̂₁ is a lower bound of the policy's value with probability 1 − p.

The paper is quoted from memory: Theorem 4.4 has λ = 1 and β = c·d·H·√log(2dHK/p) for K episodes.
We take K = MT, which is at least the number of logged episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, ClassVar, Literal

from fedlsvi.algorithms.shared.settings import LinearSettings
from fedlsvi.checks import choice, plural
from fedlsvi.config import Parameters, Preset, cohort_count
from fedlsvi.core.statistics import Packing
from fedlsvi.core.theory import beta_pessimistic, scalars_model
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.convert import as_environment
from fedlsvi.envs.logged.rows import InvalidRecord
from fedlsvi.envs.logged.sources import Columns
from fedlsvi.envs.logged.world import LoggedWorld, logged_worlds
from fedlsvi.learner import Algorithm, choose
from fedlsvi.protocol.plan import Plan, make_plan
from fedlsvi.protocol.records import Observer
from fedlsvi.protocol.session import FederatedPlayer, Session
from fedlsvi.protocol.transport import Transport
from fedlsvi.run import Run

PRACTICAL_BETA = 0.01
"""β of the practical preset, in units of the value range (docs/offline.md has the study)."""


@dataclass(frozen=True)
class PEVISettings(LinearSettings):
    """What is asked of PEVI; `PEVI` explains each. None means the preset's."""

    fixed: ClassVar = {"gamma": 1.0, "rounds": 1}
    shared = (*LinearSettings.shared, "stationary")

    stationary: bool = False

    def resolve(self, episodes: int, horizon: int, dim: int, one_hot: bool) -> Parameters:
        """The numbers in force on logs of this size."""
        known = replace(self, beta=0.0).common()
        p = replace(known.resolve(episodes, horizon, dim, one_hot), pessimistic=True)
        beta = self.beta
        if beta is None:
            beta = "theory" if self.preset == "paper" else PRACTICAL_BETA * float(p.ceilings[0])
        if beta == "theory":
            size = (dim, horizon, self.n_agents, p.episodes)
            beta = beta_pessimistic(*size, self.confidence, self.c_beta)
        return replace(p, beta=float(beta))


class PEVI(Algorithm):
    """Pessimistic value iteration on the logs of M agents.

    Args:
        n_agents: M, the number of agents that have a log.
        beta: Penalty for uncertainty; None is the preset's, "theory" the theorem's.
        lam: Ridge λ > 0; None takes the preset's.
        value_range: The largest return of an episode, where it is known to be below H; in rewards
            that are mapped to [0, 1].
        preset: "practical" learns from little data, "paper" uses the theorem's λ = 1 and β.
        packing: How Gram matrices travel, as in `FedLSVI`.
        confidence: p of the theorem.
        c_beta: The constant c of the theorem's β.
        stationary: True learns from the transitions of all steps together, where laws and rewards
            are the same at every step. A log cannot say whether they are. The theorem is not
            stated for it.
    """

    name = "pevi"

    def __init__(
        self,
        n_agents: int = 1,
        *,
        beta: float | Literal["theory"] | None = None,
        lam: float | None = None,
        value_range: float | None = None,
        preset: Preset = "practical",
        packing: Packing | Literal["auto"] = "auto",
        confidence: float = 0.05,
        c_beta: float = 1.0,
        stationary: bool = False,
    ) -> None:
        self.settings = PEVISettings(
            n_agents=n_agents, beta=beta, lam=lam, value_range=value_range, preset=preset,
            packing=packing, confidence=confidence, c_beta=c_beta, stationary=stationary,
        )  # fmt: skip

    def learn(  # type: ignore[override]  # logs are not played: nothing to repeat or to clip
        self,
        env: Any = None,
        episodes: int | None = None,
        seed: int = 0,
        *,
        data: Any = None,
        features: Any = None,
        horizon: int | None = None,
        reward_range: Sequence[float] | None = None,
        n_states: int | None = None,
        n_actions: int | None = None,
        columns: Columns | None = None,
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
    ) -> Run:
        """Learn from logs and return the policy, what it cost, and V̂.

        Args:
            env: The environment that the logs were recorded in, for its sizes and units. It is
                never played. Leave it out if there is none.
            episodes: How many episodes of each log to read; None reads all.
            seed: Stored with the run; nothing is random here.
            data: A Parquet or CSV file, arrays by name, a data frame or a Minari data set with the
                columns episode, step, observation, action, reward, terminated (and agent, if it is
                from several); or a list with one per agent.
            features: As in `FedLSVI`.
            horizon: H; None is the environment's, or the longest episode's.
            reward_range: The rewards that 0 and 1 stand for; None is the environment's, or (0, 1).
            n_states: Number of states; None is the environment's, or the largest one plus 1.
            n_actions: Number of actions, likewise.
            columns: What the columns are called in the log, by our names.
            allowed: Actions that the policy may take, as in `FedLSVI.learn`; or "seen": those that
                an agent's own log has seen at least `at_least` times in the state.
            at_least: See `allowed`.
            env_kwargs: Arguments of `gymnasium.make`, where `env` is an id.
            progress: As in `FedLSVI.learn`, like all arguments after it.
        """
        logs: Any = env
        if data is not None:
            like = env
            if env is not None and not isinstance(env, list):
                given: dict[str, Any] = {
                    "horizon": horizon,
                    "reward_range": reward_range,
                    "kwargs": env_kwargs,
                }
                like = as_environment(env, **given if isinstance(env, str) else {})
            if features is None and isinstance(like, FiniteMDP) and like.phi is not None:
                features = like.default_features()  # a log has none of its own
            logs = logged_worlds(
                data, like=like, horizon=horizon, n_states=n_states, n_actions=n_actions,
                reward_range=reward_range, columns=columns, allowed=allowed, at_least=at_least,
            )  # fmt: skip
        return super().learn(
            logs, episodes, seed, features=features, progress=progress, observers=observers,  # type: ignore[arg-type]
            transport=transport, cohorts=cohorts, threads=threads, block=block,
            keep_models=keep_models, folder=folder, checkpoint_seconds=checkpoint_seconds,
        )  # fmt: skip

    def prepare(
        self,
        env: Any,
        episodes: int | None,
        seed: int = 0,
        *,
        features: Any = None,
        transport: str | Transport | Callable[[Plan], Transport] = "inprocess",
        cohorts: int | None = None,
        threads: int | None = None,
        block: int | None = None,
        keep_models: bool = False,
    ) -> Session:
        """Check the logs and settings, and make ready to read."""
        logs = self._logs(env)
        longest = max((world.log.episodes for world in logs), default=1)
        T = longest if episodes is None else episodes
        worlds: Any = logs or env
        plan = make_plan(self.settings, worlds, T, seed, features, threads, block)
        plan.check_source()
        count = cohort_count(cohorts, self.settings.n_agents)
        player = FederatedPlayer.of(plan, count, choose(transport, plan, cohorts), self.name)
        player.logged = {
            "logged_episodes": sum(min(T, world.log.episodes) for world in logs),
            "logged_transitions": sum(world.log.transitions for world in logs),
            "left_out": sum(
                world.log.cut(world.horizon, plan.parameters.stationary) for world in logs
            ),
        }
        return Session(player, keep_models)

    def _logs(self, env: Any) -> list[LoggedWorld]:
        """One log for each agent; nothing where these are no logs."""
        worlds = list(env) if isinstance(env, list | tuple) else [env]
        logs = [world for world in worlds if isinstance(world, LoggedWorld)]
        M = self.settings.n_agents
        if logs and len(logs) != M:
            raise InvalidRecord(
                f"there are logs for {plural(len(logs), 'agent')}, but n_agents is {M}: give one "
                "log per agent",
                code="wrong-number-of-logs",
            )
        return logs


def offline(data: Any, *, preset: Preset = "practical", **given: Any) -> Run:
    """Learn one policy from the logs of several agents, as many as there are logs.

    Args:
        data: As in `PEVI.learn`.
        preset: As in `PEVI`.
        **given: Other settings of `PEVI` and other arguments of `PEVI.learn`.
    """
    choice("preset", preset, ("practical", "paper"))
    own = ("beta", "lam", "value_range", "packing", "confidence", "c_beta", "stationary")
    settings = {key: given.pop(key) for key in own if key in given}
    sizes = ("horizon", "reward_range", "n_states", "n_actions", "columns", "allowed", "at_least")
    limits = {key: given.pop(key) for key in sizes if key in given}
    like = given.pop("env", None)
    like = None if like is None else as_environment(like)
    if given.get("features") is None and isinstance(like, FiniteMDP) and like.phi is not None:
        given["features"] = like.default_features()  # a log has none of its own
    logs = logged_worlds(data, like=like, **limits)
    return PEVI(len(logs), preset=preset, **settings).learn(logs, **given)


def scalars(run: Run) -> dict[str, int]:
    """Fed-LSVI's formula with one round in which all M agents signal."""
    p = run.parameters
    M = p.n_agents
    model = M * scalars_model(p.dim, p.horizon, p.packing, p.stationary)
    return {"init": model + 3 * M, "up_stats": model, "down_model": model, "signal": 3 * M}
