"""Every registered algorithm that plays, on a small problem: what playing costs, and planning.

Playing is everything except planning: compiled blocks, triggers, counting what is sent. The cost of
planning is that of an algorithm's mathematics; its note says what that is.
"""

from __future__ import annotations

from fedlsvi.algorithms import registry
from fedlsvi.envs import FiniteMDP, RandomLinearMDP
from fedlsvi.envs.linear_mixture import RandomLinearMixtureMDP
from fedlsvi.experiments.measure import Row, phases

AGENTS, EPISODES = 8, 2_000
MOST = 10.0
"""Microseconds per agent-step outside planning."""


def main() -> list[Row]:
    """S=20, A=4, d=8, H=5, M=8 (1 where an algorithm has one agent), T=2,000; best of two."""
    size = {"n_states": 20, "n_actions": 4, "dim": 8, "horizon": 5, "seed": 0}
    linear, mixture = RandomLinearMDP(**size), RandomLinearMixtureMDP(**size)
    rows = []
    for name in registry.names():
        if registry.entry(name).offline:
            continue
        env = mixture if name.endswith("ucrl-vtr") else linear
        spent = [_spent(name, env) for _ in range(3)][1:]  # the first compiles
        play = min(s["explore"] for s in spent)
        plan = min(s["synchronise"] for s in spent)
        rows.append(Row(f"{name}: playing, per agent-step", play, "µs", f"<= {MOST:g}",
                        play <= MOST))  # fmt: skip
        rows.append(Row("  planning and sending, per agent-step", plan, "µs", ""))
    return rows


def _spent(name: str, env: FiniteMDP) -> dict[str, float]:
    """Microseconds per agent-step by phase."""
    agents = 1 if name == "lsvi-ucb-pp" else AGENTS
    run = registry.make(name, n_agents=agents).learn(env, EPISODES, 0, progress=False)
    steps = agents * EPISODES * env.horizon
    return {phase: 1e6 * seconds / steps for phase, seconds in phases(run).items()}
