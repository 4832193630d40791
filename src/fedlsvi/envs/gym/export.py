"""Gymnasium out: an environment of this package behind Gymnasium's interface."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from fedlsvi.envs.base import Environment
from fedlsvi.envs.continuous import ContinuousMDP
from fedlsvi.envs.continuous_linear import ContinuousLinearMDP
from fedlsvi.envs.finite import FiniteMDP
from fedlsvi.errors import InvalidEnvironment


class MDPEnv(gymnasium.Env[Any, Any]):  # type: ignore[misc]
    """One agent's episodes: `gymnasium.make("fedlsvi/RiverSwim-v0", n_states=8)`.

    An episode is truncated after H steps; where the last state is the one after the end, it is
    terminated instead of showing that. Observations are state numbers, or vectors of float64;
    rewards are in the environment's own units, `reward_range`.

    Args:
        env: An environment of this package; or leave it out and give `name`.
        name: A registered name, whose parameters follow.
        agent: Whose first state and, where agents differ, whose environment it is.
        render_mode: "ansi" renders a line of text.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 (Gymnasium's own form)

    def __init__(
        self,
        env: Environment | None = None,
        *,
        name: str | None = None,
        agent: int = 0,
        render_mode: str | None = None,
        **parameters: Any,
    ) -> None:
        if env is None:
            from fedlsvi.envs import registry

            if name is None:
                raise InvalidEnvironment(
                    "give an environment, or the name of a registered one", code="bad-env"
                )
            if "agent" in registry.entry(name).parameters():
                parameters["agent"] = agent
            env = registry.make(name, **parameters)
        self.env, self.agent, self.render_mode = env, agent, render_mode
        self.reward_range = env.reward_range
        self.action_space = spaces.Discrete(env.n_actions)
        self.observation_space: spaces.Space[Any]
        if isinstance(env, FiniteMDP):
            self.observation_space = spaces.Discrete(env.n_states - env.after_end)
        elif isinstance(env, ContinuousMDP):
            low, high = (0.0, 1.0) if isinstance(env, ContinuousLinearMDP) else (-np.inf, np.inf)
            self.observation_space = spaces.Box(low, high, (env.state_dim,), np.float64)
        else:
            raise InvalidEnvironment(
                f"{env.name} is already a Gymnasium environment", code="bad-env"
            )
        self.h = 0
        self.state: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        u = self.np_random.random(self.env.draws_at_reset)
        if isinstance(self.env, FiniteMDP):
            self.state = self.env.first_state(self.agent, float(u[0]))
        else:
            assert isinstance(self.env, ContinuousMDP)
            self.state = self.env.reset(u[None], np.array([self.agent]))[0]
        self.h = 1
        return self.state, self._info()

    def _info(self) -> dict[str, Any]:
        """The step, and which actions are allowed where not all are."""
        env, info = self.env, {"step": self.h}
        if env.allowed is None or self.h > env.horizon:
            return info
        if isinstance(env, FiniteMDP):
            mask = env.allowed[(self.h - 1) % len(env.allowed), self.state]
        else:
            mask = env.allowed(self.h, self.state[None])[0]
        return info | {"action_mask": mask.astype(np.int8)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        env, h = self.env, self.h
        if not 1 <= h <= env.horizon:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset() first")
        if not self.action_space.contains(action):
            raise gymnasium.error.InvalidAction(
                f"action is {action!r}: give a whole number from 0 to {env.n_actions - 1}"
            )
        u, over = self.np_random.random(env.draws_per_step), False
        if isinstance(env, FiniteMDP):
            reward, to = env.step(h, self.state, int(action), float(u[0]))
            over = env.after_end and to == env.n_states - 1
            self.state = self.state if over else to
        else:
            assert isinstance(env, ContinuousMDP)
            rewards, following = env.step(h, self.state[None], np.array([int(action)]), u[None])
            reward, self.state = float(rewards[0]), following[0]
        self.h = env.horizon + 1 if over else h + 1
        low, high = self.reward_range
        paid = low + (high - low) * reward
        return self.state, paid, over, not over and self.h > env.horizon, self._info()

    def render(self) -> Any:
        """A line of text where the render mode is "ansi"."""
        if self.render_mode != "ansi":
            return None
        horizon = self.env.horizon
        when = f"step {self.h} of {horizon}" if self.h <= horizon else "the end"
        return f"{self.env.name}: {when}, state {self.state}\n"
