"""Kills one party of a secure run at a time, in a process of its own, and starts it again:

    python killing_parties.py PROBLEM SUMS EPISODES KILLS FOLDER PATH…

The server and three sites are processes that speak over Unix sockets. One of them, drawn at random,
is killed with SIGKILL at a place that is drawn too (`killing_places`; a message counts as a call),
and started again: a site from its journal, the server from its checkpoint. The others wait: without
it the run stands still, and before it goes on everybody knows who is next. The process imports and
compiles once; every party is a fork of it. It prints one JSON object: who was killed how often, the
rounds, and whether the run ended with the bytes of the undisturbed one.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any

from killing_places import DiskCalls, Place, Round, die, places
from patience import PATIENCE

SITES, SERVER = 3, -1
EACH = {SERVER: Round(50, 4), **dict.fromkeys(range(SITES), Round(34, 11))}
"""Calls, messages included, and writes of each party in every round."""


class PartyCalls(DiskCalls):
    """What a party counts: its own calls since it was its turn to be killed.

    Args:
        party: Which one.
        plan: Whose turn it is, one after the other, and where.
        turn: One byte that all processes share: how many turns are over.
    """

    def __init__(self, party: int, plan: list[tuple[int, Place]], turn: mmap.mmap) -> None:
        super().__init__(seals="checkpoints" if party == SERVER else "agents-")
        self._party, self._plan, self._turn, self._seen = party, plan, turn, -1

    def step(self, writes: int = 0) -> bool:
        turn = self._turn[0]
        if turn != self._seen:
            self._seen = turn
            victim, place = self._plan[turn] if turn < len(self._plan) else (None, None)
            self.aim(place if victim == self._party else None)
        return super().step(writes)

    def message(self) -> None:
        """One was received, or is about to be sent."""
        if self.step():
            die()


def kill(problem: str, sums: str, episodes: int, kills: int, folder: Path) -> dict[str, Any]:
    """Do it, in another process."""
    paths = [path for path in sys.path if path]
    command = [sys.executable, __file__, problem, sums, str(episodes), str(kills), str(folder)]
    done = subprocess.run([*command, *paths], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def site(folder: Path, c: int, make: Callable[[], Any], calls: PartyCalls) -> None:
    """Answer frames until killed, one server after the other."""
    door = folder / f"{c}.sock"
    door.unlink(missing_ok=True)
    endpoint = make()
    with Listener(str(door), "AF_UNIX") as listener:
        while True:
            with listener.accept() as line:
                try:
                    while True:
                        frame = line.recv_bytes()
                        calls.message()
                        reply = endpoint.handle(frame)
                        calls.message()
                        line.send_bytes(reply)
                except (EOFError, OSError):
                    continue


def main(name: str, sums: str, episodes: int, kills: int, folder: Path) -> dict[str, Any]:
    import problems
    from fedlsvi import resume
    from fedlsvi.protocol import protected
    from fedlsvi.remote import site_noise
    from fedlsvi.remote.codec import run_id
    from fedlsvi.remote.endpoint_factory import endpoint_factories, guard_for
    from fedlsvi.remote.frame_transport import FrameTransport
    from fedlsvi.remote.retry_policy import RetryPolicy
    from killing_frames import learner_of
    from transports_over_frames import over_frames

    problem, learner = getattr(problems, name)(), learner_of(sums, {})
    options: dict[str, Any] = {"features": problem.features, "progress": False}
    protected.new_noise_key = site_noise.new_noise_key = lambda: bytes(range(32))  # type: ignore[assignment]

    class Sockets(FrameTransport):
        """A line to each site, opened again whenever it breaks."""

        lines: Any
        calls: Any

        def exchange(
            self, frames: Mapping[int, bytes], deadline: float
        ) -> Iterator[tuple[int, bytes]]:
            for c, frame in frames.items():
                try:
                    if c not in self.lines:
                        self.lines[c] = Client(str(folder / f"{c}.sock"), "AF_UNIX")
                    self.calls.message()
                    self.lines[c].send_bytes(frame)
                except OSError:  # it is being started again
                    self.lines.pop(c, None)
            for c in [c for c in frames if c in self.lines]:
                try:
                    reply = self.lines[c].recv_bytes()
                except (EOFError, OSError):
                    del self.lines[c]
                    continue
                self.calls.message()
                yield c, reply

    plan = learner.prepare(problem.envs, episodes, 1, features=problem.features, cohorts=3).plan
    factories = endpoint_factories(
        plan, SITES, folder / "journals", durable=False, threads=1, lock_seconds=20.0
    )

    def connect(plan: Any, calls: PartyCalls) -> Any:
        p, cuts = plan.parameters, [(f.lo, f.hi - f.lo) for f in factories]
        retry = RetryPolicy(0.1, 2, absent="wait")  # pauses are no longer
        made = Sockets(p, cuts, run_id(p, plan.seed), retry, guard_for(plan))
        made.lines, made.calls = {}, calls
        return made

    def play(calls: PartyCalls) -> None:
        kept = {"transport": partial(connect, calls=calls), "checkpoint_seconds": 0}
        if (folder / "run").exists():
            resume(folder / "run", env=problem.envs, **options, **kept)
        else:
            learner.learn(problem.envs, episodes, 1, folder=folder / "run", **options, **kept)

    def start(party: int) -> int:
        child = os.fork()
        if child:
            return child
        try:
            with PartyCalls(party, drawn, turn) as calls:
                play(calls) if party == SERVER else site(folder, party, factories[party], calls)
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)

    # compiles what all parties run, and is what the run must end with
    here = learner.learn(problem.envs, episodes, 1, transport=over_frames(SITES), **options)
    warm = {"transport": over_frames(SITES), "checkpoint_seconds": 0}  # beginning, resuming too
    learner.learn(problem.envs, 60, 1, folder=folder / "warm", **options, **warm)
    resume(folder / "warm", env=problem.envs, **options)
    chance, killed, turn = random.Random(0), Counter[str](), mmap.mmap(-1, 1)
    often = -(-kills // len(EACH))
    victims = chance.sample(list(EACH), k=kills, counts=[often] * len(EACH))
    where = places(chance, here.rounds, [EACH[victim] for victim in victims])
    drawn = list(zip(victims, where, strict=True))
    parties = {party: start(party) for party in (*range(SITES), SERVER)}

    def ended(party: int) -> int:
        """Wait for its end, which must be the next of all."""
        child, status = os.wait()
        assert child == parties.pop(party), "another party has ended"
        return os.waitstatus_to_exitcode(status)

    try:
        for victim in victims:
            assert ended(victim) == -signal.SIGKILL
            killed["server" if victim == SERVER else f"site {victim}"] += 1
            turn[0] += 1
            parties[victim] = start(victim)
        assert ended(SERVER) == 0
    finally:
        for child in parties.values():
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    run = resume(folder / "run", env=problem.envs, features=problem.features, progress=False)
    equal = run.w.tobytes() == here.w.tobytes() and run.gram.tobytes() == here.gram.tobytes()
    return {"killed": killed, "rounds": here.rounds, "equal": equal and run.taus == here.taus}


if __name__ == "__main__":
    sys.path[:0] = sys.argv[6:]
    problem, sums, *numbers = sys.argv[1:5]
    print(json.dumps(main(problem, sums, *map(int, numbers), Path(sys.argv[5]))))  # type: ignore[arg-type]
