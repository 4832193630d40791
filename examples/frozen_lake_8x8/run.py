"""FrozenLake 8×8: the exact value of what eight agents learn, and of what one learns alone.

`python -m examples.frozen_lake_8x8.run`
"""

from __future__ import annotations

from pathlib import Path

from examples.play import Line, command, play, references, value

HERE = Path(__file__).parent


def main(seeds: int, changes: list[str]) -> list[Line]:
    """Values are probabilities of reaching the goal within 100 steps."""
    together = [play(HERE, seed, changes) for seed in range(seeds)]
    alone = [play(HERE, seed, [*changes, "n_agents=1"]) for seed in range(seeds)]
    plan = together[0].plan
    assert plan is not None
    env = plan.envs[0]
    return [
        *references(env),
        Line("Fed-LSVI, 8 agents", tuple(value(env, run.policy.table) for run in together)),
        Line("one agent alone", tuple(value(env, run.policy.table) for run in alone)),
        Line("rounds of communication", tuple(run.rounds for run in together)),
    ]


if __name__ == "__main__":
    command(main)
