"""Kills one party of a secure run at a time, in a process of its own, and starts it again:

    python killing_parties.py PROBLEM SUMS EPISODES KILLS FOLDER PATH…

The server and three sites are processes that speak over Unix sockets. At a random instant after the
run has got further one of them, drawn at random, is killed with SIGKILL and started again: a site
from its journal, the server from its checkpoint. The others go on waiting. The process imports and
compiles once; every party is a fork of it. It prints one JSON object: who was killed how often, the
rounds, and whether the run ended with the bytes of the undisturbed one.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any

SITES, SERVER = 3, -1


def kill(problem: str, sums: str, episodes: int, kills: int, folder: Path) -> dict[str, Any]:
    """Do it, in another process."""
    paths = [path for path in sys.path if path]
    command = [sys.executable, __file__, problem, sums, str(episodes), str(kills), str(folder)]
    done = subprocess.run([*command, *paths], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def site(folder: Path, c: int, make: Callable[[], Any]) -> None:
    """Answer frames until killed, one server after the other."""
    door = folder / f"{c}.sock"
    door.unlink(missing_ok=True)
    endpoint = make()
    with Listener(str(door), "AF_UNIX") as listener:
        while True:
            with listener.accept() as line:
                try:
                    while True:
                        line.send_bytes(endpoint.handle(line.recv_bytes()))
                except (EOFError, OSError):
                    continue


def main(name: str, sums: str, episodes: int, kills: int, folder: Path) -> dict[str, Any]:
    import problems
    from fedlsvi import resume
    from fedlsvi.protocol import simulated_sites
    from fedlsvi.remote import site_noise
    from fedlsvi.remote.codec import run_id
    from fedlsvi.remote.endpoint_factory import endpoint_factories, guard_for
    from fedlsvi.remote.frame_transport import FrameTransport
    from fedlsvi.remote.retry_policy import RetryPolicy
    from killing_frames import learner_of, wait_for_more
    from transports_over_frames import over_frames

    problem, learner = getattr(problems, name)(), learner_of(sums, {})
    options: dict[str, Any] = {"features": problem.features, "progress": False}
    simulated_sites.new_noise_key = site_noise.new_noise_key = lambda: bytes(range(32))  # type: ignore[assignment]

    class Sockets(FrameTransport):
        """A line to each site, opened anew whenever it breaks."""

        lines: Any

        def exchange(
            self, frames: Mapping[int, bytes], deadline: float
        ) -> Iterator[tuple[int, bytes]]:
            for c, frame in frames.items():
                try:
                    if c not in self.lines:
                        self.lines[c] = Client(str(folder / f"{c}.sock"), "AF_UNIX")
                    self.lines[c].send_bytes(frame)
                except OSError:  # it is being started again
                    self.lines.pop(c, None)
            for c in [c for c in frames if c in self.lines]:
                try:
                    yield c, self.lines[c].recv_bytes()
                except (EOFError, OSError):
                    del self.lines[c]

    plan = learner.prepare(problem.envs, episodes, 1, features=problem.features, cohorts=3).plan
    factories = endpoint_factories(
        plan, SITES, folder / "journals", durable=False, threads=1, lock_seconds=20.0
    )

    def connect(plan: Any) -> Any:
        p, cuts = plan.parameters, [(f.lo, f.hi - f.lo) for f in factories]
        retry = RetryPolicy(0.1, 2, absent="wait")  # pauses are no longer
        made = Sockets(p, cuts, run_id(p, plan.seed), retry, guard_for(plan))
        made.lines = {}
        return made

    def play() -> None:
        kept = {"transport": connect, "checkpoint_seconds": 0}
        if (folder / "run").exists():
            resume(folder / "run", env=problem.envs, **options, **kept)
        else:
            learner.learn(problem.envs, episodes, 1, folder=folder / "run", **options, **kept)

    def start(party: int) -> int:
        child = os.fork()
        if child:
            return child
        try:
            play() if party == SERVER else site(folder, party, factories[party])
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)

    # compiles what all parties run, and is what the run must end with
    here = learner.learn(problem.envs, episodes, 1, transport=over_frames(SITES), **options)
    warm = {
        "transport": over_frames(SITES),
        "checkpoint_seconds": 0,
    }  # beginning, resuming too
    learner.learn(problem.envs, 60, 1, folder=folder / "warm", **options, **warm)
    resume(folder / "warm", env=problem.envs, **options)
    chance, killed = random.Random(0), Counter[str]()
    parties = {party: start(party) for party in (*range(SITES), SERVER)}
    while killed.total() < kills and wait_for_more(parties[SERVER], folder / "run"):
        time.sleep(chance.uniform(0.0, 0.05))
        victim = chance.choice([SERVER, *range(SITES)])
        if os.waitid(os.P_PID, parties[SERVER], os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            break
        os.kill(parties[victim], signal.SIGKILL)
        os.waitpid(parties[victim], 0)
        killed["server" if victim == SERVER else f"site {victim}"] += 1
        parties[victim] = start(victim)
    code = os.waitstatus_to_exitcode(os.waitpid(parties.pop(SERVER), 0)[1])
    for child in parties.values():
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert code == 0, code
    run = resume(folder / "run", env=problem.envs, features=problem.features, progress=False)
    equal = run.w.tobytes() == here.w.tobytes() and run.gram.tobytes() == here.gram.tobytes()
    return {"killed": killed, "rounds": here.rounds, "equal": equal and run.taus == here.taus}


if __name__ == "__main__":
    sys.path[:0] = sys.argv[6:]
    problem, sums, *numbers = sys.argv[1:5]
    print(json.dumps(main(problem, sums, *map(int, numbers), Path(sys.argv[5]))))  # type: ignore[arg-type]
