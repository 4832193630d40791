"""Decisions of ten sites per second, beside MABWiser's LinUCB on the same work if it is installed
(`pip install mabwiser`): d = 50, 20 arms, each decision followed by its reward, in batches.

A batch is what arrives between two updates. Both learn after every batch; ours synchronises ten
sites on the way, the other has one model.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from time import process_time

import numpy as np

from fedlsvi.bandits import FedLinUCB
from fedlsvi.experiments.measure import Row

SITES, DIM, ARMS, ALPHA = 10, 50, 20, 0.5
BATCHES = {10: 3_000, 100: 10_000, 1_000: 50_000}
"""Decisions measured, by the size of a batch."""
TURNS = 3
TIMES = 10.0

Step = Callable[[np.ndarray, np.ndarray], None]
"""Decide for contexts (n, d), and learn from θᵀφ of the arms that were taken, θ (K, d)."""


def ours() -> Step:
    """Ten sites in turn."""
    learner = FedLinUCB(SITES, arms=ARMS, alpha=ALPHA)

    def step(x: np.ndarray, theta: np.ndarray) -> None:
        decided = learner.decide(x, site=np.arange(len(x)) % SITES)
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


def per_second(make: Callable[[], Step], batch: int, decisions: int) -> float:
    """Decisions per second of processor time."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(ARMS, DIM))
    step = make()
    step(rng.normal(size=(batch, DIM)) / DIM**0.5, theta)  # compiles
    spent = 0.0
    for _ in range(0, decisions, batch):
        x = rng.normal(size=(batch, DIM)) / DIM**0.5
        began = process_time()
        step(x, theta)
        spent += process_time() - began
    return decisions / spent


def main() -> list[Row]:
    """Median of alternating turns; `wanted` is a ratio in one run."""
    rows, beside = [], find_spec("mabwiser") is not None
    for batch, decisions in BATCHES.items():
        turns = [
            (per_second(ours, batch, decisions),
             per_second(mabwiser, batch, decisions // 10) if beside else np.nan)
            for _ in range(TURNS)
        ]  # fmt: skip
        rows.append(Row(f"batches of {batch:,}: decisions", median(a for a, _ in turns), "/s", ""))
        if beside:
            ratio = median(a / b for a, b in turns)
            rows.append(Row("  times MABWiser", ratio, "×", f">= {TIMES:g}", ratio >= TIMES))
    return rows
