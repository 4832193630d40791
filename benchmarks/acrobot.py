"""`python -m benchmarks.acrobot FILE [SEEDS]`: what Acrobot takes beyond the defaults.

With default settings Fed-LSVI hardly learns it in 4×100 episodes (docs/environments.md). Each line
changes features, β or the number of episodes; the settings were fixed before the first run. FILE
keeps every run.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from fedlsvi import FedLSVI
from fedlsvi.envs import as_environment
from fedlsvi.envs.gym.play import evaluate_policy
from fedlsvi.features import FourierFeatures

PLAYED = 100
"""Episodes that measure a policy."""

BANDWIDTH = [1.0, 1.0, 1.0, 1.0, 4.0, 9.0]
"""A bandwidth for cos, sin of both angles and the two speeds (up to 12.6 and 28.3): a
third of their largest values."""

SETTINGS: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {
    "defaults": (100, {}, {"n_frequencies": 16}),
    "bandwidth": (100, {}, {"n_frequencies": 16, "bandwidth": BANDWIDTH}),
    "bandwidth, β = 1": (100, {"beta": 1.0}, {"n_frequencies": 16, "bandwidth": BANDWIDTH}),
    "bandwidth, 48 frequencies, β = 1": (
        100, {"beta": 1.0}, {"n_frequencies": 48, "bandwidth": BANDWIDTH}),
    "bandwidth, 48 frequencies, β = .1": (
        100, {"beta": 0.1}, {"n_frequencies": 48, "bandwidth": BANDWIDTH}),
    "bandwidth, 48 frequencies, β = 1, 300 episodes": (
        300, {"beta": 1.0}, {"n_frequencies": 48, "bandwidth": BANDWIDTH}),
}  # fmt: skip


def play(name: str, seed: int) -> dict[str, Any]:
    """One run of four agents: what the policy to deploy earns, and what that took."""
    episodes, learner, features = SETTINGS[name]
    env = as_environment("Acrobot-v1", horizon=50, repeat=10, reward_range=(-1, 0))
    began = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it sends more than the raw data
        run = FedLSVI(4, **learner).learn(
            env, episodes, seed, features=FourierFeatures(**features), progress=False
        )
    seconds = process_time() - began
    earned = evaluate_policy(run.exploit(), env, PLAYED, seed=1000 + seed).mean
    return {"name": name, "seed": seed, "earned": earned, "seconds": seconds}


def main(path: str, seeds: int = 3) -> None:
    """Play what is missing, and print the table."""
    file = Path(path)
    lines = file.read_text().splitlines() if file.exists() else []
    known = {(run["name"], run["seed"]): run for run in map(json.loads, lines)}
    for seed in range(seeds):
        for name in SETTINGS:
            if (name, seed) not in known:
                known[name, seed] = play(name, seed)
                with file.open("a") as out:
                    out.write(json.dumps(known[name, seed]) + "\n")
    print("| settings | episodes | mean return | lowest, highest | seconds |\n" + "|---" * 5 + "|")
    for name, (episodes, _, _) in SETTINGS.items():
        earned = [run["earned"] for (own, _), run in known.items() if own == name]
        seconds = np.median([run["seconds"] for (own, _), run in known.items() if own == name])
        spread = f"{min(earned):.0f}, {max(earned):.0f}"
        print(f"| {name} | 4×{episodes} | {np.mean(earned):.0f} | {spread} | {seconds:.0f} |")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:3]))
