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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, ClassVar, Unpack

from fedlsvi.algorithms.shared.settings import SharedSettings
from fedlsvi.checks import choice, plural
from fedlsvi.config import Parameters
from fedlsvi.core.theory import beta_pessimistic, scalars_keys, scalars_model
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.convert import as_environment
from fedlsvi.groups import (
    Aggregation,
    CommonSettings,
    Exchange,
    OwnFeaturesSettings,
    PackingSettings,
    Preset,
    ProblemSize,
    RegressionSettings,
)
from fedlsvi.learner import Algorithm, Execution, Placing
from fedlsvi.logs.rows import InvalidRecord
from fedlsvi.logs.sources import Columns
from fedlsvi.logs.world import LoggedWorld, logged_worlds
from fedlsvi.protocol.cohorts import check_source
from fedlsvi.protocol.plan import make_plan
from fedlsvi.protocol.records import Observer
from fedlsvi.protocol.session import Session
from fedlsvi.protocol.transport import layout
from fedlsvi.run import Run

PRACTICAL_BETA = 0.01
"""β of the practical preset, in units of the value range (docs/offline.md has the study)."""


@dataclass(frozen=True)
class PEVISettings(
    SharedSettings, PackingSettings, RegressionSettings, OwnFeaturesSettings, CommonSettings
):
    """What is asked of PEVI. None means the preset's.

    Attributes:
        n_agents: M, the number of agents that have a log.
        beta: Penalty for uncertainty; None is the preset's, "theory" the theorem's.
        preset: "practical" learns from little data, "paper" uses the theorem's λ = 1 and β.
        stationary: True learns from the transitions of all steps together, where laws and rewards
            are the same at every step. A log cannot say whether they are. The theorem is not
            stated for it.
        aggregation: How sums are added, as in `FedLSVI`: "float", "exact" or "secure".
        exchange: "stepwise" asks agents once for each step; "one-trip" once in all, for which they
            send tables of next states (finite states only).
        privacy: A budget of differential privacy for everything that leaves the agents, as in
            `FedLSVI`. There is one synchronisation, so all of it is spent on one release. The
            theorem's β grows by what the noise can do; the practical preset's does not.
            Neighbours differ in one episode of one log; how many a log has is not hidden.
        min_round: A step that fewer episodes of a log reached is left out of that agent's sums.
    """

    fixed: ClassVar = {"gamma": 1.0, "rounds": 1}

    stationary: bool = False
    aggregation: Aggregation = "float"
    exchange: Exchange = "stepwise"
    privacy: Mapping[str, Any] | None = None
    min_round: int = 1

    def resolve(self, problem: ProblemSize) -> Parameters:
        """The numbers in force on logs of this size."""
        unsaid = replace(problem, steady=False)  # a log cannot say whether steps are alike
        resolved = replace(self, beta=0.0).common().resolve(unsaid)
        after = problem.after if resolved.exchange == "one-trip" else 0.0
        p = replace(resolved, pessimistic=True, after=after)
        beta = self.beta
        if beta is None:
            beta = "theory" if self.paper else PRACTICAL_BETA * float(p.ceilings[0])
        if beta == "theory":
            size = (p.pooled_dim, p.horizon, self.n_agents, p.episodes)
            beta = beta_pessimistic(*size, self.confidence, self.c_beta)
            if p.release is not None:  # so that V̂₁ stays a lower bound, whatever the noise is
                beta += p.release.theory_width(p.lam, p.noise_times, p.confidence)
        return replace(p, beta=float(beta))


class PEVI(Algorithm):
    """Pessimistic value iteration on the logs of M agents.

    Args:
        n_agents: M, the number of agents that have a log.
        **settings: Those of `PEVISettings`.
    """

    name = "pevi"
    settings_type = PEVISettings

    def __init__(self, n_agents: int = 1, **settings: Any) -> None:
        self.settings = PEVISettings(**self.flat(n_agents=n_agents, **settings))

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
        action_names: Sequence[str] | None = None,
        env_kwargs: dict[str, Any] | None = None,
        progress: bool | None = None,
        observers: Iterable[Observer] = (),
        execution: Execution | None = None,
        folder: str | PathLike[str] | None = None,
        checkpoint_seconds: float = 5.0,
        **placing: Unpack[Placing],
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
            action_names: What actions are called in the logs, in the order of their numbers; None
                is the order of the categories, or that of the words in all logs.
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
                action_names=action_names,
            )  # fmt: skip
        return super().learn(
            logs, episodes, seed, features=features, progress=progress, observers=observers,  # type: ignore[arg-type]
            execution=execution, folder=folder, checkpoint_seconds=checkpoint_seconds, **placing,
        )  # fmt: skip

    def prepare(
        self,
        env: Any,
        episodes: int | None,
        seed: int = 0,
        *,
        features: Any = None,
        execution: Execution | None = None,
        **placing: Unpack[Placing],
    ) -> Session:
        """Check the logs and settings, and make ready to read."""
        logs = self._logs(env)
        longest = max((world.log.episodes for world in logs), default=1)
        T = longest if episodes is None else episodes
        worlds: Any = logs or env
        where = Execution.of(execution, placing)
        plan = make_plan(self.settings, worlds, T, seed, features, where.threads, where.block)
        check_source(plan)
        player = where.player(plan, self.name)
        player.logged = {
            "logged_episodes": sum(min(T, world.log.episodes) for world in logs),
            "logged_transitions": sum(world.log.transitions for world in logs),
            "left_out": sum(
                world.log.cut(world.horizon, plan.parameters.stationary) for world in logs
            ),
        }
        return Session(player, where.keep_models)

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
    own = (
        *("beta", "lam", "value_range", "packing", "confidence", "c_beta", "stationary"),
        *("aggregation", "exchange", "privacy", "min_round", "own_features"),
    )
    settings = {key: given.pop(key) for key in own if key in given}
    sizes = ("horizon", "reward_range", "n_states", "n_actions", "columns", "allowed", "at_least",
             "action_names")  # fmt: skip
    limits = {key: given.pop(key) for key in sizes if key in given}
    like = given.pop("env", None)
    like = None if like is None else as_environment(like)
    if given.get("features") is None and isinstance(like, FiniteMDP) and like.phi is not None:
        given["features"] = like.default_features()  # a log has none of its own
    logs = logged_worlds(data, like=like, **limits)
    return PEVI(len(logs), preset=preset, **settings).learn(logs, **given)


def scalars(run: Run) -> dict[str, int]:
    """Fed-LSVI's formula with one round in which all M agents signal. With secure sums sites
    exchange keys first, and send one sum each. In one trip u is sent in place of H responses, and
    the tables of next states besides."""
    p, size = run.parameters, layout(run.parameters)
    M, model = p.n_agents, scalars_model(p.dim, p.horizon, p.packing, p.stationary)
    sites = run.counts.get("sites")
    keys = 0 if sites is None else scalars_keys(sites)
    up = (M if sites is None else sites) * model
    if p.exchange == "one-trip" and sites is not None:
        up = sites * size.upload_words(1)
    elif p.exchange == "one-trip":
        following = run.counts["next_state_scalars"]
        up = M * size.matrices * (size.packed + size.dim) + following
    return {
        "init": M * (model + 3) + keys,
        "up_stats": up,
        "down_model": M * model,
        "signal": 3 * M,
    }
