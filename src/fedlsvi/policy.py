"""The greedy policy of a model, to act with, to save and to load; and what a run's policies earn:
exactly where the model is known, else in episodes played for it."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlsvi.checks import integer, plural
from fedlsvi.envs.base import Environment
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.envs.gym.world import GymWorld
from fedlsvi.envs.spaces import Spaces
from fedlsvi.errors import FedLSVIError, FedLSVIWarning, InvalidInput
from fedlsvi.experience.values import BlockValues, TabularValues
from fedlsvi.protocol.session import Session

if TYPE_CHECKING:
    from fedlsvi.run import Run

Values = TabularValues | BlockValues

EPISODES, FEWEST = 50, 5
"""Episodes that measure a policy in a black box, and the fewest that say anything."""

SECONDS = 5.0
"""What a summary may spend on playing; where steps are slow it plays fewer episodes, or none."""


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
    """π_h(x) = argmax_a φᵀw_h + β‖φ‖_{Λ_h⁻¹}: the one the agents would follow next.

    `build` gives the model and the environment's spaces when the policy is first asked: one read
    from a folder needs its environment only then.
    """

    build: Callable[[], tuple[Values, Spaces]]
    horizon: int
    environment: dict[str, Any] | None = None
    """How the environment it was learned in was made, where that is known."""

    @classmethod
    def of(cls, session: Session) -> Policy:
        """The policy after the last synchronisation."""
        values: Values = session.player.values
        plan = session.plan
        world = plan.world
        return cls(Built(values, Spaces.of(world)), plan.parameters.horizon, world.spec())

    @classmethod
    def deployed_of(cls, session: Session) -> Policy | None:
        """The policy of the backward pass after the last round, where there was one."""
        values: Values | None = getattr(session.player, "deployed", None)
        if values is None:
            return None
        world, spaces = session.plan.world, Spaces.of(session.plan.world)
        return cls(lambda: (values, spaces), session.plan.parameters.horizon, world.spec())

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

    def __repr__(self) -> str:
        made = self.environment or {"name": None, "params": {}}
        where = made["params"].get("id") or made["name"] or made["params"].get("title")
        return f"<Policy of {plural(self.horizon, 'step')}" + (f" for {where}>" if where else ">")

    def _repr_html_(self) -> str:
        from fedlsvi.report.notebook import html_of_pairs

        rows: list[tuple[str, Any]] = [("steps", self.horizon)]
        if isinstance(values := getattr(self.build, "values", None), TabularValues):
            chosen = np.bincount(values.policy[0])
            rows.append(("states", values.policy.shape[1]))
            rows.append(("actions at step 1", ", ".join(
                f"{a}: {n:,}" for a, n in enumerate(chosen[:12]) if n
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
            warnings.warn(
                "predict(observation) without a state always acts as at step 1: pass the state it "
                "returned, action, state = policy.predict(observation, state)",
                FedLSVIWarning,
                stacklevel=3,
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
            return self.values.act(h, states)
        mask, shape = np.asarray(allowed), (len(states), self.spaces.n_actions)
        if mask.shape != shape or not (mask != 0).any(axis=1).all():
            raise InvalidInput(
                f"allowed has shape {mask.shape}: give booleans of shape {shape} with at least "
                "one allowed action per state",
                code="bad-allowed",
            )
        return self.values.act(h, states, np.ascontiguousarray(mask != 0))


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

    def __str__(self) -> str:
        error = "" if self.standard_error is None else f" ± {self.standard_error:.2g}"
        return f"{self.mean:.4g}{error}"


def worth_of(run: Run, env: Environment, episodes: int = EPISODES) -> dict[str, Worth]:
    """What the learned policy is to be measured by; empty where nothing is known.

    Args:
        run: The run.
        env: Agent 0's environment.
        episodes: To play with each policy, where values are not known.
    """
    if env.recorded:
        return {"behaviour": Worth(env.mean_return)}  # type: ignore[attr-defined]
    if isinstance(env, FiniteMDP):
        return _exact(run, env)
    if run.mean_returns is None:
        return {}
    from fedlsvi.envs.gym.play import evaluate_policy

    policies: dict[str, Policy | str] = {"learned": run.final_policy, "random": "random"}
    if run.deployed is not None:
        policies["exploring"] = run.policy
    found = {}
    for name, policy in policies.items():
        played = evaluate_policy(policy, env, episodes, run.seed, horizon=env.horizon).returns
        error = played.std(ddof=1) / len(played) ** 0.5 if len(played) > 1 else None
        found[name] = Worth(
            float(played.mean()), None if error is None else float(error), len(played)
        )
    return found


def _exact(run: Run, env: FiniteMDP) -> dict[str, Worth]:
    law = env.initial_law(0)
    values = {
        "learned": env.policy_values(run.final_policy.table),
        "optimal": env.optimal_values(),
        "uniform": env.uniform_values(),
    }
    if run.deployed is not None:
        values["exploring"] = env.policy_values(run.policy.table)
    return {name: Worth(float(env.original(law @ v[0]))) for name, v in values.items()}


def affordable(env: Any) -> int:
    """How many episodes a summary may play with each policy: fewer where steps are slow, and 0
    where not even `FEWEST` are quick."""
    if not isinstance(env, GymWorld) or env.step_seconds == float("inf"):
        return EPISODES
    found = int(SECONDS / (3 * env.horizon * env.step_seconds)) if env.step_seconds else EPISODES
    return min(EPISODES, found) if found >= FEWEST else 0
