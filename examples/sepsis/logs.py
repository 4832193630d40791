"""Ten hospitals with the records of 1,000 patients each and no simulator: what can be learned?

`python -m examples.sepsis.logs [seeds]`: values are exact, in the simulator that made the records.
`python -m examples.sepsis.logs tune`: the β below, chosen on records that are not reported.
`python -m examples.sepsis.logs estimate [seeds [first]]`: values estimated from other records,
and exact ones.
`python -m examples.sepsis.logs private [seeds]`: what differential privacy for patients costs.
`python -m examples.sepsis.logs power [studies [ε]]`: how many patients such a study takes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from examples.play import value
from examples.sepsis.hospitals import ENDS, clinicians, honest_features, sepsis

from fedlsvi import PEVI
from fedlsvi.algorithms.fitted_q_evaluation import estimate_value
from fedlsvi.envs import FiniteMDP, LoggedWorld, logged_worlds, record_episodes, write_records
from fedlsvi.experiments.power import power
from fedlsvi.features import LowRankFeatures

HOSPITALS, PATIENTS = 10, 1_000
REPEATS = 500
"""Repeats of the bootstrap."""
BETAS = (0.01, 0.03, 0.1, 0.3, 1.0)
BETA = {False: 1.0, True: 1.0}
"""Stationary or not → the best of BETAS on records of seeds 100 and 101."""

EPSILONS = (0.5, 1.0, 2.0, 5.0, None)
"""None is ∞."""
PRIVATE_BETAS = (0.1, 1.0, 10.0, 30.0, 100.0)
DRAWS = 3
"""Of the noise, for each of the records on which β is chosen."""


def records(env: FiniteMDP, folder: Path, seed: int) -> list[Path]:
    """One Parquet file for each hospital: what the clinicians did, and how it ended."""
    law, paths = clinicians(env), []
    for m in range(HOSPITALS):
        log = record_episodes(env, PATIENTS, law, seed=seed, agent=m, ends=ENDS)
        paths.append(folder / f"hospital-{m}.parquet")
        write_records(log, paths[-1])
    return paths


def learned(env: FiniteMDP, logs: list[LoggedWorld], stationary: bool, beta: float) -> float:
    """The value of what is learned from these logs."""
    learner = PEVI(len(logs), beta=beta, value_range=1.0, stationary=stationary)
    return value(env, learner.learn(logs, progress=False).policy.table)


def tune() -> None:
    """The value of what ten hospitals learn, for each β, on records that are not reported."""
    env, rows = sepsis(), dict[tuple[bool, float], list[float]]()
    for seed in (100, 101):
        with TemporaryDirectory() as folder:
            logs = logged_worlds(list(records(env, Path(folder), seed)), like=env)
            for stationary in (False, True):
                for beta in BETAS:
                    found = learned(env, logs, stationary, beta)
                    rows.setdefault((stationary, beta), []).append(found)
    for (stationary, beta), values in rows.items():
        print(f"stationary = {stationary!s:<6} beta = {beta:<6g}{np.mean(values):.4f}")


def unlearned(env: FiniteMDP) -> tuple[float, np.ndarray]:
    """What needs no learning: the clinicians' most frequent dose in each state, and each dose for
    everybody."""
    every = np.eye(env.n_actions)
    often = value(env, every[clinicians(env).argmax(axis=-1)])
    shape = (env.horizon, env.n_states, env.n_actions)
    return often, np.array([value(env, np.broadcast_to(dose, shape)) for dose in every])


def main(seeds: int = 5) -> None:
    """Ten hospitals together and one alone, compared with the clinicians and the optimum."""
    env, rows = sepsis(), dict[str, list[float]]()
    for seed in range(seeds):
        with TemporaryDirectory() as folder:
            worlds = logged_worlds(list(records(env, Path(folder), seed)), like=env)
            for stationary, beta in BETA.items():
                how = "stationary" if stationary else "per step"
                for who, logs in (("ten hospitals", worlds), ("one alone", worlds[:1])):
                    found = learned(env, logs, stationary, beta)
                    rows.setdefault(f"{who}, {how}", []).append(found)
    best = float(env.initial_law(0) @ env.optimal_values()[0])
    print(f"clinicians {value(env, clinicians(env)):.4f}, optimum {best:.4f}")
    often, doses = unlearned(env)
    print(f"their most frequent dose {often:.4f}, always dose {doses.argmax()}: {doses.max():.4f}")
    for what, values in rows.items():
        print(f"{what:<28}{np.median(values):.4f}  {np.round(values, 4).tolist()}")


def estimate(seeds: int = 10, first: int = 0) -> None:
    """The value of the policy of ten hospitals, estimated from records of other patients at these
    hospitals, and its exact value; how often the interval contains it."""
    env, inside = sepsis(), {True: 0, False: 0}
    phi = env.default_features()
    for seed in range(first, first + seeds):
        with TemporaryDirectory() as folder, TemporaryDirectory() as other:  # read when needed
            logs = logged_worlds(list(records(env, Path(folder), seed)), like=env)
            held_out = logged_worlds(list(records(env, Path(other), 1000 + seed)), like=env)
            for steady in inside:
                learner = PEVI(HOSPITALS, beta=BETA[steady], value_range=1.0, stationary=steady)
                policy = learner.learn(logs, progress=False).policy
                found = estimate_value(
                    policy, held_out, phi, value_range=1.0, stationary=steady, repeats=REPEATS
                )
                exact = value(env, policy.table)
                assert found.low is not None
                assert found.high is not None
                inside[steady] += found.low <= exact <= found.high
                print(
                    f"seed {seed}, stationary = {steady}: estimated {found.value:.4f} "
                    f"[{found.low:.4f}, {found.high:.4f}], of which {found.unseen:.4f} unseen, "
                    f"exact {exact:.4f}, importance sampling {found.importance or 0.0:.4f}",
                    flush=True,
                )
    for steady, n in inside.items():
        print(f"stationary = {steady}: the exact value is in the interval for {n} of {seeds} seeds")


def privately(
    env: FiniteMDP, worlds: list[LoggedWorld], features: Any, exchange: str, epsilon: float | None,
    beta: float,
) -> float:  # fmt: skip
    """The value of what ten hospitals learn with ε for each patient; None is no noise."""
    given: dict[str, Any] = {"aggregation": "secure", "exchange": exchange}
    if epsilon is not None:
        given["privacy"] = {
            "epsilon": epsilon, "delta": 1e-6, "unit": "user", "episodes_per_user": 1,
            "public_features": True,
        }  # fmt: skip
    learner = PEVI(HOSPITALS, beta=beta, value_range=1.0, stationary=True, **given)
    return value(env, learner.learn(worlds, features=features, progress=False).policy.table)


def private(seeds: int = 5) -> None:
    """Survival for each ε with three kinds of features; β is chosen, for each of them and each ε,
    on records of seeds 100 and 101."""
    env = sepsis()
    law, clusters = clinicians(env), LowRankFeatures(16).bind(env)
    ways = {
        "one-hot": (env.default_features(), "stepwise"),
        "groups of patients": (honest_features(env).bind(env), "one-trip"),
        "LowRankFeatures(16)": (clusters, "one-trip"),
    }

    def logs(seed: int) -> list[LoggedWorld]:
        found = []
        for m in range(HOSPITALS):
            log = record_episodes(env, PATIENTS, law, seed=seed, agent=m, ends=ENDS)
            found.append(log | {"patient": log["episode"]})
        return logged_worlds(found, like=env)

    others, reported = [logs(100), logs(101)], [logs(seed) for seed in range(seeds)]
    uniform = value(env, np.full((env.horizon, env.n_states, env.n_actions), 1.0 / env.n_actions))
    print(f"clinicians {value(env, law):.4f}, all actions alike {uniform:.4f}")
    for name, (features, exchange) in ways.items():
        for epsilon in EPSILONS:
            draws = 1 if epsilon is None else DRAWS
            best = {
                beta: np.mean([privately(env, worlds, features, exchange, epsilon, beta)
                               for worlds in others for _ in range(draws)])
                for beta in PRIVATE_BETAS
            }  # fmt: skip
            beta = max(best, key=best.__getitem__)
            rows = [privately(env, own, features, exchange, epsilon, beta) for own in reported]
            print(
                f"{name:<20} epsilon = {epsilon or np.inf:<4g} beta = {beta:<4g} "
                f"{np.mean(rows):.4f}  {np.round(rows, 4).tolist()}",
                flush=True,
            )


def simulate(studies: int = 300, epsilon: float = 0.0) -> None:
    """How likely the policy of ten hospitals is to save two patients more in a hundred."""
    env, began = sepsis(), perf_counter()
    given: dict[str, Any] = {}
    if epsilon:
        given = {"aggregation": "secure", "privacy": {"epsilon": epsilon, "delta": 1e-6}}
    found = power(
        env=env, behaviour=clinicians(env), ends=ENDS, sites=HOSPITALS,
        patients=(50, 100, 200, 500, PATIENTS), margin=0.02, studies=studies, beta=BETA[True],
        value_range=1.0, stationary=True, **given,
    )  # fmt: skip
    print(found.markdown())
    times = os.times()
    print(f"{perf_counter() - began:.0f} s, {times.user + times.children_user:.0f} s of processors")


if __name__ == "__main__":
    ways = {"tune": tune, "estimate": estimate, "private": private, "power": simulate}
    named = sys.argv[1:2] and sys.argv[1] in ways
    chosen = ways[sys.argv[1]] if named else main
    chosen(*(int(a) for a in sys.argv[2 if named else 1 :]))
