"""A thousand agents compared with ten: the same number of agent-steps, on the same problem.

At the same γ both synchronise under the same rule. γ auto is max(T/(Md), 1), which is 2,000 for the
ten and 1 for the thousand, which then synchronise after every episode. The table shows both, and
for the second also the cost of the products N·V alone: each agent has its own response, so N of
every agent and step is read once per synchronisation.
"""

from __future__ import annotations

import numpy as np

from fedlsvi import FedLSVI
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.experience.finite_kernels import respond_all
from fedlsvi.experience.workers import Workers
from fedlsvi.experiments.measure import Row, phases, seconds

S, A, D, H = 50, 5, 10, 5
MANY, FEW, STEPS = 1_000, 10, 10**7
SHARE = 0.25


def main() -> list[Row]:
    """S=50, A=5, d=10, H=5: M=1,000, T=2,000 and M=10, T=200,000."""
    own = STEPS // (FEW * H) / (FEW * D)  # the ten's γ auto
    alike, by_itself = _rates(own), _rates("auto")
    same = alike[MANY][0] / alike[FEW][0]
    share = by_itself[MANY][0] / by_itself[FEW][0]
    wanted = f">= {SHARE}"
    rows = [Row(f"M=1000 / M=10, both at γ = {own:,g}", same, "", wanted, same >= SHARE)]
    rows += _table(alike)
    title = f"M=1000 / M=10, each at its own γ auto (1 and {own:,g})"
    rows.append(Row(title, share, "", wanted, share >= SHARE))
    rows += _table(by_itself)
    budget = STEPS / (SHARE * by_itself[FEW][0]) / (STEPS / (MANY * H)) * 1e3
    return [
        *rows,
        Row(f"  ms per synchronisation at {SHARE} of the ten's rate", budget, "ms", ""),
        Row("  ms per synchronisation for N·V alone", _products() * 1e3, "ms", ""),
    ]


def _rates(gamma: float | str) -> dict[int, tuple[float, dict[str, float], int]]:
    """M → (agent-steps per second, seconds by phase, rounds)."""
    env = RandomLinearMDP(n_states=S, n_actions=A, dim=D, horizon=H, seed=0)
    found = {}
    for m in (FEW, MANY):
        learner, episodes = FedLSVI(n_agents=m, gamma=gamma), STEPS // (m * H)
        learner.learn(env, episodes=20, progress=False)
        best, run = seconds(lambda: learner.learn(env, episodes=episodes, progress=False), 2)  # noqa: B023
        found[m] = STEPS / best, phases(run), run.rounds
    return found


def _table(found: dict[int, tuple[float, dict[str, float], int]]) -> list[Row]:
    rows = []
    for m, (rate, spent, rounds) in found.items():
        rows.append(Row(f"  M={m}: agent-steps per second", rate / 1e6, "M/s", ""))
        rows.append(Row("    rounds", rounds, "", ""))
        rows += [Row(f"    seconds: {k}", v, "s", "") for k, v in spent.items()]
    return rows


def _products() -> float:
    """Seconds for b = u + N V of every agent at the H − 1 steps that have a next value."""
    rng, workers = np.random.default_rng(0), Workers()
    N, V = rng.random((H - 1, MANY, D, S)), rng.random(S)
    u, b = np.zeros((MANY, D)), np.empty((MANY, D))

    def once() -> None:
        for h in range(H - 1):
            workers.map(respond_all, 0, MANY, V, u, N[h], b)

    once()
    best, _ = seconds(once, 50)
    workers.close()
    return best
