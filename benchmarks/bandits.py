"""Decisions of ten sites per second, beside MABWiser's LinUCB on the same work if it is installed
(`pip install mabwiser`): d = 50, 20 arms, each decision followed by its reward, in batches.

A batch is what arrives between two updates; with one thread for matrix products. Both learn after
every batch; ours synchronises ten sites on the way, the other has one model.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from time import process_time

import numpy as np

from benchmarks.memory import resident
from fedlsvi.bandits import FedLinUCB
from fedlsvi.core.blas import one_blas_thread
from fedlsvi.experiments.measure import Row

SITES, DIM, ARMS, ALPHA = 10, 50, 20, 0.5
BATCHES = {1: (20_000, 1_000), 10: (100_000, 10_000), 100: (200_000, 50_000),
           1_000: (1_000_000, 100_000)}  # fmt: skip
"""Decisions measured, ours and theirs, by the size of a batch."""
POOL = 100_000
"""Different contexts."""
TURNS = 3
TIMES = 10.0

Step = Callable[[np.ndarray, np.ndarray], None]
"""Decide for contexts (n, d), and learn from θᵀφ of the arms that were taken, θ (K, d)."""


def ours() -> Step:
    """Ten sites in turn."""
    learner, begun = FedLinUCB(SITES, arms=ARMS, alpha=ALPHA), [0]

    def step(x: np.ndarray, theta: np.ndarray) -> None:
        decided = learner.decide(x, site=(begun[0] + np.arange(len(x))) % SITES)
        begun[0] += len(x)
        learner.reward(decided.tokens, np.einsum("ni,ni->n", theta[decided.actions], x))

    return step


def mabwiser() -> Step:
    """One model."""
    from mabwiser.mab import MAB, LearningPolicy

    bandit = MAB(list(range(ARMS)), LearningPolicy.LinUCB(alpha=ALPHA))
    bandit.fit(list(range(ARMS)), [0.0] * ARMS, np.zeros((ARMS, DIM)))

    def step(x: np.ndarray, theta: np.ndarray) -> None:
        arms = np.atleast_1d(bandit.predict(x))
        bandit.partial_fit(arms, np.einsum("ni,ni->n", theta[arms], x), x)

    return step


def measured(make: Callable[[], Step], batch: int, decisions: int) -> tuple[float, float]:
    """Decisions per second of processor time, and megabytes added in the last nine tenths."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(ARMS, DIM))
    contexts = rng.normal(size=(POOL, DIM)) / DIM**0.5
    step = make()
    step(contexts[:batch], theta)  # compiles
    before, began = 0.0, process_time()
    for first in range(0, decisions, batch):
        if first == decisions // 10:
            before = resident()
        at = first % POOL
        step(contexts[at : at + batch], theta)
    return decisions / (process_time() - began), resident() - before


def main() -> list[Row]:
    """Median of alternating turns; `wanted` is a ratio in one run."""
    rows, beside = [], find_spec("mabwiser") is not None
    with one_blas_thread():
        for batch, (many, few) in BATCHES.items():
            turns = [
                (*measured(ours, batch, many), measured(mabwiser, batch, few)[0] if beside else 1.0)
                for _ in range(TURNS if batch < max(BATCHES) else 1)
            ]
            rate = median(own for own, _, _ in turns)
            rows.append(Row(f"batches of {batch:,}: decisions", rate, "/s", ""))
            if beside:
                ratio = median(own / theirs for own, _, theirs in turns)
                rows.append(Row("  times MABWiser", ratio, "×", f">= {TIMES:g}", ratio >= TIMES))
    added = turns[0][1]
    rows.append(Row(f"megabytes added from {many // 10:,} to {many:,} decisions", added, "MB",
                    "flat", added < 5.0))  # fmt: skip
    return rows
