"""Ray in trouble: actors that cannot start again, a busy cluster, connections that are stopped."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fedlsvi
import problems
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.errors import InvalidInput, InvalidSetting, StoreError, TransportError
from fedlsvi.learner import drive
from fedlsvi.remote.codec import run_id
from fedlsvi.remote.endpoint_factory import endpoint_factories, guard_for
from fedlsvi.remote.ray import cluster as cluster_module
from fedlsvi.remote.ray import transport as engine
from fedlsvi.remote.ray.cluster import LOOPBACK
from fedlsvi.remote.ray.tcp import GONE_SECONDS, TcpConnection, TcpServer
from fedlsvi.remote.ray.transport import on_ray
from fedlsvi.remote.retry_policy import Absent, RetryPolicy
from patience import PATIENCE
from repeats import only_ci
from transports_over_frames import assert_same, learn, over_frames

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("cluster")]


@dataclass(frozen=True)
class Locked:
    """Makes an endpoint, unless a file says that its journal is held."""

    make: Any
    held: Path
    refusals: int = 0
    """After so many refusals the file is deleted."""

    def __call__(self) -> Any:
        if self.held.exists():
            so_far = self.held.read_text() + "x"
            self.held.write_text(so_far)
            if 0 < self.refusals <= len(so_far):
                self.held.unlink()
            raise StoreError("the journal is in use by another process")
        return self.make()


def trial(folder: Path, refusals: int, absent: Absent = "fail") -> tuple[Any, Any]:
    """A session over two actors, whose second one is killed in the fifth request and then refuses
    to start again."""
    learner = FedLSVI(n_agents=4, gamma=8.0, beta=0.5, lam=0.5)

    def transport(plan: Any) -> Any:
        made = endpoint_factories(plan, 2, folder, durable=False, threads=1, lock_seconds=PATIENCE)
        locked = [Locked(make, folder / "held", refusals) for make in made]
        waits = RetryPolicy(PATIENCE, 1, absent=absent)
        run = run_id(plan.parameters, plan.seed)
        return engine.RayTransport(plan.parameters, locked, run, waits, guard_for(plan))

    session = learner.prepare(problems.simplex().envs, 60, 1, transport=transport)
    there: Any = session.player.transport
    inner = there.exchange

    def exchange(frames: Any, deadline: float) -> Any:
        if there.number == 5:
            (folder / "held").write_text("")
            os.kill(there.processes()[1], signal.SIGKILL)
            if absent == "exclude":  # the deadline passes when the first actor has answered
                return islice(inner(frames, deadline), 1)
        return inner(frames, deadline)

    there.exchange = exchange
    return session, learner


@only_ci  # actors that do restart are killed in test_ray.py
@pytest.mark.parametrize("tcp", [True, False])
def test_an_actor_that_could_not_restart_is_replaced(
    tcp: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its journal was held for a while by a machine that was cut off."""
    monkeypatch.setattr(cluster_module, "tcp_allowed", lambda ray: tcp)
    session, learner = trial(tmp_path, refusals=2)
    drive(session, [])
    here = learner.learn(problems.simplex().envs, 60, 1, progress=False)
    assert session.player.server.w.tobytes() == here.w.tobytes()
    (warning, *_) = [r.args for r in caplog.records if r.name == engine.__name__]
    assert warning[0] == "agents 2 to 3"
    assert "the journal is in use by another process" in warning[1]


@only_ci
def test_an_actor_that_never_starts_again_stops_the_run_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "REPLACEMENTS", 1)
    session, _ = trial(tmp_path, refusals=0)
    with refused(TransportError, "actor-not-restarted", "agents 2 to 3", "in use"):
        drive(session, [])


@only_ci
def test_a_run_may_go_on_without_an_actor_that_never_starts_again(tmp_path: Path) -> None:
    session, _ = trial(tmp_path, refusals=0, absent="exclude")
    drive(session, [])
    assert list(session.player.transport.membership.excluded) == [1]
    assert session.player.server.t == 60


@only_ci
def test_an_actor_that_comes_back_behind_a_firewall_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = FedLSVI(n_agents=4, gamma=8.0, beta=0.5, lam=0.5)
    session = learner.prepare(
        problems.simplex().envs, 60, 1, transport=partial(on_ray, cohorts=2, journal=tmp_path)
    )
    transport: Any = session.player.transport
    assert len(transport._connections) == 2
    inner, stopped = transport.exchange, []

    def stop(connection: TcpConnection, key: Any) -> None:
        stopped.append(key.port)
        raise TimeoutError

    def exchange(frames: Any, deadline: float) -> Any:
        if transport.number == 5:
            monkeypatch.setattr(TcpConnection, "open", stop)
            os.kill(transport.processes()[1], signal.SIGKILL)
        return inner(frames, deadline)

    transport.exchange = exchange
    drive(session, [])
    assert len(stopped) == engine.BLOCKED
    assert not transport._connections
    here = learner.learn(problems.simplex().envs, 60, 1, progress=False)
    assert session.player.server.w.tobytes() == here.w.tobytes()


@only_ci
def test_a_busy_cluster_says_what_it_waits_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = cluster_module.ray_library()
    cpus = cluster_module.cpus(ray)

    class Busy:
        def here(self) -> bool:
            return True

    busy = ray.remote(Busy).options(num_cpus=cpus).remote()
    ray.get(busy.here.remote())
    monkeypatch.setattr(cluster_module, "BUSY_SECONDS", 1.0)
    wait = ray.get

    def release(asked: Any, **options: Any) -> Any:
        monkeypatch.setattr(ray, "get", wait)
        ray.kill(busy)
        return wait(asked, **options)

    monkeypatch.setattr(ray, "get", release)
    there = learn(problems.simplex(), transport=partial(on_ray, cohorts=1))
    assert_same(learn(problems.simplex()), there)
    said = [r.getMessage() for r in caplog.records if r.name == cluster_module.__name__]
    assert len(said) == 1
    assert f"1 of 1 actors are waiting for a free CPU: the cluster has {cpus}, and 0 are" in said[0]


def test_actors_with_temporary_journals_stay_on_their_nodes() -> None:
    """CPU after CPU, round the nodes that live; without CPUs, node after node."""

    def nodes(*cpus: int | None) -> Any:
        listed = [{"NodeID": str(i), "Alive": n is not None, "Resources": {"CPU": float(n or 0)}}
                  for i, n in enumerate(cpus)]  # fmt: skip
        return SimpleNamespace(nodes=lambda: listed)

    assert cluster_module.nodes_for(nodes(2, 3), 5) == ["0", "1", "0", "1", "1"]
    assert cluster_module.nodes_for(nodes(1, None, 2), 4) == ["0", "2", "2", "0"]
    assert cluster_module.nodes_for(nodes(0, 0), 3) == ["0", "1", "0"]
    ray = cluster_module.ray_library()
    transport = on_ray(FedLSVI(n_agents=2).prepare(problems.simplex().envs, 9).plan, 2)
    try:
        here = ray.nodes()[0]["NodeID"]
        assert [o["scheduling_strategy"].node_id for o in transport._options] == [here, here]
        assert not any(o["scheduling_strategy"].soft for o in transport._options)
    finally:
        transport.close()


def test_another_address_than_that_of_the_process_is_refused() -> None:
    ray = cluster_module.ray_library()
    here = ray.get_runtime_context().gcs_address
    for address in (None, "auto", here):
        assert cluster_module.connect(address) is False
    with refused(InvalidInput, "other-ray-cluster", here, "10.9.0.1"):
        cluster_module.connect("10.9.0.1:6379")


def test_what_ray_says_when_it_cannot_start_or_be_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**options: Any) -> None:
        raise RuntimeError("no certificates")

    constants = SimpleNamespace(ENABLE_RAY_CLUSTER=True)
    library: Any = SimpleNamespace(
        is_initialized=lambda: False, init=fail, _private=SimpleNamespace(ray_constants=constants)
    )
    with refused(TransportError, "ray-not-started", "no certificates"):
        cluster_module.connect(ray=library)
    with socket.create_server((LOOPBACK, 0)) as listening:
        address = f"{LOOPBACK}:{listening.getsockname()[1]}"
        with refused(TransportError, "ray-not-joined", "no certificates", "RAY_AUTH_TOKEN"):
            cluster_module.connect(address, ray=library)
    with refused(TransportError, "no-ray-cluster", address):
        cluster_module.connect(address, ray=library)


def test_the_logs_of_ray_are_for_their_owner_alone() -> None:
    """They are in its temporary folder, and the text of an error in them may quote a state."""
    inside = Path(cluster_module.ray_library()._private.worker._global_node.temp_dir)
    assert list(inside.glob("session_latest/logs/*"))
    assert not inside.parent.stat().st_mode & 0o077


class Library:
    """Ray as far as its start and its end go."""

    def __init__(self, fails: bool = False) -> None:
        self.fails, self.ended, self.folder = fails, 0, Path()
        self._private = SimpleNamespace(ray_constants=SimpleNamespace(ENABLE_RAY_CLUSTER=True))

    def is_initialized(self) -> bool:
        return False

    def init(self, _temp_dir: str, **options: Any) -> None:
        self.folder = Path(_temp_dir).parent
        assert not self.folder.stat().st_mode & 0o077
        self.inside = Path(_temp_dir)
        (self.inside / "session_latest" / "logs").mkdir(parents=True)
        if self.fails:
            raise RuntimeError("no room")

    def shutdown(self) -> None:
        self.ended += 1
        assert self.folder.exists()


@pytest.fixture
def no_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster of the other tests keeps its folder."""
    monkeypatch.setattr(cluster_module, "_folders", set())
    monkeypatch.setattr(cluster_module.atexit, "register", lambda *given: None)
    monkeypatch.setattr(cluster_module.atexit, "unregister", lambda *given: None)


@pytest.mark.usefixtures("no_folders")
@pytest.mark.parametrize("base", ["", "a-temporary-folder-with-a-long-name/below-another"])
def test_the_folder_of_ray_is_short_and_goes_with_it(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below it are Ray's sockets: /session_ with date, time and process, and /sockets/ a name."""
    if base:
        monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / base))
    library: Any = Library()
    assert cluster_module.connect(ray=library)
    below = "/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
    assert len(f"{library.inside}{below}") <= 107
    cluster_module.end(library)
    assert library.ended == 1
    assert not library.folder.exists()


@pytest.mark.usefixtures("no_folders")
def test_the_folder_of_a_ray_that_did_not_start_is_gone() -> None:
    library: Any = Library(fails=True)
    with refused(TransportError, "ray-not-started", "no room"):
        cluster_module.connect(ray=library)
    assert library.folder.name.startswith("fedlsvi-")
    assert not library.folder.exists()


@pytest.mark.usefixtures("no_folders")
def test_the_logs_of_an_actor_that_failed_stay_and_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    library: Any = Library()
    cluster_module.connect(ray=library)
    cluster_module.keep_logs()
    cluster_module.end(library)
    assert library.ended == 1
    assert f"{library.inside}/session_latest/logs" in caplog.text
    shutil.rmtree(library.folder)


@pytest.mark.skipif(
    not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no such option"
)
def test_a_machine_that_acknowledges_nothing_is_noticed() -> None:
    connection = TcpConnection(1000)
    connection.open(TcpServer(LOOPBACK, lambda frame: frame, 1000).key)
    assert connection._end is not None
    limit = connection._end._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert limit == 1000 * GONE_SECONDS
    connection.close()


LEARNER, ENV = FedLSVI(n_agents=4, gamma=8.0), problems.simplex().envs


def begun(folder: Path, **options: Any) -> Path:
    """A run that was broken off after three rounds."""

    def killed(record: Any) -> None:
        if record.k == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LEARNER.learn(
            ENV, 60, 1, folder=folder, checkpoint_seconds=0.0, observers=[killed], progress=False,
            **options,
        )  # fmt: skip
    return folder


def test_a_run_is_resumed_with_as_many_cohorts(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run", transport=over_frames(2, tmp_path / "journals"))
    with refused(InvalidSetting, "other-cohorts", "2", "3"):
        fedlsvi.resume(folder, env=ENV, transport=over_frames(3, tmp_path / "journals"))
    again = fedlsvi.resume(folder, env=ENV, transport=over_frames(2, tmp_path / "journals"))
    assert_same(LEARNER.learn(ENV, 60, 1, progress=False), again)


def test_a_run_is_resumed_where_its_agents_were(tmp_path: Path) -> None:
    frames = over_frames(1, tmp_path / "journals")
    here, there = begun(tmp_path / "here"), begun(tmp_path / "there", transport=frames)
    with refused(InvalidInput, "other-transport"):
        fedlsvi.resume(there, env=ENV)
    with refused(InvalidInput, "other-transport"):
        fedlsvi.resume(here, env=ENV, transport=frames)
