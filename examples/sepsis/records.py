"""Ten hospitals with records and no simulator: learn offline on NVIDIA FLARE, then explore.

`python -m examples.sepsis.records [FOLDER [FIGURE]]` goes through five steps; each is a function:

1. `logs.records`: every hospital writes the records of 1,000 patients treated by clinicians as
   Parquet, and those of 1,000 held-out patients.
2. `on_flare`: the hospitals learn one policy from these records in a real federation; every site
   has a log and no environment. The job ends with an estimate of that policy from the held-out
   records.
3. `alone`: the first hospital learns by itself.
4. the exact value of both policies, in the simulator.
5. `explored`: 200 episodes at each hospital, from scratch and from the records, with all actions
   and with only those that a hospital has seen (`allowed="seen"`).

Needs `pip install ".[examples,flare]"`. In step 5 the simulator stands in for future patients.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from examples.play import value
from examples.sepsis.hospitals import clinicians, sepsis
from examples.sepsis.logs import BETA, HOSPITALS, PATIENTS, learned, records

import fedlsvi
from fedlsvi import PEVI, FedLSVI, Run
from fedlsvi.envs import FiniteMDP, logged_worlds
from fedlsvi.errors import TrafficWarning
from fedlsvi.features import LowRankFeatures
from fedlsvi.report.colours import BLUE, COLOURS, INK, VERMILION
from fedlsvi.report.plotting import make_figure
from fedlsvi.storage import evaluations

EPISODES = 200
"""Played at each hospital after it has learned from records."""

AT_LEAST = 5
"""How often a hospital must have seen an action in a state before it may take it there."""

REPEATS = 10
"""Repeats of the bootstrap."""


def on_flare(
    env: FiniteMDP, paths: Sequence[Path], others: Sequence[Path], folder: Path,
    seconds: float = 1800.0,
) -> tuple[Run, dict[str, Any]]:  # fmt: skip
    """Learn one policy from the records of all hospitals, each a site of a federation on this
    machine, and estimate its value from the records of other patients."""
    from fedlsvi.remote.federation import Federation
    from fedlsvi.remote.flare import project
    from fedlsvi.remote.flare.demo import free_port

    stationary = True
    federation = Federation(
        "records", episodes=PATIENTS, horizon=env.horizon, dim=env.n_states * env.n_actions,
        one_hot=True, algorithm="pevi", n_states=env.n_states, n_actions=env.n_actions,
        settings={"beta": BETA[stationary], "value_range": 1.0, "stationary": stationary,
                  "aggregation": "float"},
        retry={"deadline": 300.0}, evaluate={"repeats": REPEATS},
    )  # fmt: skip
    sites = {
        f"hospital-{m}": {"data": str(path.absolute()), "held_out": str(other.absolute())}
        for m, (path, other) in enumerate(zip(paths, others, strict=True))
    }
    where = project.init(folder, federation, sites, port=free_port())
    try:
        project.launch(where)
        number = project.start(where, seconds)
        ended = project.wait(where, number, seconds)
        if ended != project.COMPLETED:
            raise SystemExit(f"the federation ended with {ended}: {project.reason(where, number)}")
        kept = project.server_folder(where)
        return fedlsvi.load(kept, env=env), evaluations.read(kept)["estimated"][0]
    finally:
        project.stop(where)


def same_as_in_one_process(env: FiniteMDP, run: Run, paths: Sequence[Path]) -> bool:
    """Whether the federation's model equals that of a single process to the last bit."""
    logs = logged_worlds(list(paths), like=env)
    learner = PEVI(len(logs), beta=BETA[True], value_range=1.0, stationary=True)
    return learner.learn(logs, progress=False).w.tobytes() == run.w.tobytes()


def alone(env: FiniteMDP, path: Path) -> float:
    """The value of what one hospital learns from its own records."""
    return learned(env, logged_worlds([path], like=env), stationary=True, beta=BETA[True])


@dataclass(frozen=True)
class Explored:
    """How exploring went.

    Attributes:
        during: Survival over the episodes played.
        after: Survival under the policy that they end with.
        lost: (T,) patients of each hospital that the optimum would have saved, so far.
    """

    during: float
    after: float
    lost: np.ndarray


def explored(
    env: FiniteMDP, paths: Sequence[Path], episodes: int = EPISODES, seed: int = 0
) -> dict[str, Explored]:
    """Start → how it went.

    With the features of `settings.toml`, and with one-hot ones: with all actions, and with only
    those that a hospital's own records contain.
    """
    known, data = LowRankFeatures(16).bind(env), [str(path) for path in paths]
    own: dict[str, dict[str, Any]] = {
        "cold, d = 16": {"features": known},
        "warm, d = 16": {"features": known, "data": data},
        "warm, one-hot, all actions": {"data": data},
        "warm, one-hot, actions seen": {"data": data, "allowed": "seen", "at_least": AT_LEAST},
    }
    learner, found = FedLSVI(len(paths), value_range=1.0), {}
    best, each = optimum(env), np.arange(1, episodes + 1)
    for how, given in own.items():
        run = learner.learn(env, episodes, seed, progress=False, **given)
        assert run.regret is not None
        assert run.plan is not None
        # regret is relative to the best of the allowed actions, which differ between hospitals
        tops = [one.initial_law(m) @ one.optimal_values()[0] for m, one in enumerate(run.plan.envs)]
        lost = run.regret / len(paths) + (best - float(np.mean(tops))) * each
        during = best - float(lost[-1]) / episodes
        found[how] = Explored(during, value(env, run.policy.table), lost)
    return found


def optimum(env: FiniteMDP) -> float:
    """V* from the initial distribution."""
    return float(env.initial_law(0) @ env.optimal_values()[0])


def draw(
    path: str, values: dict[str, float], estimate: dict[str, Any], starts: dict[str, Explored]
) -> None:
    """Values and the estimate, and the cost of exploring from each start."""

    def survival(axes: Any) -> None:
        rows = [(name, number, BLUE) for name, number in values.items()]
        rows.insert(-1, ("ten hospitals,\nestimated", estimate["value"], VERMILION))
        for i, (_, number, colour) in enumerate(rows):
            axes.plot(number, -i, "o", color=colour, zorder=3)
            axes.annotate(f"{number:.3f}", (number, -i), (0, 7), textcoords="offset points",
                          ha="center", fontsize=9, color=INK)  # fmt: skip
        at = 2 - len(rows)
        axes.plot([estimate["low"], estimate["high"]], [at, at], color=VERMILION, linewidth=1.8)
        axes.set_yticks([-i for i in range(len(rows))], [name for name, _, _ in rows])
        axes.set_ylim(0.6 - len(rows), 0.7)
        axes.locator_params(axis="x", nbins=5)
        axes.set(xlabel="probability of survival")
        axes.set_title("Learned from records")

    def exploring(axes: Any) -> None:
        for (how, one), colour in zip(starts.items(), COLOURS, strict=False):
            axes.plot(np.arange(1, len(one.lost) + 1), one.lost, color=colour, label=how)
        axes.set_yscale("log")
        axes.set(xlabel="patients of each hospital", ylabel="lost against the optimum, so far")
        axes.set_title("Then explored")
        axes.legend(loc="lower right")

    make_figure([survival, exploring], path, size=(5.6, 4.0), across=True)


def main(folder: Path, figure: str = "") -> None:
    """Run all five steps and print the results."""
    env = sepsis()
    (folder / "others").mkdir()
    paths, others = records(env, folder, seed=0), records(env, folder / "others", seed=1000)
    run, found = on_flare(env, paths, others, folder / "project")
    values = {
        "clinicians": value(env, clinicians(env)),
        "one hospital alone": alone(env, paths[0]),
        "ten hospitals": value(env, run.policy.table),
        "optimum": optimum(env),
    }
    print(f"learned on FLARE from {HOSPITALS} × {PATIENTS:,} records: "
          f"{run.ledger.total:,} scalars in {run.rounds} round; "
          f"the bits of one process: {same_as_in_one_process(env, run, paths)}")  # fmt: skip
    for name, number in values.items():
        print(f"  {name:<20} {number:.4f}")
    print(f"estimated on FLARE from {found['episodes']:,} other records: {found['value']:.4f} "
          f"[{found['low']:.4f}, {found['high']:.4f}], of which {found['unseen']:.4f} unseen; "
          f"clinicians {found['behaviour']:.4f} "
          f"[{found['behaviour_low']:.4f}, {found['behaviour_high']:.4f}]")  # fmt: skip
    starts = explored(env, paths)
    for how, one in starts.items():
        print(f"{how:<30} survival of {EPISODES} episodes each {one.during:.4f}, "
              f"then {one.after:.4f}; lost {one.lost[-1]:.2f} per hospital")  # fmt: skip
    if figure:
        draw(figure, values, found, starts)


if __name__ == "__main__":
    warnings.simplefilter("ignore", TrafficWarning)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        main(Path(sys.argv[1]), *sys.argv[2:3])
    else:
        with TemporaryDirectory() as scratch:
            main(Path(scratch))
