"""`python -m studies.more_agents FILE`: how many episodes each of M agents has to play until
MiniGrid-Empty-8x8 is solved, for M = 4 and M = 16 (more_agents.md).

A run of T episodes per agent with default settings has solved the room if the policy to deploy
earns at least .95 (optimal: .961). The study runs all T in `EPISODES`; the answer is the smallest T
from which on every run of that seed has solved it. FILE keeps every run, so the study can be
stopped and resumed. Everything in capitals was fixed before the first run, except seeds 5 to 9,
which were added after a look at the first five.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np

from fedlsvi import FedLSVI
from fedlsvi.envs import as_environment
from fedlsvi.envs.gym.play import evaluate_policy
from studies.small_worlds import empty

AGENTS, SEEDS = (4, 16), range(10)
EPISODES = (5, 10, 15, 20, 30, 40, 60, 80, 120, 160, 240)
HORIZON, SOLVED = 60, 0.95


def earned(agents: int, episodes: int, seed: int) -> float:
    """What the policy to deploy earns; room and policy leave nothing to chance."""
    env = as_environment(lambda: empty(8), horizon=HORIZON)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it sends more than the raw data
        run = FedLSVI(agents, value_range=1).learn(env, episodes, seed, progress=False)
    return evaluate_policy(run.policy, env, 1, seed=1000 + seed).mean


def first_solved(found: dict[int, float]) -> int | None:
    """The least T from which on every run has solved it."""
    least = None
    for episodes in sorted(found, reverse=True):
        if found[episodes] < SOLVED:
            break
        least = episodes
    return least


def main(file: str) -> None:
    """Play what is missing and print the table."""
    kept = Path(file)
    lines = kept.read_text().splitlines() if kept.exists() else []
    known = {(own["M"], own["T"], own["seed"]): own["earned"] for own in map(json.loads, lines)}
    with kept.open("a") as log:
        for seed in SEEDS:
            for episodes in EPISODES:
                for agents in AGENTS:
                    key = (agents, episodes, seed)
                    if key not in known:
                        known[key] = earned(*key)
                        own = {"M": agents, "T": episodes, "seed": seed, "earned": known[key]}
                        log.write(json.dumps(own) + "\n")
                        log.flush()
    print("| agents | episodes each until solved, by seed | median |\n|---|---|---|")
    for agents in AGENTS:
        needed = [first_solved({T: known[agents, T, seed] for T in EPISODES}) for seed in SEEDS]
        numbers = [np.inf if least is None else least for least in needed]
        shown = ", ".join("never" if least is None else f"{least}" for least in needed)
        print(f"| {agents} | {shown} | {np.median(numbers):g} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
