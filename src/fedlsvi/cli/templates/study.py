"""The study new-name. What is asked, on what, and how it is decided, is written here before the
first run, and what is changed later is said here too.

    python new_name.py 2                                     plays what is missing in 2 processes
    fedlsvi report runs/new-name/* --out runs/new-name       makes a page of all runs

Question: Does Fed-LSVI lose reward if it may synchronise 20 times only?
Rule: 20 rounds are enough if their median regret is at most 1.5 times that of the default.
"""

import sys
from itertools import product
from pathlib import Path
from statistics import median

import fedlsvi
from fedlsvi import FedLSVI
from fedlsvi.experiments.processes import pool

ENV, AGENTS, EPISODES, SEEDS = "garnet", 4, 5_000, range(5)
SETTINGS = {"default": {}, "20-rounds": {"rounds": 20}}
FOLDER = Path("runs/new-name")


def play(name, seed):
    """One run. A finished one is read, an interrupted one goes on."""
    folder = FOLDER / f"{name}-{seed}"
    if folder.exists():
        return fedlsvi.resume(folder, progress=False)
    learner = FedLSVI(n_agents=AGENTS, min_round=10, **SETTINGS[name])
    return learner.learn(ENV, EPISODES, seed=seed, folder=folder, progress=False)


def main(processes):
    """Play everything, and say what the rule says."""
    cells = list(product(SETTINGS, SEEDS))
    with pool(processes) as workers:
        list(workers.map(play, *zip(*cells, strict=True)))
    runs = {name: [play(name, seed) for seed in SEEDS] for name in SETTINGS}
    for name, of_name in runs.items():
        regrets = [float(run.regret[-1]) for run in of_name]
        rounds = median(run.rounds for run in of_name)
        print(f"{name:10} regret {median(regrets):,.0f} ({min(regrets):,.0f} to "
              f"{max(regrets):,.0f}), {rounds:.0f} rounds")  # fmt: skip
    usual, few = (median(run.regret[-1] for run in of_name) for of_name in runs.values())
    print(f"20 rounds are {'enough' if few <= 1.5 * usual else 'too few'}: {few / usual:.2f} times")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
