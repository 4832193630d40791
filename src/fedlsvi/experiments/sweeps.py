"""What studies share: the runs of a sweep, runs arranged by their labels, growth and crossings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedlsvi.core import theory
from fedlsvi.experiments.cost import expected_seconds
from fedlsvi.experiments.runner import Outcome, RunSpec
from fedlsvi.report.intervals import Interval, bootstrap, median
from fedlsvi.report.plotting import Curve

Size = Literal["quick", "full"]

INSTANCES = 300
"""Random problems of the studies are numbered from here, apart from those that set the defaults."""

PAPERS_TRIGGER: dict[str, Any] = {"cap": "off", "rounds": "off", "stationary": False}
"""Settings of studies that measure the paper's claims: no cap, no budget, a model for each step."""

PAPERS_BONUS: dict[str, Any] = {"bonus": "constant"}
"""β_h‖φ‖, for which the theorems are proven; Fed-LSVI's default is less where targets scatter
little."""

SAID_BONUS = 'the paper\'s bonus β‖φ‖ (`bonus="constant"`)'
"""For the pages of these studies."""


@dataclass(frozen=True)
class Point:
    """A run and the study's labels for it."""

    labels: Mapping[str, Any]
    outcome: Outcome


def run_spec(
    algorithm: str,
    env: Mapping[str, Any],
    episodes: int,
    agents: int,
    seed: int,
    labels: Mapping[str, Any],
    size: tuple[int, int] = (5, 8),
    **settings: Any,
) -> RunSpec:
    """One run of a sweep.

    Args:
        algorithm: Its name.
        env: The environment as in a settings file.
        episodes: Episodes per agent.
        agents: How many.
        seed: Of the run.
        labels: What the study calls it; algorithm, seed, T and M are added.
        size: (H, d), to estimate how long it takes.
        **settings: Of the algorithm.
    """
    table = {"algorithm": algorithm, "episodes": episodes, "seed": seed, "n_agents": agents}
    table |= settings | {"env": dict(env)}
    named = {"algorithm": algorithm, "seed": seed, "T": episodes, "M": agents}
    return RunSpec(table, named | dict(labels), expected_seconds(table, *size))


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


def theorem_3(o: Outcome) -> float:
    """The right-hand side of Theorem 3, and at most T: no run has more rounds than episodes."""
    bound = theory.rounds_bound(o.dim, o.horizon, o.n_agents, o.episodes, o.gamma, o.lam)
    return min(bound, float(o.episodes))


def curve(label: str, x: np.ndarray, runs: np.ndarray, **how: Any) -> Curve:
    """Median and interval of (runs, x)."""
    mid, low, high = bootstrap(runs)
    return Curve(label, x, mid, low, high, **how)


def slopes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(points,), (runs, points) → (runs,): least-squares slope of log y on log x, run by run.

    y ∝ x^a gives a exactly. Nothing is known about a slope where y is not positive.
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if np.any(x <= 0.0) or np.any(y <= 0.0):
        raise ValueError("an exponent needs positive numbers")
    u = np.log(x) - np.log(x).mean()
    found: np.ndarray = np.log(y) @ u / (u @ u)
    return found


def exponent(x: np.ndarray, y: np.ndarray) -> Interval:
    """The exponent a of y ∝ x^a: median over the runs, with its interval."""
    return median(slopes(x, y))


def crossing(x: np.ndarray, ours: np.ndarray, theirs: np.ndarray) -> float | None:
    """The first x from which on `ours` stays below `theirs`, straight in logarithms; None: never.

    x[0] where that is so from the start.
    """
    gap = np.log(np.asarray(ours, np.float64)) - np.log(np.asarray(theirs, np.float64))
    if gap[-1] >= 0.0:
        return None
    over = np.flatnonzero(gap >= 0.0)
    if not len(over):
        return float(x[0])
    i = int(over[-1])
    share = gap[i] / (gap[i] - gap[i + 1])
    return float(np.exp(np.log(x[i]) + share * (np.log(x[i + 1]) - np.log(x[i]))))
