"""Mobile edge: four phones in four cells learn together when to connect to which station.

`python -m examples.mobile_edge.run`
"""

from __future__ import annotations

from pathlib import Path

from examples.mobile_edge.cell import OnePhone, Rule, phone_features
from examples.play import Line, command, play

from fedlsvi.envs import as_environment
from fedlsvi.envs.gym.play import evaluate_policy
from fedlsvi.storage.settings_file import read

HERE = Path(__file__).parent
PLAYED = 100
"""New episodes on which each policy is evaluated."""


def main(seeds: int, changes: list[str]) -> list[Line]:
    """Mean utility per step of phone 0, between −1 and 1."""
    H = read(HERE / "settings.toml")["env"]["horizon"]
    env = as_environment(OnePhone, horizon=H, reward_range=(-1.0, 1.0))
    chance = evaluate_policy("random", OnePhone, PLAYED, seed=9, horizon=H)
    rule = evaluate_policy(Rule(H), OnePhone, PLAYED, seed=9)
    runs = [play(HERE, s, changes, env=env, features=phone_features) for s in range(seeds)]
    found = [evaluate_policy(run.policy, OnePhone, PLAYED, seed=9).mean / H for run in runs]
    return [
        Line("random policy", (chance.mean / H,)),
        Line("rule: the strongest station, then keep it", (rule.mean / H,)),
        Line("Fed-LSVI, 4 phones", tuple(found)),
        Line("rounds of communication", tuple(run.rounds for run in runs)),
    ]


if __name__ == "__main__":
    command(main, seeds=3)
