"""Runs sorted into groups: within one they differ in their seed alone, between them in settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fedlsvi.config import SYMBOLS
from fedlsvi.envs.base import plain, units
from fedlsvi.errors import InvalidInput
from fedlsvi.protocol.records import late_return, returns_between
from fedlsvi.run import Run
from fedlsvi.storage.files import json_hash
from fedlsvi.storage.run_header import describe, features_fingerprint, fingerprints, read_header
from fedlsvi.storage.settings_file import ARRAYS, GIVEN, Job, Table


@dataclass(frozen=True)
class Group:
    """Runs of one algorithm with one set of settings.

    Attributes:
        label: What distinguishes it from the other groups.
        runs: The runs that got furthest.
        left_out: Seeds that were interrupted before the others, which the medians leave out.
    """

    label: str
    runs: list[Run]
    left_out: list[Run] = field(default_factory=list)

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

    def regrets(self, t: int | None = None) -> list[float]:
        """Regret of each run after t (default: all) episodes; empty where one has none."""
        curves = self.regret(np.array([(t or self.played) - 1]))
        return [] if curves is None else [float(value) for value in curves[:, 0]]

    def returns(self, edges: np.ndarray) -> np.ndarray | None:
        """(runs, windows) mean return of the episodes between edges; None where one has none."""
        found = [returns_between(run.records, edges) for run in self.runs]
        return None if any(one is None for one in found) else np.array(found)

    def late_returns(self, t: int) -> list[float]:
        """Each run's mean return over the last tenth of t episodes; empty where one has none."""
        found = [late_return(run.records, t) for run in self.runs]
        return [] if None in found else [float(one) for one in found if one is not None]

    def count(self, what: str, at: np.ndarray) -> np.ndarray:
        """(runs, points) counts so far, known at the end of each record.

        Args:
            what: "rounds", "scalars" or, of these, "trajectories".
            at: (points,) indices of episodes.
        """
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


@dataclass(frozen=True)
class Configuration:
    """What a run was configured with; equal where runs differ in their seed alone.

    Attributes:
        algorithm: Its name.
        values: Settings and the parameters in force.
        fingerprint: Of the feature map.
        features: How the feature map was given; not compared, because names may differ.
    """

    algorithm: str
    values: dict[str, Any]
    fingerprint: str
    features: Table = field(compare=False)

    @classmethod
    def of(cls, run: Run) -> Configuration:
        """The configuration of a run."""
        values: dict[str, Any] = plain(asdict(run.settings) | asdict(run.parameters))
        features = job_of(run).features or {"name": "own"}
        if features["name"] == GIVEN:
            features = {"name": features.get("what", "an object")}
        named = {key: value for key, value in features.items() if key != "file"}
        return cls(run.algorithm, values, _features_fingerprint(run), named)

    def label(self, everybody: Iterable[Configuration]) -> str:
        """The algorithm's name, and the settings in which it differs from its namesakes."""
        rivals = [other for other in everybody if other.algorithm == self.algorithm]
        differ = _differences(self.values, [rival.values for rival in rivals])
        others = [r.features for r in rivals if r.fingerprint != self.fingerprint]
        return ", ".join([self.algorithm, *differ, *self._features_label(others)])

    def _features_label(self, others: Sequence[Table]) -> list[str]:
        """Name and parameters that distinguish its features; where they do not, a fingerprint."""
        if not others:
            return []
        named = f"features = {self.features['name']}"
        namesakes = [other for other in others if other["name"] == self.features["name"]]
        if all(_differences(self.features, [other]) for other in namesakes):
            words = ", ".join(_differences(self.features, namesakes))
            return [f"{named} ({words})" if words else named]
        return [f"{named} {self.fingerprint[:6]}"]


def job_of(run: Run) -> Job:
    """What was played."""
    if run.plan is not None:
        return describe(run.plan, run.algorithm, run.settings)[0]
    assert run.folder is not None  # a run without a plan was read from a folder
    return read_header(run.folder).job


def _features_fingerprint(run: Run) -> str:
    """The fingerprint of the feature map; where there is none, that of its description."""
    if run.plan is not None:
        return features_fingerprint(run.plan)
    assert run.folder is not None
    header = read_header(run.folder)
    return header.features or json_hash({"features": header.job.features})


def _differences(own: dict[str, Any], rivals: Sequence[dict[str, Any]]) -> list[str]:
    """Its values that some rival does not share."""
    return [
        f"{SYMBOLS.get(key, key)} = {f'{value:.4g}' if isinstance(value, float) else value}"
        for key, value in own.items()
        if any(rival.get(key) != value for rival in rivals)
    ]


class _Problem(NamedTuple):
    """What distinguishes environments."""

    entries: list[Any]  # names and parameters; kinds where there is no name
    prints: list[str | None]  # fingerprints where there is no name
    units: tuple[float, float] | None  # the reward range

    def same(self, other: _Problem) -> bool:
        """Whether nothing that is known of both differs."""
        printed = None not in (*self.prints, *other.prints)
        paid = None not in (self.units, other.units)
        return self.entries == other.entries and (
            (not printed or self.prints == other.prints) and (not paid or self.units == other.units)
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
    """Groups in the order of their first runs, each named by what distinguishes it.

    Raises:
        InvalidInput: No run, runs of different environments, or one run twice.
    """
    if not runs:
        raise InvalidInput("there is no run to report: give at least one", code="no-runs")
    first, problem = runs[0], _problem(runs[0])
    members: list[tuple[Configuration, list[Run]]] = []
    for run in runs:
        if not problem.same(_problem(run)):
            raise InvalidInput(
                f"{run.folder or 'a run'} and {first.folder or 'the first'} used different "
                "environments and cannot be compared: report them one by one",
                code="different-environments",
            )
        own = Configuration.of(run)
        same = next((others for made, others in members if made == own), None)
        if same is None:
            same = []
            members.append((own, same))
        if any(run.seed == other.seed for other in same):
            raise InvalidInput(
                f"seed {run.seed} of {run.algorithm} is given twice "
                f"({run.folder or 'a run'}): give every run once",
                code="duplicate-run",
            )
        same.append(run)
    made = [own for own, _ in members]
    return [_group(own.label(made), same) for own, same in members]


def _group(label: str, same: list[Run]) -> Group:
    """Those that got furthest: a median over seeds takes as many episodes of each."""
    most = max(run.played for run in same)
    behind = [run for run in same if run.played < most]
    return Group(label, [run for run in same if run.played == most], behind)


def _problem(run: Run) -> _Problem:
    entries = job_of(run).env
    named = all(entry["name"] not in (ARRAYS, GIVEN) for entry in entries)
    kinds = entries if named else [entry["what"] for entry in entries if "what" in entry]
    if run.plan is not None:
        pay = units(run.plan.envs[0].reward_range)
        return _Problem(plain(kinds), [None] if named else fingerprints(run.plan), pay)
    assert run.folder is not None  # a run without a plan was read from a folder
    header = read_header(run.folder)
    return _Problem(plain(kinds), [None] if named else header.fingerprints, header.reward_range)
