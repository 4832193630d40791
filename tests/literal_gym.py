"""A Gymnasium environment for the literal reference: stepped one step at a time, ends included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from literal import Ended, State, Transition, World, uniform

RESETS = 16
"""Stream of the seeds with which episodes begin."""


class SteppedWorld(World):
    """An environment that can only be stepped. After its end, numbered observations go on in a
    state of their own, which pays the image of 0; with vectors the episode just is shorter."""

    finite = False

    def __init__(self, env: BlackBox, seed: int, agent: int, key: int | None = None) -> None:
        self.box, self.seed, self.agent = env, seed, agent
        self.key = agent if key is None else key
        self.inner = env.make()

    def first(self, t: int) -> State:
        start = int(uniform(self.seed, self.key, t, 0, RESETS) * 2.0**31)
        return self.inner.reset(seed=start)[0]

    def play(self, t: int, policy: Callable[[int, State], int], H: int) -> list[Transition]:
        low, high = self.box.reward_range
        after, x, path = (0.0 - low) / (high - low), self.first(t), list[Transition]()
        over = False
        for h in range(1, H + 1):
            a = policy(h, x)
            if over:  # only numbered observations come here
                path.append((x, a, after, x))
                continue
            y, pay, over, _, _ = self.inner.step(a)
            if over and self.box.end is not None:
                y = self.box.end
            elif over:
                y = Ended((H - h) * after)
            path.append((x, a, (pay - low) / (high - low), y))
            if over and self.box.end is None:
                break
            x = y
        return path


@dataclass(frozen=True)
class BlackBox:
    """How to make it, the range of its rewards, and the number of the state after its end."""

    make: Callable[[], Any]
    reward_range: tuple[float, float] = (0.0, 1.0)
    end: int | None = None
    world: type[World] = SteppedWorld
