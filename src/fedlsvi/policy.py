"""The greedy policy of a model, to act with, to save and to load; and what a run's policies earn:
exactly where the model is known, else in episodes played for it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlsvi.checks import integer, plural
from fedlsvi.core.blas import one_blas_thread
from fedlsvi.core.random import uniforms
from fedlsvi.envs.allowed import draw_allowed
from fedlsvi.envs.base import Environment
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.world import COPIES, GymWorld
from fedlsvi.envs.spaces import Spaces
from fedlsvi.errors import FedLSVIError, InvalidInput, warn
from fedlsvi.experience.values import BlockValues, TabularValues
from fedlsvi.protocol.session import Session

if TYPE_CHECKING:
    from fedlsvi.envs.gym.play import Trial
    from fedlsvi.run import Run

Values = TabularValues | BlockValues

EPISODES, FEWEST = 50, 5
"""Episodes that measure a policy in a black box, and the fewest that say anything."""

SECONDS = 5.0
"""What a summary may spend on playing; where steps are slow it plays fewer episodes, or none."""

PATIENCE = 30.0
"""Seconds that whoever asks for references waits for them."""

REFERENCE = 18
"""Stream of the keyed generator: episodes that measure policies in a simulator."""


@dataclass(frozen=True)
class Built:
    """A model that is ready, where one that is read from a folder is built on use."""

    values: Values
    spaces: Spaces

    def __call__(self) -> tuple[Values, Spaces]:
        """The model and the spaces."""
        return self.values, self.spaces


def pickled(value: Any) -> bytes | None:
    """The value as pickle writes it; None where it cannot, as with a function in it."""
    try:
        return pickle.dumps(value)
    except Exception:  # each library refuses with an error of its own
        return None


def _not_pickled() -> tuple[Values, Spaces]:
    raise InvalidInput(
        "this policy was pickled without its features, because pickle cannot store them: use "
        "policy.save(path) and Policy.load(path, features=...)",
        code="not-pickled",
    )


@dataclass(frozen=True, repr=False)
class Policy:
    """π_h(x) = argmax_a φᵀw_h + β‖φ‖_{Λ_h⁻¹}; β = 0 where it no longer explores.

    `build` gives the model and the environment's spaces when the policy is first asked: one read
    from a folder needs its environment only then.
    """

    build: Callable[[], tuple[Values, Spaces]]
    horizon: int
    environment: dict[str, Any] | None = None
    """How the environment it was learned in was made, where that is known."""

    @classmethod
    def exploring_of(cls, session: Session) -> Policy:
        """The policy after the last synchronisation."""
        values: Values = session.player.values
        plan = session.plan
        world = plan.world
        return cls(Built(values, Spaces.of(world)), plan.parameters.horizon, world.spec())

    @classmethod
    def of(cls, session: Session) -> Policy | None:
        """The policy of the backward pass after the last round, where there was one."""
        values: Values | None = session.player.deployed
        if values is None:
            return None
        plan = session.plan
        built = Built(values, Spaces.of(plan.world))
        return cls(built, plan.parameters.horizon, plan.world.spec())

    @classmethod
    def of_agents(cls, session: Session) -> tuple[Policy, ...]:
        """Each agent's, where they have coefficients of their own and are in this process."""
        plan = session.plan
        if not plan.parameters.own_features:
            return ()
        made = []
        for cohort in session.player.cohorts:
            world = plan.envs[int(cohort.agents[0])]
            values: Any = cohort.values if cohort.deployed is None else cohort.deployed
            built = Built(values, Spaces.of(world))
            made.append(cls(built, plan.parameters.horizon, world.spec()))
        return tuple(made)

    @classmethod
    def load(cls, path: str | PathLike[str], features: Any = None) -> Policy:
        """What `save` wrote. Features that no name can rebuild have to be given again."""
        from fedlsvi.storage.policy_file import read

        return read(path, features)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a folder with policy.json and policy.safetensors: all that is needed to act."""
        from fedlsvi.storage.policy_file import write

        write(self, path)

    def __getstate__(self) -> dict[str, Any]:
        """What pickle writes: the model, where it can be written; not the way to build it."""
        try:
            model = pickled(self._built)
        except (FedLSVIError, ImportError):  # a folder whose environment cannot be made here
            model = None
        return {"horizon": self.horizon, "environment": self.environment, "model": model}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The policy again; it says what is missing when it is asked to act."""
        model = state.pop("model")
        build = _not_pickled if model is None else Built(*pickle.loads(model))
        self.__dict__.update(state | {"build": build})

    @cached_property
    def _built(self) -> tuple[Values, Spaces]:
        values, spaces = self.build()
        return values.free(), spaces

    @property
    def values(self) -> Values:
        """The model in force."""
        return self._built[0]

    @property
    def spaces(self) -> Spaces:
        """What its environment shows and which actions it takes."""
        return self._built[1]

    @property
    def table(self) -> np.ndarray:
        """(H, S) actions, numbered from 0, where states are finite."""
        if isinstance(self.values, TabularValues):
            return self.values.policy
        raise InvalidInput(
            "table needs a finite state space: use action(state, step)", code="needs-finite-states"
        )

    @property
    def action_names(self) -> list[str] | None:
        """What actions are called, in the order of their numbers from 0, where the logs that it
        was learned from have words for them."""
        names: list[str] | None = (self.environment or {"params": {}})["params"].get("action_names")
        return names

    def __repr__(self) -> str:
        made = self.environment or {"name": None, "params": {}}
        where = made["params"].get("id") or made["name"] or made["params"].get("title")
        return f"<Policy of {plural(self.horizon, 'step')}" + (f" for {where}>" if where else ">")

    def _repr_html_(self) -> str:
        from fedlsvi.report.notebook import html_of_pairs

        rows: list[tuple[str, Any]] = [("steps", self.horizon)]
        values = self.build.values if isinstance(self.build, Built) else None
        if isinstance(values, TabularValues):
            chosen, names = np.bincount(values.policy[0]), self.action_names
            rows.append(("states", values.policy.shape[1]))
            rows.append(("actions at step 1", ", ".join(
                f"{names[a] if names else a}: {n:,}" for a, n in enumerate(chosen[:12]) if n
            )))  # fmt: skip
        return html_of_pairs(repr(self), rows)

    def __call__(self, state: Any, step: int) -> int:
        """`action`."""
        return self.action(state, step)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """As in Stable-Baselines3: (action, state), where the state is the next step.

        The policy depends on the step, so pass on what the last call returned:
        `action, state = policy.predict(observation, state)`. None is step 1, and after step H the
        policy stays at H. With an `episode_start`, as `evaluate_policy` of Stable-Baselines3 gives
        it, the observation is a batch, and so are actions and states.

        Args:
            observation: As the environment shows it; with `episode_start`, a batch of these.
            state: What the last call returned; None at the beginning of an episode.
            episode_start: Whether each episode of the batch begins here.
            deterministic: Is ignored: the policy is.
            action_masks: Which actions are allowed, (A,), as `info["action_mask"]` has it; with
                `episode_start`, a batch of these.
        """
        if episode_start is None:
            h = 1 if state is None else min(int(state), self.horizon)
            if state is None:
                self._count_stateless()
            else:
                self.__dict__["_stateless"] = False
            return self.action(observation, h, action_masks), h + 1
        began = np.asarray(episode_start, bool)
        steps = np.ones(len(began), np.int64) if state is None else np.array(state, np.int64)
        steps[began] = 1
        masks = [None] * len(steps) if action_masks is None else action_masks
        batch = [
            self.action(one, min(int(h), self.horizon), mask)
            for one, h, mask in zip(observation, steps, masks, strict=True)
        ]
        return np.array(batch), steps + 1

    def _count_stateless(self) -> None:
        """Two calls in a row without a state act as at step 1 twice, which nobody wants."""
        if self.horizon > 1 and self.__dict__.get("_stateless"):
            warn(
                "predict(observation) without a state always acts as at step 1: pass the state it "
                "returned, action, state = policy.predict(observation, state)"
            )
        self.__dict__["_stateless"] = True

    def action(self, state: Any, step: int, allowed: Any = None) -> int:
        """The action at step h = 1 … H, as the environment numbers it, in a state as it shows it:
        a number, an array, or a tuple or dictionary of these. `allowed` (A,) is what
        `info["action_mask"]` holds: a policy learned in a black box with masks needs it."""
        mask = None if allowed is None else np.asarray(allowed)[None]
        chosen = self.actions(step, self.spaces.state(state), mask)
        return int(chosen[0]) + self.spaces.first_action

    def actions(self, step: int, states: np.ndarray, allowed: Any = None) -> np.ndarray:
        """The actions, numbered from 0, in a batch of states at step h = 1 … H.

        States are what the learner sees: numbers from 0, int (n,), or flattened, float (n, s).
        `allowed` (n, A) says which actions are allowed there, in place of the mask of the
        environment in which the policy was learned.
        """
        h = integer("step", step, 1, most=self.horizon, error=InvalidInput)
        states = self.spaces.states(states)
        if allowed is None and self.values.needs_mask:
            raise InvalidInput(
                "this policy was learned with a mask of allowed actions for each observation: "
                'give allowed=info["action_mask"]',
                code="needs-mask",
            )
        if allowed is None:
            return self._act(h, states)
        mask, shape = np.asarray(allowed), (len(states), self.spaces.n_actions)
        if mask.shape != shape or not (mask != 0).any(axis=1).all():
            raise InvalidInput(
                f"allowed has shape {mask.shape}: give booleans of shape {shape} with at least "
                "one allowed action per state",
                code="bad-allowed",
            )
        return self._act(h, states, np.ascontiguousarray(mask != 0))

    def _act(self, h: int, states: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        if isinstance(self.values, TabularValues):  # a table is looked up
            return self.values.act(h, states, mask)
        with one_blas_thread():
            return self.values.act(h, states, mask)


@dataclass(frozen=True)
class Worth:
    """What a policy earns in an episode, in the environment's own units.

    Attributes:
        mean: The mean return.
        standard_error: Of the mean; None where it is exact.
        episodes: How many were played for it; None where it is exact.
    """

    mean: float
    standard_error: float | None = None
    episodes: int | None = None

    @classmethod
    def of(cls, returns: np.ndarray) -> Worth:
        """The mean of episodes that were played."""
        n = len(returns)
        error = float(returns.std(ddof=1) / n**0.5) if n > 1 else None
        return cls(float(returns.mean()), error, n)

    def __str__(self) -> str:
        error = "" if self.standard_error is None else f" ± {self.standard_error:.2g}"
        return f"{self.mean:.4g}{error}"


def worth_of(
    run: Run,
    env: Environment,
    episodes: int = EPISODES,
    seconds: float | None = None,
    tell: Callable[[float], None] = lambda played: None,
) -> dict[str, Worth]:
    """What the learned policy is to be measured by; empty where nothing is known.

    Args:
        run: The run.
        env: Agent 0's environment.
        episodes: To play with each policy, where values are not known.
        seconds: After which no further episode begins; None sets no limit.
        tell: Called with the episodes that a policy has played, on average.
    """
    if env.recorded:
        return {"behaviour": Worth(env.mean_return)}  # type: ignore[attr-defined]
    if isinstance(env, FiniteMDP):
        return _exact(run, env)
    integer("episodes", episodes, 1)
    policies: dict[str, Policy | str] = {"learned": run.first_policy, "random": "random"}
    if run.policy_w is not None and not run.agent_policies:
        policies["exploring"] = run.exploring_policy
    if isinstance(env, ContinuousMDP):
        return _simulated(policies, env, run.seed, episodes)
    if run.mean_returns is None:
        return {}
    from fedlsvi.envs.gym.play import Trial

    with ExitStack() as stack:
        trials = {
            name: stack.enter_context(closing(Trial(policy, env, run.seed, env.horizon)))
            for name, policy in policies.items()
        }
        _play(list(trials.values()), episodes, seconds, tell)
        return {name: Worth.of(trial.evaluation.returns) for name, trial in trials.items()}


def _play(
    trials: list[Trial], episodes: int, seconds: float | None, tell: Callable[[float], None]
) -> None:
    """So many episodes with each policy, or as many as there is time for, and at least one. All
    play the same number, from the same first states."""
    world = trials[0].world
    size, began, played = COPIES, perf_counter(), 0
    if seconds is not None:
        each = len(trials) * world.horizon * seconds_per_step(world)
        size = max(1, min(world.lookahead(COPIES), int(seconds / each) if each else COPIES))
    while played < episodes:
        n, before = min(size, episodes - played), perf_counter()
        for k, trial in enumerate(trials, start=1):
            trial.play(n)
            tell(played + n * k / len(trials))
        played += n
        now = perf_counter()
        if seconds is not None and played < episodes and now - began + now - before > seconds:
            warn(
                f"{world.name} is slow: each policy was measured in {plural(played, 'episode')} "
                f"instead of {episodes}, because {seconds:g} seconds would not do for more. "
                "run.worth() gives the standard errors; seconds= gives more time"
            )
            return


def _simulated(
    policies: dict[str, Policy | str], env: ContinuousMDP, seed: int, episodes: int
) -> dict[str, Worth]:
    """As many episodes with each policy, side by side, from agent 0's first states and with the
    same draws; and V* of these states where it is known."""
    k0, k, H, A = env.draws_at_reset, env.draws_per_step, env.horizon, env.n_actions
    u, chance = np.split(uniforms(seed, [0], 1, episodes, k0 + H * k + H, REFERENCE)[0], [-H], 1)
    first, found = env.reset(u[:, :k0], np.zeros(episodes, np.int64)), {}
    for name, policy in policies.items():
        x, total = first, np.zeros(episodes)
        for h in range(1, H + 1):
            if isinstance(policy, str):
                mask = np.ones((episodes, A), bool) if env.allowed is None else env.allowed(h, x)
                a = draw_allowed(chance[:, h - 1], mask)
            else:
                a = policy.actions(h, x)
            rewards, x = env.step(h, x, a, u[:, k0 + (h - 1) * k : k0 + h * k])
            total += rewards
        found[name] = Worth.of(env.original(total))
    if env.knows_values:
        found["optimal"] = Worth.of(env.original(env.optimal_values_at(first)))
    return found


def seconds_per_step(world: GymWorld) -> float:
    """The least time that a step takes there; of a world that nobody has stepped yet, an episode
    is played to find out."""
    if world.step_seconds == float("inf"):
        world.visited(1)
    return world.step_seconds


def _exact(run: Run, env: FiniteMDP) -> dict[str, Worth]:
    law = env.initial_law(0)
    values = {
        "learned": env.policy_values(run.first_policy.table),
        "optimal": env.optimal_values(),
        "uniform": env.uniform_values(),
    }
    if run.policy_w is not None and not run.agent_policies:
        values["exploring"] = env.policy_values(run.exploring_policy.table)
    return {name: Worth(float(env.original(law @ v[0]))) for name, v in values.items()}


def affordable(env: Any) -> int:
    """How many episodes a summary may play with each policy: fewer where steps are slow, and 0
    where not even `FEWEST` are quick."""
    if not isinstance(env, GymWorld):
        return EPISODES
    each = 3 * env.horizon * seconds_per_step(env)
    found = int(SECONDS / each) if each else EPISODES
    return min(EPISODES, found) if found >= FEWEST else 0
