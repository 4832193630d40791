"""`python -m studies.acrobot FILE [SEEDS]`: what Acrobot needs beyond the defaults.

When every bandwidth was 1 by default, Fed-LSVI hardly learned it in 4×100 episodes. Each line
changes features, β, the number of episodes or the number of steps an action is held. The settings
were fixed before the first run, except those in `ADDED` and `LATEST`, which were fixed after the
runs of the lines above them and before their own. The best lines of these two are repeated with
seeds that did not choose them. FILE keeps every run.
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

HELD = 10
"""Steps for which an action is held, unless the line says otherwise; an episode has 500."""

Line = tuple[int, int, dict[str, Any], dict[str, Any]]
"""Episodes of each agent, steps an action is held, settings of the learner and of the features."""

BEST: dict[str, Any] = {"n_frequencies": 48, "bandwidth": BANDWIDTH}
WIDE: dict[str, Any] = {"n_frequencies": 48, "bandwidth": [2.0 * own for own in BANDWIDTH]}

SETTINGS: dict[str, Line] = {
    "defaults": (100, HELD, {}, {"n_frequencies": 16}),
    "bandwidth": (100, HELD, {}, {"n_frequencies": 16, "bandwidth": BANDWIDTH}),
    "bandwidth, β = 1": (100, HELD, {"beta": 1.0}, {"n_frequencies": 16, "bandwidth": BANDWIDTH}),
    "bandwidth, 48 frequencies, β = 1": (100, HELD, {"beta": 1.0}, BEST),
    "bandwidth, 48 frequencies, β = .1": (100, HELD, {"beta": 0.1}, BEST),
    "bandwidth, 48 frequencies, β = 1, 300 episodes": (300, HELD, {"beta": 1.0}, BEST),
}

ADDED: dict[str, Line] = {
    "bandwidth, 48 frequencies, β = 1, held for 5": (100, 5, {"beta": 1.0}, BEST),
    "twice the bandwidth, 48 frequencies, β = 1, held for 5": (100, 5, {"beta": 1.0}, WIDE),
    "bandwidth, 48 frequencies, β = 1, held for 4": (100, 4, {"beta": 1.0}, BEST),
}

FOUR: dict[str, Any] = {"n_frequencies": 48, "bandwidth": [4.0 * own for own in BANDWIDTH]}

LATEST: dict[str, Line] = {
    "twice the bandwidth, 48 frequencies, held for 5": (100, 5, {}, WIDE),
    "twice the bandwidth, 48 frequencies, β = 1": (100, HELD, {"beta": 1.0}, WIDE),
    "four times the bandwidth, 48 frequencies, β = 1, held for 5": (100, 5, {"beta": 1.0}, FOUR),
}

LINES = SETTINGS | ADDED | LATEST

CHOSEN = (
    "twice the bandwidth, 48 frequencies, β = 1, held for 5",
    "twice the bandwidth, 48 frequencies, held for 5",
)
"""The best lines of `ADDED` and of `LATEST`."""
FRESH = range(100, 105)
"""Seeds that took no part in choosing them."""


def play(name: str, seed: int) -> dict[str, Any]:
    """One run of four agents: what the policy to deploy earns, and what that took."""
    episodes, held, learner, features = LINES[name]
    env = as_environment("Acrobot-v1", horizon=500 // held, repeat=held, reward_range=(-1, 0))
    began = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it sends more than the raw data
        run = FedLSVI(4, **learner).learn(
            env, episodes, seed, features=FourierFeatures(**features), progress=False
        )
    seconds = process_time() - began
    earned = evaluate_policy(run.policy, env, PLAYED, seed=1000 + seed).mean
    return {"name": name, "seed": seed, "earned": earned, "seconds": seconds}


def main(path: str, seeds: int = 3) -> None:
    """Play what is missing, and print the table."""
    file = Path(path)
    lines = file.read_text().splitlines() if file.exists() else []
    known = {(run["name"], run["seed"]): run for run in map(json.loads, lines)}
    work = [(name, seed) for seed in range(seeds) for name in LINES]
    for key in [*work, *((name, seed) for name in CHOSEN for seed in FRESH)]:
        if key not in known:
            known[key] = play(*key)
            with file.open("a") as out:
                out.write(json.dumps(known[key]) + "\n")
    print("| settings | episodes | mean return | lowest, highest | seconds |\n" + "|---" * 5 + "|")
    for name in LINES:
        print(row(name, name, [known[name, seed] for seed in range(seeds)]))
    for name in CHOSEN:
        print(row(f"{name}: five other seeds", name, [known[name, seed] for seed in FRESH]))


def row(title: str, name: str, found: list[dict[str, Any]]) -> str:
    """A line of the table."""
    earned = [run["earned"] for run in found]
    seconds = np.median([run["seconds"] for run in found])
    spread = f"{min(earned):.0f}, {max(earned):.0f}"
    return f"| {title} | 4×{LINES[name][0]} | {np.mean(earned):.0f} | {spread} | {seconds:.0f} |"


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:3]))
