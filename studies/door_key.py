"""`python -m studies.door_key FILE`: which of the two doors of MiniGrid-DoorKey-5x5 are learned.

The door is in one of two rows, and nothing that is learned about one helps with the other: open
doors, and the way from them to the goal, are separate states. Each run counts how often the goal
was reached behind each door while learning, and evaluates the policy to deploy behind each. The
settings in capitals were fixed before the first run, except those that the page says were added;
FILE keeps every run, so the study can be stopped and resumed.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi import FedLSVI
from fedlsvi.envs import as_environment
from studies.small_worlds import Numbered, door_key

DOORS = (1, 2)
"""Rows that the door may be in; the goal is in row 3."""
HORIZON, PLAYED = 40, 200

SETTINGS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "defaults": (20, 500, {}),
    "defaults, 1,000 episodes": (10, 1000, {}),
    "`rounds=80`": (10, 500, {"rounds": 80}),
    "`rounds=160`": (10, 500, {"rounds": 160}),
    "`diversity=0.5`": (10, 500, {"diversity": 0.5}),
}
"""Seeds, episodes of each of four agents, and what is not a default."""


class Counted(Numbered):
    """The room, counting how often the goal is reached behind each door."""

    def __init__(self, reached: dict[int, int]) -> None:
        inner = door_key(5)
        super().__init__(inner.spec.id, inner.actions, door=True)
        self.reached = reached

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        found = super().step(action)
        if found[1] > 0.0:
            self.reached[int(found[0][3])] += 1
        return found


def play(name: str, seed: int) -> dict[str, Any]:
    """One run: goals reached while learning, and what the policy to deploy earns, door by door."""
    _, episodes, settings = SETTINGS[name]
    reached = dict.fromkeys(DOORS, 0)
    env = as_environment(lambda: Counted(reached), horizon=HORIZON)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it sends more than the raw data
        run = FedLSVI(4, value_range=1, policy="explore", **settings).learn(
            env, episodes, seed, progress=False
        )
        goals = dict(reached)  # before anybody plays what was learned
        policy = run.policy
    room = door_key(5)
    earned: dict[int, list[float]] = {door: [] for door in DOORS}
    for episode in range(PLAYED):
        seen, _ = room.reset(seed=1_000_000 * (seed + 1) + episode)
        door, total = int(seen[3]), 0.0
        for h in range(1, HORIZON + 1):
            seen, paid, over, _, _ = room.step(policy.action(seen, h))
            total += paid
            if over:
                break
        earned[door].append(total)
    means = [float(np.mean(earned[door])) for door in DOORS]
    return {"name": name, "seed": seed, "goals": [goals[door] for door in DOORS], "earned": means}


def row(name: str, found: list[dict[str, Any]]) -> str:
    """A line of the table."""
    goals = np.array([run["goals"] for run in found])
    earned = np.array([run["earned"] for run in found])
    never, learned = (goals == 0).sum(axis=0), (earned > 0.9).sum(axis=0)
    unlike = int(((goals > 0) != (earned > 0.9)).sum())
    cells = [name, len(found), *never, *learned, unlike, f"{earned.mean():.3f}"]
    return "| " + " | ".join(map(str, cells)) + " |"


def main(path: str) -> None:
    """Play what is missing, and print the table."""
    file = Path(path)
    lines = file.read_text().splitlines() if file.exists() else []
    known = {(run["name"], run["seed"]): run for run in map(json.loads, lines)}
    for name, (seeds, _, _) in SETTINGS.items():
        for seed in range(seeds):
            if (name, seed) not in known:
                known[name, seed] = play(name, seed)
                with file.open("a") as out:
                    out.write(json.dumps(known[name, seed]) + "\n")
    head = ["settings", "seeds"]
    head += [f"goal never reached behind door {door}" for door in DOORS]
    head += [f"door {door} learned" for door in DOORS] + ["reached but not learned", "mean return"]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for name in SETTINGS:
        print(row(name, [run for (own, _), run in known.items() if own == name]))


if __name__ == "__main__":
    main(sys.argv[1])
