"""A clinical table as episodes, one row and one window at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedlsvi.logs.recipe import Recipe, Variable

Row = dict[str, Any]


def _taken(own: Variable, values: list[float]) -> float:
    return {
        "mean": np.mean, "median": np.median, "max": max, "min": min, "sum": sum,
        "first": lambda v: v[0], "last": lambda v: v[-1],
    }[own.take](values)  # type: ignore[operator, no-any-return]  # fmt: skip


def _in_window(own: Variable, rows: list[Row], hours: float, k: int, state: bool) -> float | None:
    """The value in force in window k of a stay that begins at hour 0."""
    at = [(row["t"], row[own.name]) for row in rows if row[own.name] is not None]
    here = [(t, v) for t, v in at if k * hours <= t < (k + 1) * hours]
    before = [v for t, v in at if t < k * hours]
    value = _taken(own, [v for _, v in here]) if here else None
    if value is None and before and (state or own.hold):
        value = before[-1]
    elif value is not None and own.hold and own.take == "max" and before and here[0][0] > k * hours:
        value = max(value, before[-1])
    if value is None:
        value = own.missing if state else own.missing or 0.0
    return value


def literal_episodes(recipe: Recipe, stays: dict[str, tuple[float, list[Row]]]) -> list[Row]:
    """The log of stays: name → (reward, rows sorted by hours since the start)."""
    found = []
    for name, (reward, rows) in stays.items():
        last = min(recipe.steps, math.floor(rows[-1]["t"] / recipe.hours))
        for j in range(1, last + 1):
            state = action = 0
            for own in recipe.states:
                value = _in_window(own, rows, recipe.hours, j - 1, True)
                assert own.edges is not None
                assert value is not None
                state = state * (len(own.edges) + 1) + sum(value >= edge for edge in own.edges)
            for own in recipe.actions:
                value = _in_window(own, rows, recipe.hours, j, False)
                assert own.edges is not None
                assert value is not None
                action = action * (len(own.edges) + 1) + sum(value >= edge for edge in own.edges)
            found.append({"episode": name, "step": j, "observation": state, "action": action,
                          "reward": reward * (j == last), "terminated": j == last})  # fmt: skip
    return found
