"""Ten hospitals with the records of 1,000 patients each and no simulator: what can be learned?

`python -m examples.sepsis.logs [seeds]`: values are exact, in the simulator that made the records.
`python -m examples.sepsis.logs tune`: the β below, chosen on records that are not reported.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from examples.play import value
from examples.sepsis.hospitals import ENDS, clinicians, sepsis

from fedlsvi import PEVI
from fedlsvi.envs import FiniteMDP, logged_worlds, record_episodes, write_records

HOSPITALS, PATIENTS = 10, 1_000
BETA = 0.1
"""The best of BETAS on records of seeds 100 and 101."""

BETAS = (0.01, 0.03, 0.1, 0.3)


def records(env: FiniteMDP, folder: Path, seed: int) -> list[Path]:
    """One Parquet file for each hospital: what the clinicians did, and how it ended."""
    law, paths = clinicians(env), []
    for m in range(HOSPITALS):
        log = record_episodes(env, PATIENTS, law, seed=seed, agent=m, ends=ENDS)
        paths.append(folder / f"hospital-{m}.parquet")
        write_records(log, paths[-1])
    return paths


def tune() -> None:
    """The value of what ten hospitals learn, for each β, on records of their own."""
    env = sepsis()
    for beta in BETAS:
        found = []
        for seed in (100, 101):
            with TemporaryDirectory() as folder:
                logs = logged_worlds(list(records(env, Path(folder), seed)), like=env)
                run = PEVI(HOSPITALS, beta=beta, value_range=1.0).learn(logs, progress=False)
                found.append(value(env, run.policy.table))
        print(f"beta = {beta:<6g}{np.mean(found):.4f}")


def main(seeds: int = 5) -> None:
    """Ten hospitals together and one alone, beside the clinicians and the optimum."""
    env = sepsis()
    rows: dict[str, list[float]] = {"ten hospitals": [], "one hospital alone": []}
    for seed in range(seeds):
        with TemporaryDirectory() as folder:
            worlds = logged_worlds(list(records(env, Path(folder), seed)), like=env)
            for what, logs in (("ten hospitals", worlds), ("one hospital alone", worlds[:1])):
                run = PEVI(len(logs), beta=BETA, value_range=1.0).learn(logs, progress=False)
                rows[what].append(value(env, run.policy.table))
    print(f"clinicians {value(env, clinicians(env)):.4f}, "
          f"optimum {float(env.initial_law(0) @ env.optimal_values()[0]):.4f}")  # fmt: skip
    for what, found in rows.items():
        print(f"{what:<24}{np.median(found):.4f}  {np.round(found, 4).tolist()}")


if __name__ == "__main__":
    tune() if sys.argv[1:] == ["tune"] else main(*(int(a) for a in sys.argv[1:2]))
