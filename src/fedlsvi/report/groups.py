"""Runs sorted into groups: within one they differ in their seed alone, between them in settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedlsvi.errors import InvalidInput
from fedlsvi.run import Run

SYMBOLS = {"gamma": "γ", "beta": "β", "lam": "λ", "xi": "ξ", "n_agents": "M", "episodes": "T",
           "horizon": "H", "dim": "d"}  # fmt: skip


@dataclass(frozen=True)
class Group:
    """Runs of one algorithm with one set of settings."""

    label: str
    runs: list[Run]

    @property
    def first(self) -> Run:
        """The run that stands for the others where one must."""
        return self.runs[0]

    @property
    def played(self) -> int:
        """Episodes per agent that all of them have."""
        return min(run.played for run in self.runs)

    def regret(self, at: np.ndarray) -> np.ndarray | None:
        """(runs, points) cumulative regret at these indices; None where one has none."""
        curves = [run.regret for run in self.runs]
        return None if any(c is None for c in curves) else np.array([c[at] for c in curves])  # type: ignore[index]

    def returns(self, edges: np.ndarray) -> np.ndarray | None:
        """(runs, windows) mean return of the episodes between edges, from the rounds' means.

        edges: numbers of episodes, rising from 0; a window holds those after its left edge.
        """
        found = []
        for run in self.runs:
            if run.mean_returns is None:
                return None
            earned = np.cumsum(run.mean_returns * np.diff(run.taus))
            total = np.interp(edges, np.array(run.taus) - 1, np.append(0.0, earned))
            found.append(np.diff(total) / np.diff(edges))
        return np.array(found)

    def count(self, what: str, at: np.ndarray) -> np.ndarray:
        """(runs, points) "rounds" or "scalars" so far, known at the end of each record."""
        found = []
        for run in self.runs:
            if what == "rounds":
                totals = np.cumsum([record.rounds for record in run.records])
            else:
                totals = np.array([sum(record.scalars.values()) for record in run.records])
            ended = np.searchsorted([record.last for record in run.records], at + 1, side="right")
            before = 0 if what == "rounds" else run.ledger.scalars["init"]
            found.append(np.concatenate(([before], totals))[ended])
        return np.array(found, np.float64)


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Groups in the order of their first runs, each named by what sets it apart."""
    if not runs:
        raise InvalidInput("there is no run to report: give at least one")
    first = runs[0]
    sets: dict[str, list[Run]] = {}
    for run in runs:
        if run.environment != first.environment:
            raise InvalidInput(
                f"{run.folder or 'a run'} and {first.folder or 'the first'} are of different "
                "environments, so that their numbers cannot be compared: report them one by one"
            )
        same = sets.setdefault(repr((run.algorithm, _choices(run))), [])
        if any(run.seed == other.seed for other in same):
            raise InvalidInput(
                f"seed {run.seed} of {run.algorithm} comes twice "
                f"({run.folder or 'a run'}): give every run once"
            )
        same.append(run)
    members = list(sets.values())
    return [Group(_label(same, members), same) for same in members]


def _choices(run: Run) -> dict[str, Any]:
    """The numbers in force, and what else was asked for."""
    return asdict(run.settings) | asdict(run.parameters)


def _label(same: list[Run], members: list[list[Run]]) -> str:
    """The algorithm's name, and the settings in which it differs from its namesakes."""
    name = same[0].algorithm
    rivals = [_choices(others[0]) for others in members if others[0].algorithm == name]
    own = _choices(same[0])
    words = [
        f"{SYMBOLS.get(key, key)} = {value:.4g}" if isinstance(value, float) else
        f"{SYMBOLS.get(key, key)} = {value}"
        for key, value in own.items()
        if any(rival[key] != value for rival in rivals)
    ]  # fmt: skip
    return ", ".join([name, *words])
