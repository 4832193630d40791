"""A thousand agents against ten, the same number of agent-steps.

With γ = max(T/(Md), 1) the thousand synchronise after every episode, so each agent-step pays for
one whole upload (d·S products for b, d²/2 for Λ); the ten pay for one in thousands of agent-steps.
"""

from __future__ import annotations

from fedlsvi import FedLSVI
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.experiments.measure import Row, phases, seconds


def main() -> list[Row]:
    """S=50, A=5, d=10, H=5: M=1,000, T=2,000 and M=10, T=200,000."""
    env = RandomLinearMDP(n_states=50, n_actions=5, dim=10, horizon=5, seed=0)
    rows, speed = [], {}
    for m, episodes in ((10, 200_000), (1000, 2_000)):
        learner = FedLSVI(n_agents=m)
        learner.learn(env, episodes=20, progress=False)
        best, run = seconds(lambda: learner.learn(env, episodes=episodes, progress=False), 2)  # noqa: B023
        speed[m] = m * episodes * env.horizon / best
        rows.append(Row(f"M={m}: agent-steps per second", speed[m] / 1e6, "M/s", ""))
        rows.append(Row("  rounds", run.rounds, "", ""))
        rows += [Row(f"  seconds: {k}", v, "s", "") for k, v in phases(run).items()]
    share = speed[1000] / speed[10]
    return [*rows, Row("M=1000 / M=10", share, "", ">= 0.25", share >= 0.25)]
