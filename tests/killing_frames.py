"""Kills a run over frames again and again and resumes it, in a process of its own:

    python killing_frames.py PROBLEM SUMS COHORTS EPISODES KILLS FOLDER PATH…

PROBLEM is one of `problems` or of `case` below. SUMS is an aggregation, or "private" or
"private-steps": a private run with secure sums, in one trip or step by step. One process holds the
server and all agents, and is killed with SIGKILL at drawn places (`killing_places`): in a record of
a journal, in a snapshot, in a checkpoint, between two of them. The process imports and compiles
once; every attempt is a fork of it. It prints one JSON object: the kills, the rounds, and whether
the run ended with the bytes of the undisturbed one.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from patience import PATIENCE


def kill(
    problem: str, aggregation: str, cohorts: int, episodes: int, kills: int, folder: Path
) -> dict[str, Any]:
    """Do it, in another process."""
    numbers = [str(number) for number in (cohorts, episodes, kills)]
    paths = [path for path in sys.path if path]
    command = [sys.executable, __file__, problem, aggregation, *numbers, str(folder), *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def case(name: str) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """A problem, settings of the learner, and what `learn` and `resume` are given besides."""
    import problems
    from recorded import recorded

    if name == "logs":  # the second agent plays and has a log, the last has a log and plays nothing
        free = problems.continuous()
        logs, _ = recorded(free.one, [0, 9, 0, 12], free.horizon, free.one.n_actions)
        return replace(free, envs=[free.one] * 3 + [None]), {}, {"data": logs}
    if name == "masks":
        return problems.masks_of_their_own(4)[0], {}, {}
    if name == "diverse":
        return problems.deterministic(), {"diversity": 0.3}, {}
    return getattr(problems, name)(), {}, {}


def learner_of(sums: str, own: dict[str, Any]) -> Any:
    """Fed-LSVI whose sums are made in this way, with settings of its own."""
    from fedlsvi import FedLSVI

    if sums.startswith("private"):
        return FedLSVI(
            n_agents=4, beta=0.5, lam=0.5, rounds=45, aggregation="secure",
            exchange="one-trip" if sums == "private" else "stepwise",
            privacy={"epsilon": 5.0, "delta": 1e-6},
        )  # fmt: skip
    return FedLSVI(n_agents=4, gamma=4.0, beta=0.5, lam=0.5, aggregation=sums, **own)  # type: ignore[arg-type]


def main(
    name: str, aggregation: str, cohorts: int, episodes: int, kills: int, folder: Path
) -> dict[str, Any]:
    from fedlsvi import resume
    from fedlsvi.protocol import protected
    from fedlsvi.remote import site_noise
    from killing_places import DiskCalls, Place, places, usual
    from transports_over_frames import over_frames

    problem, own, given = case(name)
    options: dict[str, Any] = {"features": problem.features, "progress": False, **given}

    # sites of a private run draw from one secret, so that it can be compared
    protected.new_noise_key = site_noise.new_noise_key = lambda: bytes(range(32))  # type: ignore[assignment]

    def play(folder: Path, episodes: int) -> None:
        kept = {"transport": over_frames(cohorts, folder / "journals"), "checkpoint_seconds": 0}
        if (folder / "run").exists():
            resume(folder / "run", env=problem.envs, **options, **kept)
        else:
            begun = learner_of(aggregation, own)
            begun.learn(problem.envs, episodes, 1, folder=folder / "run", **options, **kept)

    plain = "exact" if aggregation == "secure" else aggregation
    here = learner_of(plain, own).learn(problem.envs, episodes, 1, cohorts=cohorts, **options)
    with DiskCalls() as disk:  # imports and compiles what begins and resumes a run, so no fork does
        for _ in range(2):
            play(folder / "warm", 60)

    def outcome(place: Place | None) -> int:
        """Begin or resume the run in a child, which is killed there: how it ended."""
        child = os.fork()
        if child:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        try:
            with DiskCalls(place=place):
                play(folder, episodes)
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)

    drawn = places(random.Random(0), here.rounds, [usual(disk.rounds)] * kills)
    killed = sum(outcome(place) == -signal.SIGKILL for place in drawn)
    code = outcome(None)
    assert code == 0, code
    run = resume(folder / "run", env=problem.envs, **options)
    equal = run.w.tobytes() == here.w.tobytes() and run.gram.tobytes() == here.gram.tobytes()
    return {"kills": killed, "rounds": here.rounds, "equal": equal and run.taus == here.taus}


if __name__ == "__main__":
    sys.path[:0] = sys.argv[7:]
    problem, aggregation, *numbers = sys.argv[1:6]
    print(json.dumps(main(problem, aggregation, *map(int, numbers), Path(sys.argv[6]))))  # type: ignore[arg-type]
