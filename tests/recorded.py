"""Logs of a random behaviour, as `data=` takes them and as the literal reference does."""

from __future__ import annotations

from typing import Any

import numpy as np

from literal import Allowed, Ended, Transition, worlds

OTHER = 10_001
"""Seed of the episodes in logs, so that none of them is played again."""


def recorded(
    envs: Any,
    episodes: list[int],
    H: int,
    A: int,
    span: tuple[float, float] = (0.0, 1.0),
    allowed: Allowed | None = None,
) -> tuple[list[dict[str, Any] | None], list[list[list[Transition]]]]:
    """Columns for each agent, None for one with no episodes, and transitions [agent][h − 1].

    Actions are drawn from those that are allowed. One episode in four is ended early. The others
    stop with step H, or where the world itself ends.
    """
    low, high = span
    after, rng = (0.0 - low) / (high - low), np.random.default_rng(3)
    logs: list[dict[str, Any] | None] = []

    def behaviour(h: int, x: Any) -> int:
        which = range(A) if allowed is None else allowed(h, x)
        return which[int(rng.integers(len(which)))]

    steps: list[list[list[Transition]]] = []
    for world, n in zip(worlds(envs, len(episodes), OTHER), episodes, strict=True):
        rows, own = list[tuple[Any, ...]](), list[list[Transition]]([] for _ in range(H))
        for t in range(1, n + 1):
            path = world.play(t, behaviour, H)
            cut = int(rng.integers(1, H + 1)) if rng.random() < 0.25 else H
            absorbed = getattr(getattr(world, "box", None), "end", None)
            for h, (x, a, r, y) in enumerate(path[:cut], start=1):
                if absorbed is not None and x == absorbed:  # a log has nothing after the end
                    break
                over = isinstance(y, Ended) or (h == cut and cut < H)
                over = over or (absorbed is not None and y == absorbed)
                rows.append((t, h, x, a, low + (high - low) * r, over, x if over else y))
                own[h - 1].append((x, a, r, Ended(0.0, after) if over else y))
        names = ("episode", "step", "observation", "action", "reward", "terminated")
        made: dict[str, Any] = {
            name: np.array([row[i] for row in rows])
            for i, name in enumerate((*names, "next_observation"))
        }
        logs.append(made if rows else None)
        steps.append(own)
    return logs, steps
