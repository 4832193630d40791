"""Several copies of a Gymnasium environment, one episode in each; imports Gymnasium."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, flatten
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from fedlsvi.envs.gym_world import GymWorld
from fedlsvi.errors import InvalidEnvironment


class Episodes(SyncVectorEnv):  # type: ignore[misc]
    """A `SyncVectorEnv` that plays one episode per copy, in step, and lets finished copies rest.

    Gymnasium's own vector steps every copy until the last one has ended, or resets a copy by itself
    and without a seed. Here `begin` resets the first copies with given seeds, and `advance` steps
    only those that are asked for.
    """

    def __init__(self, world: GymWorld, copies: int) -> None:
        super().__init__([world.make] * copies, copy=False, autoreset_mode=AutoresetMode.DISABLED)
        self.world = world
        low, high = world.reward_range
        self._low, self._span = low, high - low
        space = self.single_observation_space
        self._discrete = isinstance(space, Discrete)
        self._plain = self._discrete or (isinstance(space, Box) and len(space.shape) == 1)

    def begin(self, seeds: np.ndarray) -> np.ndarray:
        """Start an episode in each of the first len(seeds) copies; their first states."""
        found = [
            env.reset(seed=seed)[0] for env, seed in zip(self.envs, seeds.tolist(), strict=False)
        ]
        return self._states(found)

    def advance(
        self, rows: np.ndarray, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """One step in the copies `rows`: states, raw rewards, who terminated, who was truncated."""
        n = len(rows)
        found: list[Any] = [None] * n
        rewards = np.empty(n)
        terminated, truncated = np.empty(n, bool), np.empty(n, bool)
        envs = self.envs
        chosen = (actions + self.world.first_action).astype(np.int64)
        for k, row in enumerate(rows.tolist()):
            found[k], rewards[k], terminated[k], truncated[k], _ = envs[row].step(chosen[k])
        return self._states(found), rewards, terminated, truncated

    def _states(self, found: list[Any]) -> np.ndarray:
        if self._discrete:
            return np.array(found, np.int64) - self.world.first_observation
        if not self._plain:
            found = [flatten(self.single_observation_space, one) for one in found]
        return np.array(found, np.float64)

    def map_rewards(self, raw: np.ndarray, where: Any) -> np.ndarray:
        """Rewards in [0, 1]; `where(k)` says which episode and step reward k belongs to."""
        mapped = (raw - self._low) / self._span
        bad = ~((mapped >= -1e-9) & (mapped <= 1.0 + 1e-9))
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            low, high = self.world.reward_range
            raise InvalidEnvironment(
                f"{self.world.name} paid {raw[k]:g} in {where(k)}, outside reward_range = "
                f"({low:g}, {high:g}): give reward_range=(low, high) that holds every reward"
            )
        np.clip(mapped, 0.0, 1.0, out=mapped)
        return mapped
