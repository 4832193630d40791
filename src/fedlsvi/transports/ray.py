"""Cohorts in Ray actors, spread over the CPUs of a machine or a cluster (extra `ray`).

The server stays in the driver and asks; an actor holds one cohort behind a `Station`. An actor that
dies is started again by Ray, takes its journal, and is asked again. Nothing depends on the number
of actors but the time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

from fedlsvi.config import Parameters
from fedlsvi.errors import InvalidInput, TransportError
from fedlsvi.guard import Guard
from fedlsvi.transports.local import Handler
from fedlsvi.transports.wired import Patience, Wired

LOOPBACK = "127.0.0.1"

RESTART_SECONDS = 0.2
"""Time between two questions to an actor that is being started again."""


class Actor:
    """What runs in an actor: one handler, with linear algebra kept to one thread."""

    def __init__(self, make: Callable[[], Handler]) -> None:
        from threadpoolctl import threadpool_limits

        self._limits = threadpool_limits(limits=1, user_api="blas")
        self._handler = make()

    def agents(self) -> tuple[int, int]:
        """The number of its first agent, and how many there are."""
        return self._handler.agents

    def handle(self, frame: bytes) -> bytes:
        """Answer a request."""
        return self._handler.handle(frame)

    def process(self) -> int:
        """The number of the actor's process."""
        return os.getpid()


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
    ray = ray_library()
    if ray.is_initialized():
        return False
    quiet = {"log_to_driver": False, "logging_level": "warning", "configure_logging": True}
    if address is not None:
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise TransportError(f"no Ray cluster at {address!r}: {error}") from None
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    _stay_on_loopback(ray)
    cpus = len(os.sched_getaffinity(0))
    ray.init(
        address="local", num_cpus=cpus, include_dashboard=False, _node_ip_address=LOOPBACK, **quiet
    )
    return True


def _stay_on_loopback(ray: Any) -> None:
    """Ray replaces 127.0.0.1 by an address that others can reach, except where it was told that
    this machine takes part in no cluster; then its processes listen on loopback."""
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # read by the processes it starts
    ray._private.ray_constants.ENABLE_RAY_CLUSTER = False  # read when ray was imported


def cluster_cpus(address: str | None = None) -> int:
    """How many CPUs the cluster has."""
    connect(address)
    return max(1, int(ray_library().cluster_resources().get("CPU", 1)))


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
        self._late: dict[Any, int] = {}
        options: dict[str, Any] = {
            "num_cpus": 1 if len(makers) <= cluster_cpus(address) else 0,
            "max_restarts": -1,
            "scheduling_strategy": "SPREAD",
        }
        remote = ray.remote(Actor).options(**options)
        self.actors = [remote.remote(make) for make in makers]
        try:
            cuts = ray.get([actor.agents.remote() for actor in self.actors])
        except ray.exceptions.RayError as error:
            self.close()
            raise TransportError(f"an actor could not start: {error}") from None
        super().__init__(parameters, [(first, m) for first, m in cuts], run, patience, guard)

    def exchange(self, frames: Mapping[int, bytes], deadline: float) -> Iterator[tuple[int, bytes]]:
        end = monotonic() + deadline
        for c, frame in frames.items():
            self._late[self.actors[c].handle.remote(frame)] = c
        asked = set(frames)
        while asked and (left := end - monotonic()) > 0.0:
            done, _ = self._ray.wait(list(self._late), num_returns=1, timeout=left)
            for reference in done:
                c = self._late.pop(reference)
                try:
                    data = self._ray.get(reference)
                except self._ray.exceptions.RayActorError:
                    # Ray is starting it again; a station answers what it has answered before
                    if c in asked:
                        sleep(RESTART_SECONDS)
                        self._late[self.actors[c].handle.remote(frames[c])] = c
                    continue
                asked.discard(c)
                yield c, data

    def processes(self) -> list[int]:
        """The process of each actor."""
        return [int(p) for p in self._ray.get([a.process.remote() for a in self.actors])]

    def close(self) -> None:
        """End the actors, and Ray where it was started here."""
        if not self._ray.is_initialized():
            return
        for actor in self.actors:
            self._ray.kill(actor, no_restart=True)
        self.actors = []
        if self._own:
            self._ray.shutdown()
        if self._scratch is not None:
            self._scratch.cleanup()
