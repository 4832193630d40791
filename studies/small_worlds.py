"""Environments of the table whose states have to be numbered first: MiniGrid's rooms, and Catch."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Catch(gymnasium.Env[Any, Any]):
    """bsuite's Catch: a ball falls through 10 rows of 5 columns onto a paddle, worth 1 or −1."""

    ROWS, COLUMNS = 10, 5

    def __init__(self) -> None:
        self.observation_space = spaces.MultiDiscrete([self.ROWS, self.COLUMNS, self.COLUMNS])
        self.action_space = spaces.Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.row, self.paddle = 0, self.COLUMNS // 2
        self.ball = int(self.np_random.integers(self.COLUMNS))
        return self._seen(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.paddle = int(np.clip(self.paddle + int(action) - 1, 0, self.COLUMNS - 1))
        self.row += 1
        over = self.row == self.ROWS - 1
        earned = (1.0 if self.paddle == self.ball else -1.0) if over else 0.0
        return self._seen(), earned, over, False, {}

    def _seen(self) -> np.ndarray:
        return np.array([self.row, self.ball, self.paddle])


class Numbered(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A room of MiniGrid as a product of numbers: where the agent is and how it is turned, and
    where key and door are. Its goal pays 1 less .9 of the time used, as MiniGrid does."""

    def __init__(self, id: str, actions: tuple[int, ...], door: bool = False) -> None:
        import minigrid  # noqa: F401 (it registers its ids)

        super().__init__(gymnasium.make(id, disable_env_checker=True))
        self.unwrapped.gen_obs = dict  # the unused picture takes 97 % of a step
        self.actions, self.door, side = actions, door, self.unwrapped.width
        sizes = [side, side, 4]
        if door:  # row of the door, place of the key (none: carried or used), open
            sizes += [side, side + 1, 2]
        self.observation_space = spaces.MultiDiscrete(sizes)
        self.action_space = spaces.Discrete(len(actions))

    def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        _, info = self.env.reset(**options)
        return self._seen(), info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        _, paid, terminated, truncated, info = self.env.step(self.actions[int(action)])
        return self._seen(), float(paid), terminated, truncated, info

    def _seen(self) -> np.ndarray:
        room = self.unwrapped
        found = [*room.agent_pos, room.agent_dir]
        if self.door:
            things = {
                thing.type: (thing, k // room.width)
                for k, thing in enumerate(room.grid.grid)
                if thing is not None and thing.type in ("door", "key")
            }
            door, row = things["door"]
            key = things["key"][1] if "key" in things else room.width
            found += [row, key, int(door.is_open)]
        return np.array([int(part) for part in found])


def empty(side: int) -> Any:
    """MiniGrid-Empty: turn left, turn right, forward."""
    return Numbered(f"MiniGrid-Empty-{side}x{side}-v0", (0, 1, 2))


def lava_gap(side: int) -> Any:
    """MiniGrid-LavaGap: the gap is somewhere else in every episode, and not observed."""
    return Numbered(f"MiniGrid-LavaGapS{side}-v0", (0, 1, 2))


def door_key(side: int) -> Any:
    """MiniGrid-DoorKey: also pick up and open."""
    return Numbered(f"MiniGrid-DoorKey-{side}x{side}-v0", (0, 1, 2, 3, 5), door=True)


class Unlock(Numbered):
    """MiniGrid-Unlock in one fixed layout: pick up a key and open a door, which pays 1 whenever it
    is done. The state also has whether the key was picked up and whether the door is open."""

    def __init__(self) -> None:
        super().__init__("MiniGrid-Unlock-v0", (0, 1, 2, 3, 5))
        room = self.unwrapped
        self.observation_space = spaces.MultiDiscrete([room.width, room.height, 4, 2, 2])

    def reset(self, *, seed: int | None = None, **options: Any) -> tuple[Any, dict[str, Any]]:
        return super().reset(seed=0, **options)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        seen, paid, terminated, truncated, info = super().step(action)
        return seen, float(paid > 0.0), terminated, truncated, info

    def _seen(self) -> np.ndarray:
        things = [thing for thing in self.unwrapped.grid.grid if thing is not None]
        taken = not any(thing.type == "key" for thing in things)
        opened = any(thing.type == "door" and thing.is_open for thing in things)
        return np.array([*super()._seen(), int(taken), int(opened)])


class Clinic(gymnasium.Env[Any, Any]):
    """A patient whose severity, 0 to 4, one of three treatments lowers; which one depends on it.
    Whoever is at 0 or 1 at the last visit is well and earns 1. The visit is not observed."""

    VISITS, TREATMENTS, WORST = 8, 3, 4

    def __init__(self) -> None:
        self.observation_space = spaces.Discrete(self.WORST + 1)
        self.action_space = spaces.Discrete(self.TREATMENTS)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.severity, self.visit = int(self.np_random.integers(self.WORST + 1)), 0
        return self.severity, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        right = int(action) == self.severity % self.TREATMENTS
        better = self.np_random.random() < (0.9 if right else 0.3)
        self.severity = int(np.clip(self.severity + (-1 if better else 1), 0, self.WORST))
        self.visit += 1
        last = self.visit == self.VISITS
        return self.severity, float(last and self.severity <= 1), last, False, {}
