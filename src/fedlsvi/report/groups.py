"""Runs sorted into groups: within one they differ in their seed alone, between them in settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fedlsvi.envs.base import plain, units
from fedlsvi.errors import InvalidInput
from fedlsvi.protocol.records import late_return, returns_between
from fedlsvi.report.choices import Choices, choices, job_of
from fedlsvi.run import Run
from fedlsvi.storage.job import ARRAYS, GIVEN
from fedlsvi.storage.run_header import fingerprints, read_header


@dataclass(frozen=True)
class Group:
    """Runs of one algorithm with one set of settings."""

    label: str
    runs: list[Run]
    left_out: list[Run] = field(default_factory=list)
    """Seeds that were interrupted before the others, and have no part in the means."""

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
        """(runs, windows) mean return of the episodes between edges; None where one has none."""
        found = [returns_between(run.records, edges) for run in self.runs]
        return None if any(one is None for one in found) else np.array(found)

    def late_returns(self, t: int) -> list[float]:
        """Each run's mean return over the last tenth of t episodes; empty where one has none."""
        found = [late_return(run.records, t) for run in self.runs]
        return [] if None in found else [float(one) for one in found if one is not None]

    def count(self, what: str, at: np.ndarray) -> np.ndarray:
        """(runs, points) "rounds", "scalars" or, of these, "trajectories" so far, known at the end
        of each record."""
        found = []
        for run in self.runs:
            if what == "rounds":
                totals = np.cumsum([record.rounds for record in run.records])
            elif what == "trajectories":
                sent = [record.scalars for record in run.records]
                totals = np.array([one["up_raw"] + one["down_raw"] for one in sent])
            else:
                totals = np.array([sum(record.scalars.values()) for record in run.records])
            ended = np.searchsorted([record.last for record in run.records], at + 1, side="right")
            before = run.ledger.scalars["init"] if what == "scalars" else 0
            found.append(np.concatenate(([before], totals))[ended])
        return np.array(found, np.float64)

    def counted(self, what: str, t: int) -> list[float]:
        """`count` of each run after t episodes."""
        return [float(value) for value in self.count(what, np.array([t - 1]))[:, 0]]


class _Problem(NamedTuple):
    """What tells environments apart."""

    entries: list[Any]
    """Names and parameters; kinds where there is no name."""
    prints: list[str | None]
    """Fingerprints where there is no name."""
    units: tuple[float, float] | None
    """The reward range."""

    def same(self, other: _Problem) -> bool:
        """Whether nothing that is known of both differs."""
        told = None not in (*self.prints, *other.prints)
        paid = None not in (self.units, other.units)
        return self.entries == other.entries and (
            (not told or self.prints == other.prints) and (not paid or self.units == other.units)
        )


def common(groups: Sequence[Group]) -> int:
    """Episodes per agent that all groups have, at which they are compared."""
    return min(group.played for group in groups)


def alike(groups: Sequence[Group]) -> bool:
    """Whether they all have played equally long."""
    return len({group.played for group in groups}) == 1


def shares(groups: Sequence[Group]) -> tuple[np.ndarray, str]:
    """What regret is divided by, and its name: where groups differ in size, it is each agent's."""
    sizes = np.array([group.first.parameters.n_agents for group in groups])
    if len(set(sizes)) == 1:
        return np.ones(len(groups)), "cumulative regret, all agents"
    return sizes.astype(np.float64), "cumulative regret per agent"


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Groups in the order of their first runs, each named by what sets it apart."""
    if not runs:
        raise InvalidInput("there is no run to report: give at least one")
    first, problem = runs[0], _problem(runs[0])
    members: list[tuple[Choices, list[Run]]] = []
    for run in runs:
        if not problem.same(_problem(run)):
            raise InvalidInput(
                f"{run.folder or 'a run'} and {first.folder or 'the first'} are of different "
                "environments, so that their numbers cannot be compared: report them one by one"
            )
        own = choices(run)
        same = next((others for made, others in members if made == own), None)
        if same is None:
            same = []
            members.append((own, same))
        if any(run.seed == other.seed for other in same):
            raise InvalidInput(
                f"seed {run.seed} of {run.algorithm} comes twice "
                f"({run.folder or 'a run'}): give every run once"
            )
        same.append(run)
    made = [own for own, _ in members]
    return [_group(own.label(made), same) for own, same in members]


def _group(label: str, same: list[Run]) -> Group:
    """Those that got furthest; a mean over seeds takes as many episodes of each."""
    most = max(run.played for run in same)
    behind = [run for run in same if run.played < most]
    return Group(label, [run for run in same if run.played == most], behind)


def _problem(run: Run) -> _Problem:
    entries = job_of(run).env
    named = all(entry["name"] not in (ARRAYS, GIVEN) for entry in entries)
    said = entries if named else [entry["what"] for entry in entries if "what" in entry]
    if run.plan is not None:
        pay = units(run.plan.envs[0].reward_range)
        return _Problem(plain(said), [None] if named else fingerprints(run.plan), pay)
    assert run.folder is not None  # a run without a plan was read from a folder
    header = read_header(run.folder)
    return _Problem(plain(said), [None] if named else header.fingerprints, header.reward_range)
