"""Finite states: 10⁸ agent-steps compared with drawing as many uniforms, growth with T, memory."""

from __future__ import annotations

import numpy as np

from fedlsvi import FedLSVI, Run
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.experiments.measure import Row, numpy_uniforms, peak_megabytes, phases, seconds


def main() -> list[Row]:
    """S=50, A=5, d=20, H=10, M=10, γ auto."""
    env = RandomLinearMDP(n_states=50, n_actions=5, dim=20, horizon=10, seed=0)

    def learn(episodes: int) -> Run:
        return FedLSVI(n_agents=10).learn(env, episodes=episodes, seed=0, progress=False)

    learn(100)  # compile
    short, _ = seconds(lambda: learn(100_000), 3)
    memory_short = peak_megabytes()
    yard = numpy_uniforms(10**8)
    long, run = seconds(lambda: learn(1_000_000), 2)
    yard = min(yard, numpy_uniforms(10**8))
    memory = peak_megabytes()
    half = len(run.records) // 2
    sync = [r.seconds["synchronise"] for r in run.records]
    growth = (sum(sync[half:]) / (len(sync) - half)) / (sum(sync[:half]) / half)
    spent = phases(run)
    plain, _ = seconds(lambda: np.random.default_rng(0).random(10**8))  # after memory is measured
    return [
        Row("10^8 agent-steps / rng.random(10**8)", long / plain, "", "<= 3", long <= 3 * plain),
        Row(
            "10^8 agent-steps / NumPy filling a small buffer with 10^8 uniforms",
            long / yard,
            "",
            "<= 3",
            long <= 3 * yard,
        ),
        Row("  seconds: total", long, "s", ""),
        *(Row(f"  seconds: {k}", v, "s", "") for k, v in spent.items()),
        Row("  rounds", len(run.records), "", ""),
        Row("time at T=10^6 / time at T=10^5", long / short, "", "<= 10", long <= 10 * short),
        Row(
            "time per synchronisation, second half / first half",
            growth,
            "",
            "about 1",
            growth < 1.5,
        ),
        Row("peak memory at T=10^6", memory, "MB", "< 1000", memory < 1000),
        Row(
            "  of which added by T=10^5 -> 10^6 (regret curve: 8 B/episode)",
            memory - memory_short,
            "MB",
            "",
        ),
    ]
