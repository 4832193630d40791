"""Ray for real, on loopback: conformance, the same bits, many agents, actors that are killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from test_local import assert_same, learn

import problems
from fedlsvi import FedLSVI
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.federation.cluster import on_ray
from fedlsvi.learner import drive
from fedlsvi.transports import ray as engine
from fedlsvi.transports.check import RUN, check_order, check_raising, parameters
from fedlsvi.transports.wired import Patience

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One Ray for all tests of this file; its processes find the modules of the tests."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    engine.connect()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before
    yield
    engine.ray_library().shutdown()


def test_conformance() -> None:
    def make(made: Any, patience: Patience) -> engine.Ray:
        return engine.Ray(parameters(6), made, RUN, patience)

    check_order(make)
    check_raising(make)


def test_listens_on_loopback_only() -> None:
    """Every listening socket of Ray's processes, by the table of the kernel."""
    assert engine.ray_library().nodes()[0]["NodeManagerAddress"] == "127.0.0.1"
    assert _ray_processes()
    sockets = {os.readlink(fd) for p in _ray_processes() for fd in _open_files(p)}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in sockets:
                address = local.partition(":")[0]
                assert address.endswith("0100007F"), f"{table}: listens on {address}"


def _ray_processes() -> list[Path]:
    found = []
    for path in Path("/proc").iterdir():
        with suppress(OSError):
            if path.name.isdigit() and b"/ray/" in (path / "cmdline").read_bytes():
                found.append(path)
    return found


def _open_files(process: Path) -> list[Path]:
    try:
        return [fd for fd in (process / "fd").iterdir() if fd.is_symlink()]
    except OSError:
        return []


@pytest.mark.parametrize("cohorts", [1, 2, 4])
def test_same_run_as_in_process(cohorts: int) -> None:
    for problem in (problems.simplex(), problems.continuous()):
        here = learn(problem)
        assert_same(here, learn(problem, transport=partial(on_ray, cohorts=cohorts)))


def test_ten_thousand_agents_over_two_actors() -> None:
    env = RandomLinearMDP(n_states=20, n_actions=4, dim=8, horizon=5, seed=0)
    learner = FedLSVI(n_agents=10_000)
    there = learner.learn(env, episodes=8, progress=False, transport="ray", cohorts=2)
    assert_same(learner.learn(env, episodes=8, progress=False), there)


@pytest.mark.parametrize("problem", [problems.one_hot(), problems.continuous()], ids=["f", "c"])
def test_killed_actors_lose_nothing(problem: Any, tmp_path: Path) -> None:
    """SIGKILL an actor after every third round, and one inside each following synchronisation."""
    learner = FedLSVI(n_agents=4, gamma=8.0, beta=0.5, lam=0.5)
    here = learner.learn(problem.envs, 160, 1, features=problem.features, progress=False)
    session = learner.prepare(
        problem.envs, 160, 1, features=problem.features,
        transport=partial(on_ray, cohorts=2, journal=tmp_path),
    )  # fmt: skip
    transport: Any = session.transport
    kills = 0
    inner = transport.exchange

    def exchange(frames: Any, deadline: float) -> Any:
        nonlocal kills
        if transport.number % 17 == 5 and kills < 6:
            with suppress(engine.ray_library().exceptions.RayActorError):
                os.kill(transport.processes()[kills % 2], signal.SIGKILL)
                kills += 1
        return inner(frames, deadline)

    transport.exchange = exchange
    drive(session, [])
    assert kills == 6
    assert session.server.w.tobytes() == here.w.tobytes()
    assert session.server.gram.tobytes() == here.gram_packed.tobytes()
