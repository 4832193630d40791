"""Taxi: the exact value of what eight agents learn, in the environment's own units.

`python -m examples.taxi.run`
"""

from __future__ import annotations

from pathlib import Path

from examples.play import Line, command, play, references, value

HERE = Path(__file__).parent


def main(seeds: int, changes: list[str]) -> list[Line]:
    """Mean return over the 300 first states, and how far it is from uniform to optimal."""
    together = [play(HERE, seed, changes) for seed in range(seeds)]
    alone = [play(HERE, seed, [*changes, "n_agents=1"]) for seed in range(seeds)]
    plan = together[0].plan
    assert plan is not None
    env = plan.envs[0]
    best, uniform = references(env)
    earned = [value(env, run.policy.table) for run in together]
    low, high = uniform.numbers[0], best.numbers[0]
    return [
        best,
        uniform,
        Line("Fed-LSVI, 8 agents", tuple(earned)),
        Line("  share of the way from uniform to optimal",
             tuple((v - low) / (high - low) for v in earned)),
        Line("one agent alone", tuple(value(env, run.policy.table) for run in alone)),
        Line("rounds of communication", tuple(run.rounds for run in together)),
    ]  # fmt: skip


if __name__ == "__main__":
    command(main)
