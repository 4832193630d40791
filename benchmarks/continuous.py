"""Continuous states: the rate of relabelling relative to a matrix product of the same flops."""

from __future__ import annotations

from fedlsvi import FedLSVI
from fedlsvi.envs import ContinuousLinearMDP
from fedlsvi.experiments.bench import matmul_rate
from fedlsvi.experiments.measure import Row, peak_megabytes, phases, seconds

D, A, H, M, T = 64, 4, 5, 4, 20_000


def main() -> list[Row]:
    """d=64, A=4, H=5, M=4, T=20,000. Flops counted: 2·A·d² per relabelled next state, no others."""
    env = ContinuousLinearMDP(dim=D, n_actions=A, horizon=H, seed=0)
    learner = FedLSVI(n_agents=M)
    learner.learn(env, episodes=20, progress=False)
    before = matmul_rate(D)
    _, run = seconds(lambda: learner.learn(env, episodes=T, progress=False))
    plain = max(before, matmul_rate(D))
    relabelled = sum(M * (H - 1) * r.last for r in run.records)
    spent = phases(run)
    rate = relabelled * 2.0 * A * D * D / spent["synchronise"]
    history = M * T * (H + 1 + 2 * H) * 8 / 2**20
    return [
        Row(
            "relabelling / np.matmul, flops per second",
            rate / plain,
            "",
            ">= 0.6",
            rate >= 0.6 * plain,
        ),
        Row("  relabelling", rate / 1e9, "GF", ""),
        Row("  np.matmul", plain / 1e9, "GF", ""),
        *(Row(f"  seconds: {k}", v, "s", "") for k, v in spent.items()),
        Row("  rounds", run.rounds, "", ""),
        Row("peak memory", peak_megabytes(), "MB", ""),
        Row("  raw history kept", history, "MB", ""),
        Row("  features of that history, never kept", M * T * H * A * D * 8 / 2**20, "MB", ""),
    ]
