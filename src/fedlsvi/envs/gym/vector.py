"""Several copies of a Gymnasium environment, one episode in each; imports Gymnasium."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, flatten
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from fedlsvi.envs.gym.checks import check_answer
from fedlsvi.envs.gym.world import GymWorld, Where
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
        self._shape = () if self._discrete else (world.state_dim,)
        self._plain = self._discrete or (isinstance(space, Box) and len(space.shape) == 1)

    def begin(self, seeds: np.ndarray, where: Where) -> np.ndarray:
        """Start an episode in each of the first len(seeds) copies; their first states."""
        found = [
            env.reset(seed=seed)[0] for env, seed in zip(self.envs, seeds.tolist(), strict=False)
        ]
        return self._states(found, where)

    def advance(
        self, rows: np.ndarray, actions: np.ndarray, where: Where
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """One step in the copies `rows`: the states of those that did not terminate, and of all
        of them raw rewards, who terminated and who was truncated."""
        n = len(rows)
        found: list[Any] = [None] * n
        rewards = np.empty(n)
        terminated, truncated = np.empty(n, bool), np.empty(n, bool)
        envs = self.envs
        chosen = (actions + self.world.first_action).astype(np.int64)
        for k, row in enumerate(rows.tolist()):
            answer = envs[row].step(chosen[k])
            try:
                found[k], rewards[k], terminated[k], truncated[k], _ = answer
            except (TypeError, ValueError):
                check_answer(self.world.name, answer)
                raise
        if not terminated.any():
            return self._states(found, where), rewards, terminated, truncated
        on = np.flatnonzero(~terminated).tolist()  # nobody looks at what lies behind an end
        states = self._states([found[k] for k in on], lambda k: where(on[k]))
        return states, rewards, terminated, truncated

    def _states(self, found: list[Any], where: Where) -> np.ndarray:
        """Observations as states; one that is none of its space is refused."""
        if not found:
            return np.empty((0, *self._shape))
        states = self._read(found)
        if states is None:
            k = next((k for k, one in enumerate(found) if self._read([one]) is None), 0)
            raise InvalidEnvironment(
                f"{self.world.name} observed {found[k]!r} in {where(k)}, but its observation_space "
                f"is {self.single_observation_space}: give observations of that space, all finite"
            )
        return states

    def _read(self, found: list[Any]) -> np.ndarray | None:
        """States (n,) from 0, or (n, s); None where one of them is not finite or not of the space.

        Vectors may lie outside their box: maps on a box count that as its border.
        """
        try:
            if self._discrete:
                states = _whole(np.array(found)) - self.world.first_observation
                sound = (states >= 0) & (states < self.world.n_states - 1)
            else:
                if not self._plain:
                    found = [flatten(self.single_observation_space, one) for one in found]
                states = np.array(found, np.float64)
                sound = np.isfinite(states)
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError):
            return None
        return states if states.shape == (len(found), *self._shape) and sound.all() else None

    def map_rewards(self, raw: np.ndarray, where: Where) -> np.ndarray:
        """Rewards in [0, 1]; `where(k)` says which episode and step reward k belongs to."""
        mapped = (raw - self._low) / self._span
        bad = ~((mapped >= -1e-9) & (mapped <= 1.0 + 1e-9))
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            low, high = self.world.reward_range
            raise InvalidEnvironment(
                f"{self.world.name} paid {raw[k]:g} in {where(k)}, outside reward_range = "
                f"({low:g}, {high:g})",
                code="reward-out-of-range",
                hint="give reward_range=(low, high) that contains every reward",
            )
        np.clip(mapped, 0.0, 1.0, out=mapped)
        return mapped


def _whole(seen: np.ndarray) -> np.ndarray:
    """Whole numbers as integers; others raise ValueError."""
    if seen.dtype.kind in "iub":
        return seen.astype(np.int64)
    with np.errstate(invalid="ignore"):
        numbers: np.ndarray = seen.astype(np.int64)
    if not (numbers == seen).all():
        raise ValueError
    return numbers
