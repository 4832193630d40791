"""Third-party problems: exact values of learned policies, medians over seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedlsvi import FedLSVI
from fedlsvi.envs import FiniteMDP, as_environment
from fedlsvi.experiments.measure import Row, seconds
from fedlsvi.features import LowRankFeatures

SEEDS = 5


def main(seeds: int = SEEDS) -> list[Row]:
    """FrozenLake, Taxi, CliffWalking and ICU-Sepsis as docs/examples.md describes them."""
    rows = []
    lake = as_environment("FrozenLake-v1", horizon=100)
    best = _start(lake, lake.optimal_values())
    took, found = seconds(lambda: _values(lake, seeds, 20_000, lambda: FedLSVI(8, value_range=1)))
    share = float(np.median(found)) / best
    rows += [
        _at_least("FrozenLake 4×4, 8 agents, 20,000 episodes each: share of V*", share, 0.9),
        Row("  seconds of a run", took / seeds, "s"),
    ]
    taxi = as_environment("Taxi-v4", horizon=20)
    # deterministic moves: one visit tells everything, so λ is tiny and β/√λ is the value range
    found = _values(taxi, seeds, 5_000, lambda: _sharp(7.34, 1e-4, 50.0))
    rows.append(_at_least("Taxi, 8 agents, 5,000 each: way from uniform", _way(taxi, found), 0.9))
    found = _values(taxi, seeds, 20_000, lambda: FedLSVI(8, value_range=7.34, gamma=200.0))
    rows.append(Row("  preset, 20,000 each", _way(taxi, found)))
    cliff = as_environment("CliffWalking-v1", horizon=20)
    found = _values(cliff, seeds, 2_000, lambda: _sharp(20.0, 1e-8, 5.0))
    rows.append(
        _at_least("CliffWalking, 8 agents, 2,000 each: way from uniform", _way(cliff, found), 0.9)
    )
    sepsis = as_environment("Sepsis/ICU-Sepsis-v2", horizon=20)
    phi = LowRankFeatures(16).bind(sepsis)
    for agents, wanted in ((10, 0.78), (1, 0.0)):
        found = _values(sepsis, seeds, 1_000, _sepsis(agents), features=phi)
        what = f"ICU-Sepsis, privileged d = 16, {agents} agents, 1,000 each: survival"
        rows.append(_at_least(what, float(np.median(found)), wanted))
    return rows


def _sharp(value_range: float, lam: float, gamma: float) -> FedLSVI:
    """β/√λ = value_range."""
    beta = value_range * lam**0.5
    return FedLSVI(8, value_range=value_range, lam=lam, beta=beta, gamma=gamma)


def _sepsis(agents: int) -> Callable[[], FedLSVI]:
    return lambda: FedLSVI(agents, value_range=1)


def _values(
    env: FiniteMDP, seeds: int, episodes: int, make: Callable[[], FedLSVI], **options: Any
) -> list[float]:
    """The exact value of the learned policy, seed by seed."""
    found = []
    for seed in range(seeds):
        run = make().learn(env, episodes, seed, progress=False, **options)
        found.append(_start(env, env.policy_values(run.policy.table)))
    return found


def _start(env: FiniteMDP, values: np.ndarray) -> float:
    return float(env.initial_law(0) @ values[0])


def _way(env: FiniteMDP, found: list[float]) -> float:
    """How far the median is from the uniform policy's value to V*."""
    low, high = _start(env, env.uniform_values()), _start(env, env.optimal_values())
    return (float(np.median(found)) - low) / (high - low)


def _at_least(what: str, figure: float, wanted: float) -> Row:
    return Row(what, figure, "", f"≥ {wanted:g}" if wanted else "", figure >= wanted)
