"""`fedlsvi bench`: how fast is this installation? Small versions of the repository's benchmarks.

Every figure is a ratio against NumPy in the same run, so that it can be compared across machines.
"""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits

from fedlsvi.envs import ContinuousLinearMDP, RandomLinearMDP
from fedlsvi.experiments.measure import Row, numpy_uniforms, phases, seconds, table
from fedlsvi.learner import FedLSVI, unattended


def finite(episodes: int = 100_000) -> list[Row]:
    """S=50, A=5, d=20, H=10, M=10: agent-steps against as many NumPy uniforms."""
    env = RandomLinearMDP(n_states=50, n_actions=5, dim=20, horizon=10, seed=0)
    learner = FedLSVI(n_agents=10)
    learner.learn(env, 100, progress=False)  # compile
    spent, run = seconds(lambda: learner.learn(env, episodes, progress=False), 2)
    steps = 10 * episodes * env.horizon
    return [
        Row(
            f"finite: {steps:.0e} agent-steps / NumPy drawing as many",
            spent / numpy_uniforms(steps),
        ),
        Row("  million agent-steps per second", steps / spent / 1e6),
        Row("  milliseconds per synchronisation", 1e3 * phases(run)["synchronise"] / run.rounds),
    ]


def continuous(episodes: int = 3_000) -> list[Row]:
    """d=64, A=4, H=5, M=4: the rate of relabelling against np.matmul, both on all cores."""
    env = ContinuousLinearMDP(dim=64, n_actions=4, horizon=5, seed=0)
    learner = FedLSVI(n_agents=4)
    learner.learn(env, 20, progress=False)
    run = learner.learn(env, episodes, progress=False)
    flops = sum(2.0 * 4 * (env.horizon - 1) * r.last * 4 * 64 * 64 for r in run.records)
    rate = flops / phases(run)["synchronise"]
    return [
        Row("continuous: relabelling / np.matmul, flops per second", rate / matmul_rate(64)),
        Row("  relabelling, gigaflops per second", rate / 1e9),
    ]


def matmul_rate(dim: int, threads: int | None = None) -> float:
    """Flops per second of np.matmul, (4096 × d)·(d × d); None leaves BLAS its own threads."""
    a, out = np.random.default_rng(0).random((4096, dim)), np.empty((4096, dim))
    b = np.eye(dim) + 0.1
    with threadpool_limits(limits=threads, user_api="blas"):
        best, _ = seconds(lambda: [np.matmul(a, b, out=out) for _ in range(50)], 5)
    return 50 * 2.0 * 4096 * dim * dim / best


def main() -> int:
    """Print the table."""
    with unattended():
        print(table([*finite(), *continuous()]))
    return 0
