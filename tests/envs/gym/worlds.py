"""Small Gymnasium environments to try the adapter on."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Corridor(gymnasium.Env[Any, Any]):
    """Walk on ℝ² with noise from the environment's own generator; beyond .6 the episode ends."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012 (Gymnasium's own form)

    def __init__(self, ends: bool = True, pay: float = 1.0, render_mode: str | None = None) -> None:
        self.observation_space = spaces.Box(-2.0, 2.0, (2,), np.float64)
        self.action_space = spaces.Discrete(2)
        self.ends, self.pay, self.render_mode = ends, pay, render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-0.5, 0.5, 2)
        return self.x.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        push = np.array([-0.2 if action else 0.3, 0.0])
        self.x = np.clip(self.x + push + self.np_random.normal(0.0, 0.1, 2), -2.0, 2.0)
        over = bool(self.x[0] > 0.6) and self.ends
        return self.x.copy(), self.pay * float(self.x[0] > 0.0), over, False, {}

    def render(self) -> Any:
        return f"x = {self.x[0]:.2f}\n"


class Coin(gymnasium.Env[Any, Any]):
    """Three numbered states and no table; seen as numbers, or as a vector with the number in it."""

    def __init__(self, vector: bool = False, start: int = 0) -> None:
        self.vector = vector
        self.first = start
        self.observation_space: spaces.Space[Any] = (
            spaces.Box(0.0, 2.0, (1,), np.float64) if vector else spaces.Discrete(3, start=start)
        )
        self.action_space = spaces.Discrete(2, start=start)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x = int(self.np_random.integers(3))
        return self._see(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        a = int(action) - self.first
        assert self.action_space.contains(action)
        lucky = self.np_random.random() < (0.8 if a == self.x % 2 else 0.3)
        self.x = (self.x + 1 + int(lucky)) % 3
        return self._see(), float(lucky), False, False, {}

    def _see(self) -> Any:
        return np.array([float(self.x)]) if self.vector else self.x + self.first


class Tiny(gymnasium.Env[Any, Any]):
    """Two states with their table P, whose numbers may begin anywhere."""

    def __init__(self, state: int = 0, action: int = 0) -> None:
        self.observation_space = spaces.Discrete(2, start=state)
        self.action_space = spaces.Discrete(2, start=action)
        x, y, a, b = state, state + 1, action, action + 1
        self.P: dict[Any, Any] = {
            x: {a: [(1.0, x, 0.0, False)], b: [(1.0, y, 1.0, False)]},
            y: {a: [(0.5, x, 0.0, False), (0.5, y, 3.0, True)], b: [(1.0, x, 0.0, False)]},
        }
        self.initial_state_distrib = np.array([1.0, 0.0])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x = int(self.observation_space.start)
        return self.x, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        outcomes = self.P[self.x][int(action)]
        chosen = self.np_random.choice(len(outcomes), p=[p for p, *_ in outcomes])
        _, self.x, reward, over = outcomes[chosen]
        return self.x, reward, over, False, {}


class Blind(gymnasium.Env[Any, Any]):
    """Spaces that have to be refused, or features that have to be given."""

    def __init__(self, observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation, action

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.5, False, False, {}


class Odd(Blind):
    """Shows its space until step 5, and then `seen`; the episode may end there."""

    def __init__(self, space: spaces.Space[Any], seen: Any, ends: bool = False) -> None:
        super().__init__(space, spaces.Discrete(2))
        self.seen, self.ends = seen, ends

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        self.h = 1
        return super().reset(**options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.h += 1
        state, reward, *rest = super().step(action)
        return (self.seen, reward, self.ends, *rest[1:]) if self.h == 5 else (state, reward, *rest)


def walk_features(states: np.ndarray) -> np.ndarray:
    """e_a ⊗ (1, x, y)/4."""
    psi = np.concatenate((np.ones((len(states), 1)), states), axis=1) / 4.0
    phi = np.zeros((len(states), 2, 6))
    phi[:, 0, :3] = phi[:, 1, 3:] = psi
    return phi


def number_features(states: np.ndarray) -> np.ndarray:
    """One-hot over (x, a), from the vector that holds x."""
    x = np.asarray(states)[:, 0].astype(int)
    return np.eye(8)[x[:, None] * 2 + np.arange(2)]
