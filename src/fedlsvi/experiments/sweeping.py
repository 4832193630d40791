"""What sweeps and analyses share: a cell from a few words, and runs arranged by their labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedlsvi.experiments.cost import expected_seconds
from fedlsvi.experiments.drawing import Curve
from fedlsvi.experiments.runner import Cell, Outcome
from fedlsvi.experiments.statistics import bootstrap

Size = Literal["quick", "full"]

INSTANCES = 300
"""Random problems of the studies are numbered from here, apart from those that set the defaults."""


@dataclass(frozen=True)
class Point:
    """A run and the study's words for it."""

    labels: Mapping[str, Any]
    outcome: Outcome


def cell(
    algorithm: str,
    env: Mapping[str, Any],
    episodes: int,
    agents: int,
    seed: int,
    labels: Mapping[str, Any],
    size: tuple[int, int] = (5, 8),
    **settings: Any,
) -> Cell:
    """One run; `size` is (H, d), for the estimate of its time."""
    table = {"algorithm": algorithm, "episodes": episodes, "seed": seed, "n_agents": agents}
    table |= settings | {"env": dict(env)}
    named = {"algorithm": algorithm, "seed": seed, "T": episodes, "M": agents}
    return Cell(table, named | dict(labels), expected_seconds(table, *size))


def random_linear(instance: int, dim: int = 8, horizon: int = 5) -> dict[str, Any]:
    """The studies' standard problem: 20 states, 4 actions, features on the simplex."""
    return {"name": "random-linear", "seed": INSTANCES + instance, "dim": dim, "horizon": horizon}


def select(points: Iterable[Point], **labels: Any) -> list[Point]:
    """The points that carry these labels."""
    return [p for p in points if all(p.labels.get(k) == v for k, v in labels.items())]


def values(points: Iterable[Point], name: str) -> list[Any]:
    """The values that a label takes, sorted."""
    return sorted({p.labels[name] for p in points})


def matrix(
    points: Sequence[Point], along: str, measure: Callable[[Outcome], float]
) -> tuple[np.ndarray, np.ndarray]:
    """(x,) and (runs, x): one row per seed, one column per value of the label `along`."""
    x, seeds = values(points, along), values(points, "seed")
    at = {(p.labels["seed"], p.labels[along]): measure(p.outcome) for p in points}
    return np.array(x, np.float64), np.array([[at[s, v] for v in x] for s in seeds], np.float64)


def lost(outcome: Outcome) -> float:
    """Group regret; the studies' problems all know it."""
    assert outcome.regret is not None
    return outcome.regret


def curve(label: str, x: np.ndarray, runs: np.ndarray, **how: Any) -> Curve:
    """Median and interval of (runs, x)."""
    mid, low, high = bootstrap(runs)
    return Curve(label, x, mid, low, high, **how)
