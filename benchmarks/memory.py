"""A thousand agents for a thousand rounds: does memory grow?"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedlsvi import FedLSVI
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.experiments.measure import Row
from fedlsvi.protocol.records import RoundRecord

PAGE = 4096


def resident() -> float:
    """Megabytes of this process in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20


def main() -> list[Row]:
    """M=1,000, γ=1 (a round per episode), S=50, A=5, d=10, H=5; slope over the last 800 rounds."""
    env = RandomLinearMDP(n_states=50, n_actions=5, dim=10, horizon=5, seed=0)
    sizes: list[float] = []

    def watch(record: RoundRecord) -> None:
        sizes.append(resident())

    learner = FedLSVI(n_agents=1000, gamma=1.0)
    learner.learn(env, episodes=20, progress=False)
    learner.learn(env, episodes=1000, progress=False, observers=[watch])
    slope = float(np.polyfit(np.arange(200, 1000), sizes[200:1000], 1)[0])
    return [
        Row("megabytes per 1,000 rounds, fitted", 1000 * slope, "MB", "flat", 1000 * slope < 5.0),
        Row("  after 200 rounds", sizes[199], "MB"),
        Row("  after 1,000 rounds (a record of each round is kept)", sizes[-1], "MB"),
    ]
