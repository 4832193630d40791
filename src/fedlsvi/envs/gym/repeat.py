"""Action repeat: one decision is held for several steps of the simulator, whose rewards add up.

Long horizons are what makes control hard to learn: the model of every step is learned on its own.
Holding an action for k steps makes an episode k times shorter.
"""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium


class Repeat(gymnasium.Wrapper[Any, Any, Any, Any]):  # type: ignore[misc]
    """Takes every action `times` times, or until the episode is over."""

    def __init__(self, env: Any, times: int) -> None:
        super().__init__(env)
        self.times = times

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """The state after the last of the steps, and the sum of their rewards."""
        answer: Any = self.env.step(action)
        for _ in range(self.times - 1):
            if type(answer) is not tuple or len(answer) != 5 or answer[2] or answer[3]:
                break  # over, or for the caller to refuse
            before = answer[1]
            answer = self.env.step(action)
            if type(answer) is tuple and len(answer) == 5:
                answer = (answer[0], _sum(before, answer[1]), *answer[2:])
        return answer  # type: ignore[no-any-return]


def _sum(before: Any, more: Any) -> Any:
    """The sum of two rewards; what is not a number is handed on, to be refused by its name."""
    try:
        return before + more
    except TypeError:
        return more if isinstance(before, int | float) else before


def make_repeated(make: Any, times: int, horizon: int, **more: Any) -> Any:
    """A copy whose episodes have `horizon` decisions."""
    return Repeat(make(horizon * times, **more), times)
