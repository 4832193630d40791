"""Many real agent processes: the run of two cohorts in one, to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from multiprocessing import get_context
from selectors import EVENT_READ, DefaultSelector
from threading import Event
from typing import Any

import pytest

from fedlsvi import FedLSVI
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.protocol.plan import Plan
from fedlsvi.remote.codec import longest_request, run_id
from fedlsvi.remote.endpoint_factory import EndpointFactory, endpoint_factories, guard_for
from fedlsvi.remote.frame_transport import FrameTransport
from fedlsvi.remote.ray.cluster import LOOPBACK
from fedlsvi.remote.ray.tcp import TcpConnection, TcpServer
from fedlsvi.remote.ray.transport import RayTransport
from fedlsvi.remote.retry_policy import RetryPolicy
from repeats import repeats
from transports_over_frames import over_frames

PROCESSES = repeats(4, 24)
AGENTS = 2 * PROCESSES
CONTEXT = get_context("forkserver")


def serve(factory: EndpointFactory, tell: Any) -> None:
    """What runs in each process: an endpoint behind a door, until the process is ended."""
    tell.send(TcpServer(LOOPBACK, factory().handle, longest_request(factory.plan.layout)).key)
    Event().wait()


class Processes(RayTransport):
    """The lines of `RayTransport` to processes that this test started."""

    def __init__(self, plan: Plan, started: list[Any]) -> None:
        made = endpoint_factories(plan, PROCESSES, threads=1)
        p = plan.parameters
        cuts = [(m.lo, m.hi - m.lo) for m in made]
        FrameTransport.__init__(
            self, p, cuts, run_id(p, plan.seed), RetryPolicy(300.0), guard_for(plan)
        )
        self._keys, self._connections, self._selector = {}, [], DefaultSelector()
        told = []
        for factory in made:
            hear, tell = CONTEXT.Pipe(duplex=False)
            started.append(CONTEXT.Process(target=serve, args=(factory, tell), daemon=True))
            started[-1].start()
            told.append(hear)
        for c, hear in enumerate(told):
            self._connections.append(TcpConnection(self.longest_answer(c)))
            self._connections[c].open(hear.recv())
            self._selector.register(self._connections[c], EVENT_READ, c)

    def close(self) -> None:
        self._hang_up()


@pytest.fixture
def start() -> Iterator[Callable[[Plan], Processes]]:
    CONTEXT.set_forkserver_preload(["fedlsvi.remote.endpoint_factory"])
    started: list[Any] = []
    yield lambda plan: Processes(plan, started)
    for process in started:
        process.kill()
    for process in started:
        process.join()


def test_many_processes(start: Callable[[Plan], Processes]) -> None:
    env = RandomLinearMDP(n_states=12, n_actions=3, dim=5, horizon=4, seed=0)
    learner = FedLSVI(n_agents=AGENTS, gamma=60.0)
    # over frames in this process: what the others run is compiled once, and not by each of them
    here = learner.learn(env, episodes=300, seed=1, progress=False, transport=over_frames(2))
    there = learner.learn(env, episodes=300, seed=1, progress=False, transport=start)
    assert there.taus == here.taus
    assert there.w.tobytes() == here.w.tobytes()
    assert there.gram.tobytes() == here.gram.tobytes()
    assert there.ledger.scalars["up_stats"] == here.ledger.scalars["up_stats"]
