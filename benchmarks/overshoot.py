"""Environments that cannot be rolled back: what `overshoot="keep"` costs in regret and rounds."""

from __future__ import annotations

import numpy as np

from fedlsvi import FedLSVI, Run
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.experiments.measure import Row

SEEDS = range(10)


def main(episodes: int = 20_000) -> list[Row]:
    """Ten random linear MDPs (S=20, A=4, d=8, H=5), M=8, γ auto; paired by seed.

    With "keep" the episodes that agents played between the first signal and the moment they heard
    of it stay in the statistics; here that is the rest of the window that the server asked for.
    """
    pairs = []
    for seed in SEEDS:
        env = RandomLinearMDP(n_states=20, n_actions=4, dim=8, horizon=5, seed=seed)
        pairs.append((_learn(env, episodes, seed, "cut"), _learn(env, episodes, seed, "keep")))
    ratio = np.array([_final(keep) / _final(cut) for cut, keep in pairs])
    rounds = np.array([keep.rounds / cut.rounds for cut, keep in pairs])
    kept = np.array([sum(r.overshoot for r in keep.records) for _, keep in pairs]) / episodes
    error = ratio.std(ddof=1) / np.sqrt(len(ratio))
    return [
        Row("regret with keep / with cut, mean of 10 seeds", float(ratio.mean()), "", ""),
        Row("  standard error", float(error), "", ""),
        Row("  largest", float(ratio.max()), "", ""),
        Row("rounds with keep / with cut", float(rounds.mean()), "", ""),
        Row("share of episodes beyond a signal", float(kept.mean()), "", ""),
    ]


def _learn(env: RandomLinearMDP, episodes: int, seed: int, overshoot: str) -> Run:
    learner = FedLSVI(n_agents=8, overshoot=overshoot)  # type: ignore[arg-type]
    return learner.learn(env, episodes=episodes, seed=seed, progress=False)


def _final(run: Run) -> float:
    assert run.regret is not None
    return float(run.regret[-1])
