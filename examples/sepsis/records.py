"""Ten hospitals with records and no simulator: learn offline on NVIDIA FLARE, then explore.

`python -m examples.sepsis.records [FOLDER]` goes through five steps; each is a function:

1. `logs.records`: every hospital writes what its clinicians did to 1,000 patients, as Parquet.
2. `on_flare`: the hospitals learn one policy from these records on a real federation, each a site
   with a log and nothing to play in.
3. `estimated`: what that policy is worth, from records of other patients alone.
4. the same, measured in the simulator, exactly.
5. `explored`: 200 episodes at each hospital, from nothing and from the records, with all actions
   and with those that a hospital has seen (`allowed="seen"`).

Needs `pip install ".[examples,flare]"`. Here the simulator stands for patients to come.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from examples.play import value
from examples.sepsis.hospitals import clinicians, sepsis
from examples.sepsis.logs import BETA, HOSPITALS, PATIENTS, records

import fedlsvi
from fedlsvi import FedLSVI, Run
from fedlsvi.algorithms.fitted_q_evaluation import Estimate, estimate_value
from fedlsvi.envs import FiniteMDP, logged_worlds
from fedlsvi.errors import TrafficWarning
from fedlsvi.features import LowRankFeatures

EPISODES = 200
"""Played at each hospital after it has learned from records."""

AT_LEAST = 5
"""How often a hospital must have seen an action in a state, to be allowed to take it there."""


def on_flare(env: FiniteMDP, paths: Sequence[Path], folder: Path, seconds: float = 1800.0) -> Run:
    """One policy from the records of all hospitals, each a site of a federation on this machine."""
    from fedlsvi.remote.federation import Federation
    from fedlsvi.remote.flare import project
    from fedlsvi.remote.flare.demo import free_port

    stationary = True
    federation = Federation(
        "records", episodes=PATIENTS, horizon=env.horizon, dim=env.n_states * env.n_actions,
        one_hot=True, algorithm="pevi", n_states=env.n_states, n_actions=env.n_actions,
        settings={"beta": BETA[stationary], "value_range": 1.0, "stationary": stationary},
        retry={"deadline": 300.0},
    )  # fmt: skip
    sites = {f"hospital-{m}": {"data": str(path.absolute())} for m, path in enumerate(paths)}
    where = project.init(folder, federation, sites, port=free_port())
    try:
        project.launch(where)
        number = project.start(where, seconds)
        ended = project.wait(where, number, seconds)
        if ended != project.COMPLETED:
            raise SystemExit(f"the federation ended with {ended}: {project.reason(where, number)}")
        return fedlsvi.load(project.server_folder(where), env=env)
    finally:
        project.stop(where)


def estimated(env: FiniteMDP, run: Run, paths: Sequence[Path], repeats: int = 50) -> Estimate:
    """The value of a policy from records that had no part in learning it."""
    logs = logged_worlds(list(paths), like=env)
    phi = env.default_features()
    return estimate_value(run.final_policy, logs, phi, value_range=1.0, repeats=repeats)


def explored(
    env: FiniteMDP, paths: Sequence[Path], episodes: int = EPISODES, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Start → survival over the episodes played, and of the policy that they end with.

    Features of `settings.toml`; and one-hot ones, kept to the actions that a hospital's own records
    have seen.
    """
    known, data = LowRankFeatures(16).bind(env), [str(path) for path in paths]
    own: dict[str, dict[str, Any]] = {
        "cold, d = 16": {"features": known},
        "warm, d = 16": {"features": known, "data": data},
        "warm, one-hot, all actions": {"data": data},
        "warm, one-hot, actions seen": {"data": data, "allowed": "seen", "at_least": AT_LEAST},
    }
    learner = FedLSVI(len(paths), value_range=1.0)
    found = {}
    for how, given in own.items():
        run = learner.learn(env, episodes, seed, progress=False, **given)
        assert run.regret is not None
        assert run.plan is not None
        best = [one.initial_law(m) @ one.optimal_values()[0] for m, one in enumerate(run.plan.envs)]
        lost = float(run.regret[-1]) / (episodes * len(paths))
        found[how] = float(np.mean(best)) - lost, value(env, run.final_policy.table)
    return found


def main(folder: Path, repeats: int = 50) -> None:
    """All five steps, in print."""
    env = sepsis()
    paths = records(env, folder, seed=0)
    print(f"clinicians {value(env, clinicians(env)):.4f}")
    run = on_flare(env, paths, folder / "project")
    print(f"learned on FLARE from {HOSPITALS} × {PATIENTS:,} records: "
          f"{run.ledger.total:,} scalars in {run.rounds} round")  # fmt: skip
    (folder / "held-out").mkdir()
    found = estimated(env, run, records(env, folder / "held-out", seed=1000), repeats)
    print(f"  estimated {found.value:.4f} [{found.low or 0.0:.4f}, {found.high or 0.0:.4f}]")
    print(f"  measured  {value(env, run.policy.table):.4f}")
    for how, (during, after) in explored(env, paths).items():
        print(f"{how:<30} survival of {EPISODES} episodes each {during:.4f}, then {after:.4f}")
    print(f"optimum {float(env.initial_law(0) @ env.optimal_values()[0]):.4f}")


if __name__ == "__main__":
    warnings.simplefilter("ignore", TrafficWarning)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        main(Path(sys.argv[1]))
    else:
        with TemporaryDirectory() as scratch:
            main(Path(scratch))
