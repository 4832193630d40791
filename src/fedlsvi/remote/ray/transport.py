"""Cohorts in Ray actors, spread over the CPUs of a machine or a cluster (extra `ray`).

The server stays in the driver and asks; an actor holds one cohort behind an `Endpoint`. Ray places
the actors, restarts one that dies, and hands the driver the key of a TCP connection to each. Frames
travel over these connections, because a Ray call costs more than most requests do; where they are
not allowed, frames travel by Ray calls. A restarted actor recovers from its journal and is asked
again. The number of actors changes nothing but the time.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike, fspath
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from time import monotonic, sleep
from typing import Any

from fedlsvi.config import FEWEST_SITES, Parameters, cohort_count
from fedlsvi.errors import StoreError, TransportError
from fedlsvi.protocol.messages import Reply
from fedlsvi.protocol.plan import Plan
from fedlsvi.remote.codec import longest_request, run_id
from fedlsvi.remote.endpoint_factory import endpoint_factories, guard_for
from fedlsvi.remote.epoch import take_epoch
from fedlsvi.remote.frame_transport import FrameHandler, FrameTransport
from fedlsvi.remote.guard import Guard
from fedlsvi.remote.ray import cluster
from fedlsvi.remote.ray.cluster import ray_library
from fedlsvi.remote.ray.tcp import TcpConnection, TcpKey, TcpServer
from fedlsvi.remote.retry_policy import RetryPolicy
from fedlsvi.storage import files

CLOSE_SECONDS = 5.0
"""Time for actors to delete their temporary journals."""

DISMISS_SECONDS = 60.0
"""Time for actors to delete their secrets when the run has ended."""

RESTART_SECONDS = 0.2
"""Time between two requests to an actor that is restarting."""

SMALL_BYTES = 100_000
"""An endpoint factory up to this size travels with the request to create its actor."""

REPLACEMENTS = 3
"""So many actors in a row are created in place of one that could not restart."""

BLOCKED = 3
"""After so many failed connections in a row, frames travel by Ray calls."""

log = logging.getLogger(__name__)


class Actor:
    """What runs in an actor: one frame handler, with BLAS kept to one thread."""

    def __init__(self, make: Callable[[], FrameHandler]) -> None:
        from threadpoolctl import threadpool_limits

        self._limits = threadpool_limits(limits=1, user_api="blas")
        self._handler = make()
        self._server: TcpServer | None = None

    def agents(self) -> tuple[int, int]:
        """The number of the first agent, and how many there are."""
        return self._handler.agents

    def handle(self, frame: bytes) -> bytes:
        """Answer a request."""
        return self._handler.handle(frame)

    def tcp_key(self, longest: int) -> TcpKey:
        """The key of this actor's TCP server, which the first call starts; it takes requests of up
        to so many bytes."""
        if self._server is None:
            host = ray_library().util.get_node_ip_address()
            self._server = TcpServer(host, self._handler.handle, longest)
        return self._server.key

    def process(self) -> int:
        """The actor's process id."""
        return os.getpid()

    def end(self) -> bool:
        """The last model is written down: delete what hid uploads."""
        return self._handler.end()

    def close(self) -> None:
        """Release files; a temporary journal is deleted."""
        self._handler.close()


def on_ray(
    plan: Plan,
    cohorts: int | None = None,
    address: str | None = None,
    journal: str | Path | None = None,
    retry: RetryPolicy | None = None,
    durable: bool = False,
    folder: str | PathLike[str] | None = None,
) -> RayTransport:
    """A transport to Ray actors that hold the agents of a plan.

    Args:
        plan: The run.
        cohorts: Number of actors; None is one per CPU of the cluster.
        address: Of a Ray cluster ("auto", "ray://host:10001"); None starts one on this machine.
        journal: Folder of the actors' journals, on a disk that a restarted actor can reach. None is
            a temporary one on each node, deleted when the transport is closed: actors recover from
            it, but a new driver cannot resume.
        retry: How long to wait for actors, and what to do then.
        durable: Whether the journals also survive a power failure.
        folder: The run folder; its journals are in `{folder}.agents`, unless `journal` is given.
    """
    if journal is None and folder is not None:
        journal = f"{fspath(folder)}.agents"
    n_agents = plan.parameters.n_agents
    if cohorts is None:
        cluster.connect(address)
        secure = plan.parameters.aggregation == "secure"
        few = FEWEST_SITES if secure else 1
        cohorts = min(n_agents, max(few, cluster.cpus(ray_library())))
    cohorts = cohort_count(cohorts, n_agents)
    scratch = None
    if journal is None:
        scratch = tempfile.TemporaryDirectory(prefix="fedlsvi-")
        journal = scratch.name
    factories = endpoint_factories(
        plan,
        cohorts,
        Path(journal).absolute(),
        durable,
        threads=1,
        lock_seconds=60.0,  # the actors of a driver that was killed end a little later
        scratch=scratch is not None,
    )
    run = run_id(plan.parameters, plan.seed)
    # an actor that died has to restart and replay its requests before it can answer
    retry = retry or RetryPolicy(deadline=600.0, attempts=5)
    transport = RayTransport(
        plan.parameters, factories, run, retry, guard_for(plan), address, scratch
    )
    if scratch is None:
        with suppress(StoreError):  # a driver that cannot reach the journals relies on its clock
            files.make_folder(Path(journal))
            take_epoch(transport, Path(journal))
    return transport


class RayTransport(FrameTransport):
    """One actor for each cohort.

    Args:
        factories: One for each cohort, in agent order; each makes what answers for it.
        address: Of a Ray cluster; None starts one on this machine.
        scratch: A folder for temporary journals, deleted when the transport is closed.
        parameters, run, retry, guard: See `FrameTransport`.
    """

    def __init__(
        self,
        parameters: Parameters,
        factories: Sequence[Callable[[], FrameHandler]],
        run: int,
        retry: RetryPolicy | None = None,
        guard: Guard | None = None,
        address: str | None = None,
        scratch: tempfile.TemporaryDirectory[str] | None = None,
    ) -> None:
        ray = ray_library()
        self._ray, self._own, self._scratch = ray, cluster.connect(address), scratch
        self._late: dict[Any, int] = {}  # answers that Ray owes → actor
        self._keys: dict[Any, int] = {}  # keys that Ray owes → actor
        self._connections: list[TcpConnection] = []
        self._selector = DefaultSelector()
        self._blocked: Counter[int] = Counter()  # failed connections in a row, by actor
        self._replaced: Counter[int] = Counter()  # replacements since the last answer, by actor
        # Ray keeps a large factory only as long as somebody refers to it
        self._factories = [
            make if len(ray.cloudpickle.dumps(make)) < SMALL_BYTES else ray.put(make)
            for make in factories
        ]
        self._options = self._placements(len(factories))
        self.actors = [self._actor(c) for c in range(len(factories))]
        try:
            calls = [actor.agents.remote() for actor in self.actors]
            cluster.warn_if_busy(ray, calls)
            cuts = ray.get(calls)
        except ray.exceptions.RayError as error:
            self.close()
            raise TransportError(
                f"a Ray actor could not start: {error}", code="actor-not-started"
            ) from None
        super().__init__(parameters, [(first, m) for first, m in cuts], run, retry, guard)
        self._hidden = parameters.privacy is not None or parameters.aggregation == "secure"
        if cluster.tcp_allowed(ray):
            self._connect_all()

    def _placements(self, actors: int) -> list[dict[str, Any]]:
        """Options that place each actor. One whose journal is on its own node restarts there."""
        cpu = {"num_cpus": 1 if actors <= cluster.cpus(self._ray) else 0, "max_restarts": -1}
        if self._scratch is None:
            return [cpu | {"scheduling_strategy": "SPREAD"}] * actors
        on = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        nodes = cluster.nodes_for(self._ray, actors)
        return [cpu | {"scheduling_strategy": on(node, soft=False)} for node in nodes]

    def _actor(self, c: int) -> Any:
        remote = self._ray.remote(Actor).options(**self._options[c])
        return remote.remote(self._factories[c])

    def _connect_all(self) -> None:
        """A TCP connection to every actor, or to none."""
        keys: list[TcpKey] = self._ray.get([self._ask_key(actor) for actor in self.actors])
        connections = [TcpConnection(self.longest_answer(c)) for c in range(len(keys))]
        try:
            for connection, key in zip(connections, keys, strict=True):
                connection.open(key)
        except OSError:  # a firewall between the nodes lets only Ray through
            for connection in connections:
                connection.close()
            return
        self._connections = connections
        for c, connection in enumerate(connections):
            self._selector.register(connection, EVENT_READ, c)

    def _ask_key(self, actor: Any) -> Any:
        return actor.tcp_key.remote(longest_request(self.layout))

    def exchange(self, frames: Mapping[int, bytes], deadline: float) -> Iterator[tuple[int, bytes]]:
        end = monotonic() + deadline
        return self._by_tcp(frames, end) if self._connections else self._by_calls(frames, end)

    def _by_tcp(self, frames: Mapping[int, bytes], end: float) -> Iterator[tuple[int, bytes]]:
        for c, frame in frames.items():
            try:
                self._connections[c].ask(frame)
            except OSError:
                self._lost(c)
        asked = set(frames)
        while asked and (left := end - monotonic()) > 0.0:
            if self._keys:
                self._reconnect()
                left = min(left, RESTART_SECONDS)
                if max(self._blocked.values(), default=0) >= BLOCKED:
                    self._hang_up()  # an actor restarted behind a firewall
                    yield from self._by_calls({c: frames[c] for c in asked}, end)
                    return
            for ready, _ in self._selector.select(left):
                c = ready.data
                try:
                    data = self._connections[c].answer()
                except (OSError, EOFError):
                    self._lost(c)
                    continue
                if not self._connections[c].busy:
                    asked.discard(c)
                yield c, data

    def _lost(self, c: int) -> None:
        """A connection broke; if the actor died, Ray restarts it. Ask for its key."""
        if self._connections[c].connected:
            self._selector.unregister(self._connections[c])
            self._connections[c].close()
        self._keys[self._ask_key(self.actors[c])] = c

    def _reconnect(self) -> None:
        """Use the keys that have arrived; an endpoint repeats an answer that it gave before."""
        done, _ = self._ray.wait(list(self._keys), num_returns=len(self._keys), timeout=0)
        for reference in done:
            c = self._keys.pop(reference)
            try:
                self._connections[c].open(self._ray.get(reference))
                self._selector.register(self._connections[c], EVENT_READ, c)
                self._blocked[c] = self._replaced[c] = 0
            except OSError:
                self._blocked[c] += 1
                self._lost(c)
            except self._ray.exceptions.RayError as error:
                self._replace(c, error)
                self._lost(c)

    def _replace(self, c: int, error: Exception) -> None:
        """An actor died. Ray restarts it, unless it failed to open its journal, which a machine
        that was cut off may hold for a while: then create another one. If its node is gone and the
        journal with it, or the replacements fail too, give up."""
        lost, name = self._ray.exceptions, self.reachability.name(c)
        if isinstance(error, lost.ActorUnschedulableError):
            self._give_up(
                f"{name}: the node of their actor is gone, and with it their journal. Set "
                "journal= to a folder on a disk that every node can reach",
                "node-gone",
            )
        elif isinstance(error, lost.ActorDiedError):
            why = str(error).strip().rpartition("\n")[2]
            if self._replaced[c] >= REPLACEMENTS:
                self._give_up(f"{name}: their actor cannot restart: {why}", "actor-not-restarted")
                return
            log.warning("the actor of %s could not restart: %s", name, why)
            self._replaced[c] += 1
            self.actors[c] = self._actor(c)

    def _give_up(self, why: str, code: str) -> None:
        """Stop the run, unless it may continue without these agents."""
        if self.retry.absent in ("fail", "wait"):
            raise TransportError(why, code=code)

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
                    # Ray restarts it; an endpoint repeats an answer that it gave before
                    if c in asked:
                        self._replace(c, error)
                        sleep(RESTART_SECONDS)
                        self._late[self.actors[c].handle.remote(frames[c])] = c
                    continue
                self._replaced[c] = 0
                asked.discard(c)
                yield c, data

    def _open(self, c: int, frame: bytes) -> tuple[bool, Reply]:
        try:
            return super()._open(c, frame)
        except TransportError as error:
            if error.code == "agent-failed":
                cluster.keep_logs()
            raise

    def processes(self) -> list[int]:
        """The process id of each actor."""
        return [int(p) for p in self._ray.get([a.process.remote() for a in self.actors])]

    def dismiss(self) -> None:
        if self._scratch is not None or not self._hidden:
            return
        calls = {actor.end.remote(): c for c, actor in enumerate(self.actors)}
        self._ray.wait(list(calls), num_returns=len(calls), timeout=DISMISS_SECONDS)
        for call, c in calls.items():
            try:
                gone = self._ray.get(call, timeout=0)
            except self._ray.exceptions.RayError:  # it died, or takes too long
                gone = False
            if not gone:
                name = self.reachability.name(c)
                log.warning("%s: the secrets of this run stay in the folder of their journal", name)

    def close(self) -> None:
        """End the actors, and Ray if it was started here."""
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
            cluster.end(self._ray)
        if self._scratch is not None:
            self._scratch.cleanup()

    def _hang_up(self) -> None:
        self._selector.close()
        for connection in self._connections:
            connection.close()
        self._connections, self._keys = [], {}
