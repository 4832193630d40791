"""A comparison on a Ray cluster of two CPUs and one after the other in this process: same outcomes.

Turns alternate, and each plays every run again. Ray is started before, and a short comparison has
compiled what the runs need, in this process and in both of Ray's.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from fedlsvi.experiments.measure import Row
from fedlsvi.experiments.runner import Cluster, ResultFile, RunSpec, run_all
from fedlsvi.experiments.sweeps import random_linear, run_spec
from fedlsvi.remote.ray.tasks import tasks

ALGORITHMS, SEEDS, EPISODES, AGENTS, TURNS = ("fed-lsvi", "centralised"), 8, 10_000, 8, 3


def cells(episodes: int) -> list[RunSpec]:
    """Runs of about a second each."""
    return [
        run_spec(name, random_linear(seed, 8, 5), episodes, AGENTS, seed, {})
        for seed in range(SEEDS)
        for name in ALGORITHMS
    ]


def played(runs: list[RunSpec], cluster: Cluster | None) -> tuple[float, Any]:
    """Seconds, and the outcomes without theirs."""
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(ResultFile(Path(folder) / "runs.jsonl")) as results,
    ):
        began = perf_counter()
        run_all(runs, results, 1, cluster=cluster)
        spent = perf_counter() - began
    return spent, {key: vars(o) | {"seconds": 0.0} for key, o in results.outcomes.items()}


def main() -> list[Row]:
    """Medians of three turns each."""
    runs = cells(EPISODES)
    here: list[float] = []
    there: list[float] = []
    with tasks() as cluster:
        for place in (None, cluster):
            played(cells(20), place)
        for _ in range(TURNS):
            alone, expected = played(runs, None)
            spread, outcomes = played(runs, cluster)
            assert outcomes == expected
            here.append(alone)
            there.append(spread)
    faster = median(here) / median(there)
    return [
        Row(f"{len(runs)} runs one after the other", median(here), "s"),
        Row(f"on Ray, {cluster[1]} CPUs", median(there), "s"),
        Row("times faster", faster, "", ">= 1.8", faster >= 1.8),
    ]
