"""`FedLSVI.plan` beside what `learn` then takes, on eight problems that nothing was fitted to.

Each plan and each run has a process of its own. A run begins after a first one of two episodes,
because a plan leaves out what the first run of a process loads and compiles. On a machine that has
other work, --cpu takes the processor time of one thread for the time, in plans and in runs.

    python -m benchmarks plan
    python -m benchmarks.plan [--cpu] [NAME …]      # some of them, or of those it was tried on
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from fedlsvi import FedLSVI
from fedlsvi.envs import ContinuousLinearMDP, Garnet, RandomLinearMDP, make
from fedlsvi.experiments.measure import Row, peak_megabytes, table

FACTOR = 1.5

PLAY = "from benchmarks.plan import play; play({name!r}, {what!r}, {threads})"
CPU = "import time; time.perf_counter = time.process_time; "

Given = tuple[FedLSVI, Any, int, dict[str, Any]]

TRIED: dict[str, Callable[[], Given]] = {
    "lin": lambda: (FedLSVI(8), RandomLinearMDP(20, 4, 8, 5, seed=0), 30_000, {}),
    "river": lambda: (FedLSVI(4), make("river-swim"), 20_000, {}),
    "cont": lambda: (
        FedLSVI(4), ContinuousLinearMDP(dim=8, n_actions=4, horizon=5, seed=0), 3_000, {},
    ),
    "car": lambda: (
        FedLSVI(2), "MountainCar-v0", 150,
        {"features": "fourier", "horizon": 100, "reward_range": (-1.0, 0.0)},
    ),
    "CartPole": lambda: (
        FedLSVI(4), "CartPole-v1", 300,
        {"features": "fourier", "horizon": 100, "reward_range": (0.0, 1.0)},
    ),
}  # fmt: skip
"""Used while the plan was written."""

REPORTED: dict[str, Callable[[], Given]] = {
    "finite": lambda: (FedLSVI(10), RandomLinearMDP(50, 5, 20, 10, seed=0), 3_000_000, {}),
    "one-hot": lambda: (FedLSVI(30), Garnet(n_states=60, n_actions=4, seed=1), 400_000, {}),
    "many agents": lambda: (FedLSVI(2_000), RandomLinearMDP(30, 4, 12, 8, seed=2), 6_000, {}),
    "paper": lambda: (FedLSVI(8, preset="paper"), make("n-chain"), 2_000_000, {}),
    "secure, one trip": lambda: (
        FedLSVI(6, exchange="one-trip", aggregation="secure"), make("hard-chain"), 500_000, {},
    ),
    "continuous": lambda: (
        FedLSVI(4), ContinuousLinearMDP(dim=32, n_actions=4, horizon=6, seed=3), 30_000, {},
    ),
    "Acrobot": lambda: (
        FedLSVI(3), "Acrobot-v1", 300,
        {"features": "fourier", "horizon": 100, "reward_range": (-1.0, 0.0)},
    ),
    "diverse": lambda: (FedLSVI(6, diversity=0.2), make("deep-sea"), 100_000, {}),
}  # fmt: skip
"""None of them changed the plan. At first they were shorter, and seven were over within the
calibration; Acrobot stands in for CartPole, which showed that episodes may grow."""


def play(name: str, what: str, threads: int | None) -> None:
    """Plan or learn one of them, and print what was said or measured."""
    learner, env, episodes, more = (TRIED | REPORTED)[name]()
    more = more | {"threads": threads}
    if what == "plan":
        print(json.dumps(learner.plan(env, episodes, **more).to_dict()))
        return
    learner.learn(env, min(episodes, 2), progress=False, **more)
    began = time.perf_counter()
    run = learner.learn(env, episodes, progress=False, **more)
    found = {
        "total_seconds": time.perf_counter() - began,
        "memory": peak_megabytes() * 2**20,
        "rounds": run.rounds,
        "scalars": run.ledger.total,
    }
    print(json.dumps(found))


def _played(name: str, what: str, cpu: bool) -> dict[str, float]:
    """What a process of its own says."""
    code = PLAY.format(name=name, what=what, threads=1 if cpu else None)
    words = [sys.executable, "-W", "ignore", "-c", CPU + code if cpu else code]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def rows(name: str, cpu: bool = False) -> list[Row]:
    """What was said over what was measured."""
    said, measured = (_played(name, what, cpu) for what in ("plan", "learn"))
    units = {"total_seconds": ("s", 1.0), "memory": ("MB", 1e6), "rounds": ("", 1.0),
             "scalars": ("M", 1e6)}  # fmt: skip
    found = []
    for key, (unit, scale) in units.items():
        ratio = said[key] / measured[key]
        wanted = f"1/{FACTOR} – {FACTOR}" if key in ("total_seconds", "memory") else ""
        holds = 1.0 / FACTOR <= ratio <= FACTOR if wanted else None
        about = f"{said[key] / scale:.4g} / {measured[key] / scale:.4g} {unit}".rstrip()
        label = f"{name}: {key.replace('total_', '')}, planned / measured ({about})"
        found.append(Row(label, ratio, "", wanted, holds))
    return found


def main(names: list[str] | None = None, cpu: bool = False) -> list[Row]:
    """Time and memory within a factor of 1.5; rounds and scalars beside them."""
    return [row for name in names or list(REPORTED) for row in rows(name, cpu)]


if __name__ == "__main__":
    asked = [word for word in sys.argv[1:] if word != "--cpu"]
    print(table(main(asked, "--cpu" in sys.argv)))
