"""Cohorts in Ray actors, spread over the CPUs of a machine or a cluster (extra `ray`).

The server stays in the driver and asks; an actor holds one cohort behind a `Station`. Ray places
the actors, starts again one that dies, and hands the driver the key of a direct line to each.
Frames travel over these lines, because a call of Ray's costs more than most requests do; where no
line may be used they travel by calls. A restarted actor takes its journal and is asked again.
Nothing depends on the number of actors but the time.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from selectors import EVENT_READ, DefaultSelector
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

from fedlsvi.config import Parameters
from fedlsvi.errors import InvalidInput, TransportError
from fedlsvi.remote.frame_transport import Wired
from fedlsvi.remote.guard import Guard
from fedlsvi.remote.ray import cluster as joining
from fedlsvi.remote.ray.cluster import LOOPBACK as LOOPBACK
from fedlsvi.remote.ray.tcp import Door, Key, Line
from fedlsvi.remote.retry_policy import Patience
from fedlsvi.remote.threads import Handler

CLOSE_SECONDS = 5.0
"""Time for actors to remove what they keep on their nodes."""

RESTART_SECONDS = 0.2
"""Time between two questions to an actor that is being started again."""

SMALL_BYTES = 100_000
"""What an actor is made from goes along with the request to make it, up to this size."""

AGAIN = 3
"""So many actors are made in the place of one that could not start again."""

BLOCKED = 3
"""After so many connections in a row that did not come about, frames travel by calls."""

log = logging.getLogger(__name__)


class Actor:
    """What runs in an actor: one handler, with linear algebra kept to one thread."""

    def __init__(self, make: Callable[[], Handler]) -> None:
        from threadpoolctl import threadpool_limits

        self._limits = threadpool_limits(limits=1, user_api="blas")
        self._handler = make()
        self._door: Door | None = None

    def agents(self) -> tuple[int, int]:
        """The number of its first agent, and how many there are."""
        return self._handler.agents

    def handle(self, frame: bytes) -> bytes:
        """Answer a request."""
        return self._handler.handle(frame)

    def door(self) -> Key:
        """Open a door on this node, once; its key."""
        if self._door is None:
            self._door = Door(ray_library().util.get_node_ip_address(), self._handler.handle)
        return self._door.key

    def process(self) -> int:
        """The number of the actor's process."""
        return os.getpid()

    def close(self) -> None:
        """Release files; a temporary journal goes."""
        self._handler.close()


def ray_library() -> Any:
    """Ray, or what to install."""
    try:
        import ray
    except ImportError:
        raise InvalidInput(
            'transport "ray" needs Ray: install it with pip install "fedlsvi[ray]"'
        ) from None
    return ray


def connect(address: str | None = None) -> bool:
    """Join the Ray cluster at `address`, or start one on this machine that listens on loopback
    only. Returns whether one was started here."""
    return joining.connect(ray_library(), address)


def cluster_cpus(address: str | None = None) -> int:
    """How many actors the cluster has a CPU for, and one at least."""
    connect(address)
    return max(1, joining.cpus(ray_library()))


class Ray(Wired):
    """One actor for each maker of a handler."""

    def __init__(
        self,
        parameters: Parameters,
        makers: Sequence[Callable[[], Handler]],
        run: int,
        patience: Patience | None = None,
        guard: Guard | None = None,
        address: str | None = None,
        scratch: TemporaryDirectory[str] | None = None,
    ) -> None:
        ray = ray_library()
        self._ray, self._own, self._scratch = ray, connect(address), scratch
        self._late: dict[Any, int] = {}  # answers that Ray owes: of which actor
        self._doors: dict[Any, int] = {}  # keys that Ray owes: of which actor
        self._lines: list[Line] = []
        self._selector = DefaultSelector()
        self._blocked: Counter[int] = Counter()  # connections that did not come about, by actor
        self._made: Counter[int] = Counter()  # actors that were made anew, since the last answer
        # Ray keeps what an actor is made from only as long as somebody refers to it
        self._makers = [
            make if len(ray.cloudpickle.dumps(make)) < SMALL_BYTES else ray.put(make)
            for make in makers
        ]
        self._options = self._placed(len(makers))
        self.actors = [self._actor(c) for c in range(len(makers))]
        try:
            asked = [actor.agents.remote() for actor in self.actors]
            joining.say_if_busy(ray, asked)
            cuts = ray.get(asked)
        except ray.exceptions.RayError as error:
            self.close()
            raise TransportError(f"an actor could not start: {error}") from None
        super().__init__(parameters, [(first, m) for first, m in cuts], run, patience, guard)
        if joining.lines_allowed(ray):
            self._open_lines()

    def _placed(self, actors: int) -> list[dict[str, Any]]:
        """Where each actor goes. One whose journal is on its node alone starts again there."""
        cpu = {"num_cpus": 1 if actors <= joining.cpus(self._ray) else 0, "max_restarts": -1}
        if self._scratch is None:
            return [cpu | {"scheduling_strategy": "SPREAD"}] * actors
        on = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        nodes = joining.places(self._ray, actors)
        return [cpu | {"scheduling_strategy": on(node, soft=False)} for node in nodes]

    def _actor(self, c: int) -> Any:
        remote = self._ray.remote(Actor).options(**self._options[c])
        return remote.remote(self._makers[c])

    def _open_lines(self) -> None:
        """A direct line to every actor, or to none."""
        keys: list[Key] = self._ray.get([actor.door.remote() for actor in self.actors])
        lines = [Line() for _ in keys]
        try:
            for line, key in zip(lines, keys, strict=True):
                line.open(key)
        except OSError:  # a firewall between the nodes lets only Ray through
            for line in lines:
                line.close()
            return
        self._lines = lines
        for c, line in enumerate(lines):
            self._selector.register(line, EVENT_READ, c)

    def exchange(self, frames: Mapping[int, bytes], deadline: float) -> Iterator[tuple[int, bytes]]:
        end = monotonic() + deadline
        return self._by_lines(frames, end) if self._lines else self._by_calls(frames, end)

    def _by_lines(self, frames: Mapping[int, bytes], end: float) -> Iterator[tuple[int, bytes]]:
        for c, frame in frames.items():
            try:
                self._lines[c].ask(frame)
            except OSError:
                self._lost(c)
        asked = set(frames)
        while asked and (left := end - monotonic()) > 0.0:
            if self._doors:
                self._reopen()
                left = min(left, RESTART_SECONDS)
                if max(self._blocked.values(), default=0) >= BLOCKED:
                    self._hang_up()  # an actor has come back behind a firewall
                    yield from self._by_calls({c: frames[c] for c in asked}, end)
                    return
            for found, _ in self._selector.select(left):
                c = found.data
                try:
                    data = self._lines[c].answer()
                except (OSError, EOFError):
                    self._lost(c)
                    continue
                if not self._lines[c].busy:
                    asked.discard(c)
                yield c, data

    def _lost(self, c: int) -> None:
        """A line broke; if the actor died, Ray starts it again. Ask for its key."""
        if self._lines[c].connected:
            self._selector.unregister(self._lines[c])
            self._lines[c].close()
        self._doors[self.actors[c].door.remote()] = c

    def _reopen(self) -> None:
        """Take the keys that have come; a station answers what it has answered before."""
        done, _ = self._ray.wait(list(self._doors), num_returns=len(self._doors), timeout=0)
        for reference in done:
            c = self._doors.pop(reference)
            try:
                self._lines[c].open(self._ray.get(reference))
                self._selector.register(self._lines[c], EVENT_READ, c)
                self._blocked[c] = self._made[c] = 0
            except OSError:
                self._blocked[c] += 1
                self._lost(c)
            except self._ray.exceptions.RayError as error:
                self._mourn(c, error)
                self._lost(c)

    def _mourn(self, c: int, error: Exception) -> None:
        """An actor has died. Ray starts it again, unless it failed to take its journal, which a
        machine that was cut off may hold for a while: then make another one. Where its node is gone
        and the journal with it, or the next ones fail too, say why."""
        lost = self._ray.exceptions
        if isinstance(error, lost.ActorUnschedulableError):
            self._give_up(c, "the node of their actor is gone, and their journal with it. Give "
                             "journal= on a disk that every node reaches")  # fmt: skip
        elif isinstance(error, lost.ActorDiedError):
            why = str(error).strip().rpartition("\n")[2]
            if self._made[c] >= AGAIN:
                self._give_up(c, f"their actor cannot start again: {why}")
                return
            log.warning("the actor of %s could not start again: %s", self._who(c), why)
            self._made[c] += 1
            self.actors[c] = self._actor(c)

    def _give_up(self, c: int, why: str) -> None:
        """Stop with a sentence, unless the run may go on without these agents."""
        if self.patience.absent in ("fail", "wait"):
            raise TransportError(f"{self._who(c)}: {why}")

    def _by_calls(self, frames: Mapping[int, bytes], end: float) -> Iterator[tuple[int, bytes]]:
        for c, frame in frames.items():
            self._late[self.actors[c].handle.remote(frame)] = c
        asked = set(frames)
        while asked and (left := end - monotonic()) > 0.0:
            done, _ = self._ray.wait(list(self._late), num_returns=1, timeout=left)
            for reference in done:
                c = self._late.pop(reference)
                try:
                    data = self._ray.get(reference)
                except self._ray.exceptions.RayError as error:
                    # Ray is starting it again; a station answers what it has answered before
                    if c in asked:
                        self._mourn(c, error)
                        sleep(RESTART_SECONDS)
                        self._late[self.actors[c].handle.remote(frames[c])] = c
                    continue
                self._made[c] = 0
                asked.discard(c)
                yield c, data

    def processes(self) -> list[int]:
        """The process of each actor."""
        return [int(p) for p in self._ray.get([a.process.remote() for a in self.actors])]

    def close(self) -> None:
        """End the actors, and Ray where it was started here."""
        self._hang_up()
        if not self._ray.is_initialized():
            return
        if self._scratch is not None and self.actors:
            closed = [actor.close.remote() for actor in self.actors]
            self._ray.wait(closed, num_returns=len(closed), timeout=CLOSE_SECONDS)
        for actor in self.actors:
            self._ray.kill(actor, no_restart=True)
        self.actors = []
        if self._own:
            self._ray.shutdown()
        if self._scratch is not None:
            self._scratch.cleanup()

    def _hang_up(self) -> None:
        self._selector.close()
        for line in self._lines:
            line.close()
        self._lines, self._doors = [], {}
