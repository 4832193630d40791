"""What sets runs of one problem apart: algorithm, numbers in force, settings and features."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fedlsvi.envs.base import plain
from fedlsvi.run import Run
from fedlsvi.storage.files import json_hash
from fedlsvi.storage.job import GIVEN, Job
from fedlsvi.storage.run_header import describe, features_fingerprint, read_header
from fedlsvi.storage.settings_file import Table

SYMBOLS = {"gamma": "γ", "beta": "β", "lam": "λ", "xi": "ξ", "n_agents": "M", "episodes": "T",
           "horizon": "H", "dim": "d"}  # fmt: skip


@dataclass(frozen=True)
class Choices:
    """Equal where runs differ in their seed alone, whatever words the features were given in."""

    algorithm: str
    values: dict[str, Any]
    fingerprint: str
    """Of the feature map."""
    features: Table = field(compare=False)
    """How it was given."""

    def label(self, everybody: Iterable[Choices]) -> str:
        """The algorithm's name, and the settings in which it differs from its namesakes."""
        rivals = [other for other in everybody if other.algorithm == self.algorithm]
        differ = _different(self.values, [rival.values for rival in rivals])
        others = [r.features for r in rivals if r.fingerprint != self.fingerprint]
        return ", ".join([self.algorithm, *differ, *self._features(others)])

    def _features(self, others: Sequence[Table]) -> list[str]:
        """Words that tell its features from others; where words do not, its fingerprint."""
        if not others:
            return []
        named = f"features = {self.features['name']}"
        namesakes = [other for other in others if other["name"] == self.features["name"]]
        if all(_different(self.features, [other]) for other in namesakes):
            words = ", ".join(_different(self.features, namesakes))
            return [f"{named} ({words})" if words else named]
        return [f"{named} {self.fingerprint[:6]}"]


def choices(run: Run) -> Choices:
    """The numbers in force, what else was asked for, and the features."""
    values: dict[str, Any] = plain(asdict(run.settings) | asdict(run.parameters))
    job, fingerprint = _played(run)
    features = job.features or {"name": "own"}
    if features["name"] == GIVEN:
        features = {"name": features.get("what", "an object")}
    told = {key: value for key, value in features.items() if key != "file"}
    return Choices(run.algorithm, values, fingerprint, told)


def in_force(settings: Container[str], parameters: Mapping[str, Any]) -> list[str]:
    """γ, β and λ of an algorithm with these settings, as far as it has them: the others stand at a
    value that means nothing."""
    return [
        f"{SYMBOLS[key]} = {parameters[key]:.4g}"
        for key in ("gamma", "beta", "lam")
        if key in settings or (key == "beta" and parameters[key] > 0.0)
    ]


def job_of(run: Run) -> Job:
    """What was played."""
    if run.plan is not None:
        return describe(run.plan, run.algorithm, run.settings)[0]
    assert run.folder is not None  # a run without a plan was read from a folder
    return read_header(run.folder).job


def _played(run: Run) -> tuple[Job, str]:
    """The job, and the fingerprint of its features; where there is none, that of their
    description."""
    if run.plan is not None:
        return job_of(run), features_fingerprint(run.plan)
    assert run.folder is not None
    header = read_header(run.folder)
    described = {"features": header.job.features}
    return header.job, header.features or json_hash(described)


def _different(own: dict[str, Any], rivals: Sequence[dict[str, Any]]) -> list[str]:
    """What it says otherwise than some rival."""
    return [
        f"{SYMBOLS.get(key, key)} = {value:.4g}" if isinstance(value, float) else
        f"{SYMBOLS.get(key, key)} = {value}"
        for key, value in own.items()
        if any(rival.get(key) != value for rival in rivals)
    ]  # fmt: skip
