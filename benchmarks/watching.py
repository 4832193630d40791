"""Does the live page slow a run down, and does it keep up with 50 runs that grow?

A run plays in a process of its own, with and without a process that serves the page of its folder
and of 49 more, to which two rounds a second are appended, and one reader. Turns alternate.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread
from urllib.request import urlopen

from fedlsvi.experiments.measure import Row

TURNS = 10
RUNS, BEFORE = 50, 1_000
"""Runs below the folder, and the rounds that all but one of them have done before."""

PLAY = """
import json, sys, time
from fedlsvi import FedLSVI
from fedlsvi.envs import RiverSwim
for line in sys.stdin:
    began = time.perf_counter(), time.process_time()
    run = FedLSVI(2, gamma=1.0, rounds=2000).learn(
        RiverSwim(), 2000, folder=line.strip(), progress=False, threads=1)
    spent = time.perf_counter() - began[0], time.process_time() - began[1]
    print(json.dumps([*spent, run.rounds]), flush=True)
"""

WATCH = """
import json, sys, time
from pathlib import Path
from fedlsvi.live.server import LivePage
from fedlsvi.live.watcher import Watcher
watcher, looks = Watcher(Path(sys.argv[1])), []
look = watcher.look
def timed():
    began = time.perf_counter()
    look()
    looks.append(time.perf_counter() - began)
watcher.look = timed
with LivePage(watcher, "runs") as live:
    print(live.url, flush=True)
    sys.stdin.readline()
print(json.dumps(looks[1:]), flush=True)
"""


def line(k: int) -> str:
    """The record of a round."""
    return json.dumps({
        "k": k, "first": k, "last": k, "signals": 1, "triggers": [[0, 3]], "regret": float(k),
        "scalars": {"up_stats": 10 * k, "down_model": 10 * k, "signal": k}, "mean_return": 0.5,
        "seconds": {"explore": 0.001, "synchronise": 0.001, "evaluate": 0.0}, "notes": [],
    }) + "\n"  # fmt: skip


class Growing:
    """Runs that grow by two rounds a second each, until they are closed."""

    def __init__(self, folder: Path) -> None:
        self._files = []
        for number in range(RUNS - 1):
            run = folder / f"other-{number}"
            run.mkdir()
            settings = 'algorithm = "fed-lsvi"\nepisodes = 100000\n[env]\nname = "river-swim"\n'
            (run / "settings.toml").write_text(settings)
            (run / "records.jsonl").write_text("".join(map(line, range(1, BEFORE))))
            self._files.append(run / "records.jsonl")
        self._over, self._thread = Event(), Thread(target=self._grow)
        self._thread.start()

    def _grow(self) -> None:
        k = BEFORE
        while not self._over.wait(1.0):
            for file in self._files:
                with file.open("a") as end:
                    end.write(line(k) + line(k + 1))
            k += 2

    def close(self) -> None:
        self._over.set()
        self._thread.join()


@contextmanager
def watched(folder: Path, looks: list[float]) -> Iterator[None]:
    """The page is served and read meanwhile; `looks` receives how long its looks took."""
    process = subprocess.Popen(
        [sys.executable, "-c", WATCH, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    stream = urlopen(process.stdout.readline().strip() + "events", timeout=60)
    reader = Thread(target=lambda: [None for _ in stream], daemon=True)
    reader.start()
    try:
        yield
    finally:
        print(file=process.stdin, flush=True)
        looks += json.loads(process.stdout.readline())
        process.wait()
        reader.join()


def main(turns: int = TURNS) -> list[Row]:
    """A run of many rounds a second, with the live page of 50 runs beside it and without."""
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    play = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PLAY], env=os.environ | single,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    looks: list[float] = []
    spent: dict[bool, list[list[float]]] = {False: [], True: []}
    with TemporaryDirectory() as place:
        growing = Growing(folder := Path(place))

        def played(turn: str) -> list[float]:
            assert play.stdin is not None
            assert play.stdout is not None
            print(folder / turn, file=play.stdin, flush=True)
            found: list[float] = json.loads(play.stdout.readline())
            return found

        try:
            played("first")  # compiles
            for turn in range(turns):
                spent[False].append(played(f"plain-{turn}"))
                with watched(folder, looks):
                    time.sleep(2.0)  # the first look reads all that is there
                    spent[True].append(played(f"watched-{turn}"))
        finally:
            growing.close()
            assert play.stdin is not None
            play.stdin.close()
            play.wait()
    wall, cpu = (
        median(w[i] for w in spent[True]) / median(p[i] for p in spent[False]) for i in (0, 1)
    )
    speed = median(rounds / seconds for seconds, _, rounds in spent[False])
    most, slowest = 1.03, max(looks)
    return [
        Row("time of the run, watched over not watched", wall, "", f"≤ {most}", wall <= most),
        Row("processor time of the run, the same", cpu, "", f"≤ {most}", cpu <= most),
        Row("rounds of the run", speed, "1/s", "≥ 100", speed >= 100),
        Row("longest look at 50 runs that grow", slowest, "s", "< 1", slowest < 1.0),
    ]
