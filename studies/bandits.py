"""`python -m studies.bandits FILE`: what ten sites lose with federated bandits, beside LinUCB on
pooled data and beside each site alone (bandits.md).

FILE keeps every run, so the study can be stopped and resumed. Everything in capitals was fixed
before the first run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedlsvi.bandits import AsyncLinUCB, DisLinUCB, FedLinTS, FedLinUCB, regression

SITES, STEPS, SEEDS, ALPHA = 10, 3_000, range(5), 0.5
"""30,000 decisions in all. α is the same for everybody, since all use the same width."""
TUNING, SHARES = range(100, 103), {"t/40": 0.025, "t/20": 0.05, "t/10": 0.1, "t/5": 0.2}
"""γ(t) of the second table, on other seeds."""

LEARNERS: dict[str, Callable[..., FedLinUCB]] = {
    "pooled": lambda **own: FedLinUCB(SITES, alpha=ALPHA, threshold=1.0, **own),
    "fed-linucb": lambda **own: FedLinUCB(SITES, alpha=ALPHA, **own),
    "dis-linucb": lambda **own: DisLinUCB(SITES, alpha=ALPHA, **own),
    "async-linucb": lambda **own: AsyncLinUCB(SITES, alpha=ALPHA, **own),
    "fed-lints": lambda **own: FedLinTS(SITES, alpha=ALPHA / 2, samples=1, **own),
    "alone": lambda **own: FedLinUCB(SITES, alpha=ALPHA, threshold=1e300, fresh=True, **own),
}
"""Pooled LinUCB sends every reward at once. Alone, no trigger ever fires, and a site knows its own
rewards only. Thompson sampling draws from the posterior, whose width is half of a confidence
bound's in practice."""
CANDIDATES = ("pooled", *SHARES)


class Problem(NamedTuple):
    """Contexts of one decision at each site, and what the arms earn there on average."""

    contexts: np.ndarray  # (M, d), or (M, K, d)
    worth: np.ndarray  # (M, K)
    noise: float


def digits(seed: int) -> Iterator[Problem]:
    """Ten classes as arms: 1 for the right one (scikit-learn's handwritten digits)."""
    from sklearn.datasets import load_digits

    data, target = load_digits(return_X_y=True)
    return classes(data, target, seed)


def tumours(seed: int) -> Iterator[Problem]:
    """Two classes as arms (scikit-learn's breast cancer data), with an intercept."""
    from sklearn.datasets import load_breast_cancer

    data, target = load_breast_cancer(return_X_y=True)
    scaled = (data - data.mean(axis=0)) / data.std(axis=0)
    return classes(np.hstack([scaled, np.ones((len(data), 1))]), target, seed)


def classes(data: np.ndarray, target: np.ndarray, seed: int) -> Iterator[Problem]:
    """Classification as a bandit: rows of norm 1 as contexts, 1 for the right class."""
    rows = data / np.linalg.norm(data, axis=1, keepdims=True)
    rng, worth = np.random.default_rng(seed), np.eye(int(target.max()) + 1)
    while True:
        at = rng.integers(len(rows), size=SITES)
        yield Problem(rows[at], worth[target[at]], 0.0)


def disjoint(seed: int) -> Iterator[Problem]:
    """Eight arms, each linear in ten features of norm 1."""
    rng = np.random.default_rng(seed)
    theta = unit(rng, 8, 10)
    while True:
        x = unit(rng, SITES, 10)
        yield Problem(x, 0.5 + 0.5 * x @ theta.T, 0.1)


def shared(seed: int) -> Iterator[Problem]:
    """Twenty arms with 15 features each, and one regression for all."""
    rng = np.random.default_rng(seed)
    theta = unit(rng, 1, 15)[0]
    while True:
        x = unit(rng, SITES * 20, 15).reshape(SITES, 20, 15)
        yield Problem(x, 0.5 + 0.5 * x @ theta, 0.1)


PROBLEMS = {
    "digits": (digits, 10),
    "tumours": (tumours, 2),
    "disjoint": (disjoint, 8),
    "shared": (shared, 20),
}


def unit(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """(n, d) rows of norm 1."""
    rows = rng.normal(size=(n, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def played(problem: str, learner: str, seed: int, steps: int = STEPS) -> dict[str, Any]:
    """Regret of all sites, synchronisations and scalars."""
    make, arms = PROBLEMS[problem]
    bandit = LEARNERS["fed-linucb" if learner in SHARES else learner](arms=arms, seed=seed)
    sites, rng = np.arange(SITES), np.random.default_rng([seed, 1])
    regret = 0.0
    for _, here in zip(range(steps), make(seed), strict=False):
        decided = bandit.decide(here.contexts, site=sites)
        worth = here.worth[sites, decided.actions]
        regret += float((here.worth.max(axis=1) - worth).sum())
        rewards = worth + here.noise * rng.normal(size=SITES)
        bandit.reward(decided.tokens, rewards)
    scalars = sum(bandit.ledger_.scalars.values())
    return {"regret": regret, "rounds": bandit.rounds_, "scalars": scalars}


@contextmanager
def growing(learner: str) -> Iterator[None]:
    """γ(t) as the name of a candidate says: it is no setting, only γ itself is."""
    usual = regression.SHARE
    regression.SHARE = SHARES.get(learner, usual)
    try:
        yield
    finally:
        regression.SHARE = usual


def table(
    runs: dict[tuple[str, str, int], dict[str, Any]], learners: Iterable[str], seeds: range
) -> Iterator[str]:
    """Means over seeds; regret and scalars also as a share of the pooled ones."""
    yield "| problem | learner | regret | ÷ pooled | rounds | scalars | ÷ pooled |"
    yield "|---|---|---|---|---|---|---|"
    for problem in PROBLEMS:
        for learner in learners:
            mean, base = (
                {key: np.mean([runs[problem, who, seed][key] for seed in seeds]) for key in COLUMNS}
                for who in (learner, "pooled")
            )
            ratio = [mean[key] / base[key] for key in ("regret", "scalars")]
            yield (
                f"| {problem} | {learner} | {mean['regret']:,.0f} | {ratio[0]:.2f} | "
                f"{mean['rounds']:,.0f} | {mean['scalars']:,.0f} | {ratio[1]:.3f} |"
            )


COLUMNS = ("regret", "rounds", "scalars")


def main(file: str) -> None:
    """Play what is missing and print both tables."""
    kept = Path(file)
    lines = kept.read_text().splitlines() if kept.exists() else []
    runs = {tuple(own.pop("run")): own for own in map(json.loads, lines)}
    with kept.open("a") as log:
        for key in [
            *product(PROBLEMS, LEARNERS, SEEDS), *product(PROBLEMS, CANDIDATES, TUNING)
        ]:  # fmt: skip
            if key not in runs:
                with growing(key[1]):
                    runs[key] = played(*key)
                log.write(json.dumps({"run": key, **runs[key]}) + "\n")
                log.flush()
    for learners, seeds in ((LEARNERS, SEEDS), (CANDIDATES, TUNING)):
        print("\n".join(table(runs, learners, seeds)), end="\n\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
