"""Kills runs and resumes them, in a process of its own: python killing.py MODE SEED NUMBER.

The process imports and compiles once; every run is a fork of it, so that a kill costs milliseconds.
It prints one JSON object: how many kills there were, where they came, and whether every run ended
with the bytes of the uninterrupted one.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fedlsvi
from fedlsvi.envs import ContinuousLinearMDP, RandomLinearMDP
from killing_places import DiskCalls, Place, places, usual

PROBLEMS: dict[str, Callable[[], Any]] = {
    "finite": lambda: RandomLinearMDP(6, 3, 4, horizon=3, seed=1, initial="uniform"),
    "continuous": lambda: ContinuousLinearMDP(dim=4, n_actions=2, horizon=3, seed=1),
}


OWN: dict[str, Any] = {}
"""Further settings of the runs; those of `BUDGET` in mode "budget"."""

BUDGET = {"gamma": 40.0, "cap": 1.3, "rounds": 9, "min_round": 2, "participation": 0.6}


def learner() -> fedlsvi.FedLSVI:
    return fedlsvi.FedLSVI(n_agents=3, **{"gamma": 12.0, "beta": 0.5, "lam": 1.0} | OWN)


def begin(kind: str, folder: Path, episodes: int, seconds: float) -> None:
    learner().learn(
        PROBLEMS[kind](), episodes, seed=7, progress=False, folder=folder,
        checkpoint_seconds=seconds, threads=1,
    )  # fmt: skip


def carry_on(kind: str, folder: Path, episodes: int, seconds: float) -> None:
    """Begin the run if a kill came before its folder existed, else resume it."""
    if folder.exists():
        fedlsvi.resume(folder, progress=False, checkpoint_seconds=seconds, threads=1)
    else:
        begin(kind, folder, episodes, seconds)


def warm_up(kind: str, root: Path) -> None:
    """Import and compile whatever begins, resumes and goes on with a run, so that no fork does."""
    begin(kind, root, 6, 0.0)
    fedlsvi.resume(root, episodes=9, progress=False, checkpoint_seconds=0.0, threads=1)
    content(fedlsvi.load(root))


def fork(play: Callable[[], None]) -> int:
    """Run `play` in a child; returns its process number."""
    child = os.fork()
    if child == 0:
        try:
            play()
            os._exit(0)
        except BaseException as error:  # the parent sees the exit code, people the message
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    return child


def outcome(child: int) -> int:
    """Exit code of a child, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def content(run: fedlsvi.Run) -> tuple[Any, ...]:
    assert run.regret is not None
    return (
        run.w.tobytes(), run.gram.tobytes(), run.taus, run.regret.tobytes(), run.ledger.to_dict(),
        [r.regret for r in run.records],
    )  # fmt: skip


def checkpoints(folder: Path) -> int:
    """How many checkpoints the run has sealed so far."""
    return max((int(path.stem) for path in folder.glob("checkpoints/*.json")), default=0)


def again_and_again(
    kind: str, episodes: int, kills: int, chance: random.Random, root: Path
) -> dict[str, Any]:
    """One run that makes a checkpoint after every round, is killed again and again at places all
    over it, and then left alone to end."""
    run = learner().learn(PROBLEMS[kind](), episodes, seed=7, progress=False)
    with DiskCalls() as disk:
        begin(kind, root / "counted", 60, 0.0)
    folder = root / "run"
    killed, working, inside = 0, 0, 0
    for place in places(chance, run.rounds, [usual(disk.rounds)] * kills):
        before = checkpoints(folder)
        child = fork(dying_at(place, lambda: carry_on(kind, folder, episodes, 0.0)))
        killed += outcome(child) == -signal.SIGKILL
        working += checkpoints(folder) > before
        inside += any(folder.glob("checkpoints/.*.tmp"))
    unfinished = fedlsvi.load(folder).played < episodes
    carry_on(kind, folder, episodes, 0.0)
    equal = content(fedlsvi.load(folder)) == content(run)
    return {"kills": killed, "equal": equal, "working": working, "inside_a_checkpoint": inside,
            "unfinished": unfinished}  # fmt: skip


def dying_at(place: Place, play: Callable[[], None]) -> Callable[[], None]:
    """`play` in a process that is killed there."""

    def run() -> None:
        with DiskCalls(place=place):
            play()

    return run


def at_calls(kind: str, places: range, root: Path) -> dict[str, Any]:
    """One kill before each of these writes, fsyncs and renames of a run; each is resumed."""
    episodes = 30
    expected = content(learner().learn(PROBLEMS[kind](), episodes, seed=7, progress=False))
    killed, equal = 0, True
    for n in places:
        folder = root / f"call-{n}"
        play = lambda f=folder: carry_on(kind, f, episodes, 0.0)  # noqa: E731
        killed += outcome(fork(dying_at(Place(0, n), play))) == -signal.SIGKILL
        # and once more on the way back, somewhere else each time
        outcome(fork(dying_at(Place(0, 3 + n % 17), play)))
        if outcome(fork(play)) != 0:
            return {"kills": killed, "equal": False, "n": n}
        equal = equal and content(fedlsvi.load(folder)) == expected
    return {"kills": killed, "equal": equal}


def longer(kind: str, places: range, root: Path) -> dict[str, Any]:
    """One kill before each of these calls of a finished run that goes on; each is resumed."""
    one = learner().learn(PROBLEMS[kind](), 60, seed=7, progress=False)
    killed, equal = 0, True
    begin(kind, root / "whole", 30, 0.0)
    for n in places:
        folder = root / f"call-{n}"
        shutil.copytree(root / "whole", folder)
        play = lambda f=folder: fedlsvi.resume(  # noqa: E731
            f, episodes=60, progress=False, checkpoint_seconds=0.0, threads=1
        )
        killed += outcome(fork(dying_at(Place(0, n), play))) == -signal.SIGKILL
        if n % 2:  # what leads to the old T or to the new one
            outcome(fork(lambda f=folder: fedlsvi.resume(f, progress=False)))
        outcome(fork(dying_at(Place(0, 3 + n % 17), play)))
        if outcome(fork(play)) != 0:
            return {"kills": killed, "equal": False, "n": n}
        equal = equal and content(fedlsvi.load(folder)) == content(one)
    return {"kills": killed, "equal": equal}


def main(mode: str, seed: int, number: int) -> None:
    """`number`: of kills; for "calls", of every so many places one is tried."""
    # a kill leaves the same files on any file system, and this one does not wait for a disk
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as root:
        for kind in PROBLEMS:
            if mode in ("calls", "longer", kind) or (mode, kind) == ("budget", "finite"):
                warm_up(kind, Path(root) / f"warm-{kind}")
        if mode == "budget":
            OWN.update(BUDGET)
            result = at_calls("finite", range(20, 90, 10 * number), Path(root) / "budget")
            runs = [fedlsvi.load(folder) for folder in (Path(root) / "budget").iterdir()]
            result["rounds"] = max(run.rounds for run in runs)
            result["shortest"] = min(record.smallest for run in runs for record in run.records)
        elif mode == "longer":
            parts = [longer(kind, range(1, 40, 3 * number), Path(root) / kind) for kind in PROBLEMS]
            result = {
                "kills": sum(part["kills"] for part in parts),
                "equal": all(part["equal"] for part in parts),
            }
        elif mode == "calls":
            # a checkpoint takes about 17 calls: two of them, and the making of the folder
            finite = at_calls("finite", range(1, 46, 2 * number), Path(root) / "finite")
            continuous = at_calls(
                "continuous", range(12, 46, 3 * number), Path(root) / "continuous"
            )
            result = {
                "kills": finite["kills"] + continuous["kills"],
                "equal": finite["equal"] and continuous["equal"],
            }
        else:
            result = again_and_again(mode, 120 * number, number, random.Random(seed), Path(root))
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
