"""NVIDIA FLARE for real: a server and three sites, each a process of its own, on loopback."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedlsvi import FedLSVI
from fedlsvi.errors import TransportError
from fedlsvi.federation import project
from fedlsvi.federation.audit import verify
from fedlsvi.federation.demo import free_port
from fedlsvi.federation.job import Federation, environment
from fedlsvi.store import files

# FLARE's threads use what its libraries call deprecated
pytestmark = pytest.mark.filterwarnings("ignore")

SITES = ("site-1", "site-2", "site-3")
ENV = {"name": "random-linear", "n_states": 20, "n_actions": 4, "dim": 8, "horizon": 5, "seed": 0}
FEDERATION = Federation(
    "trial", episodes=240, horizon=5, dim=8, seed=3, settings={"gamma": 60.0},
    patience={"deadline": 20.0, "attempts": 1},
)  # fmt: skip


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project whose parties are running; every process ends with the tests."""
    folder = tmp_path_factory.mktemp("federation") / "project"
    own = {"agents": 1, "env": ENV}
    project.init(folder, FEDERATION, dict.fromkeys(SITES, own), port=free_port())
    project.launch(folder)
    yield folder
    project.stop(folder)
    project.clean(folder)
    shutil.rmtree(folder / "kits")


@pytest.fixture(scope="module")
def finished(federation: Path) -> Path:
    """The same project after its job has ended."""
    number = project.start(federation)
    assert project.wait(federation, number, 240.0) == "FINISHED:COMPLETED"
    return federation


def in_process() -> Any:
    learner = FedLSVI(n_agents=3, **FEDERATION.settings)
    return learner.learn(environment(ENV), FEDERATION.episodes, FEDERATION.seed, progress=False)


def test_same_run_as_in_process(finished: Path) -> None:
    here, server = in_process(), project.server_folder(finished)
    model = files.read_arrays(server / "model.safetensors")
    records = [json.loads(line) for line in (server / "records.jsonl").read_text().splitlines()]
    assert [1, *(r["last"] + 1 for r in records)] == here.taus
    assert model["w"].tobytes() == here.w.tobytes()
    assert model["gram"].tobytes() == here.gram_packed.tobytes()


def test_ledger_is_the_formula_and_control_is_signal(finished: Path) -> None:
    ledger = files.read_json(project.server_folder(finished) / "ledger.json")
    here = in_process().ledger
    for category in ("init", "up_stats", "down_model", "up_raw", "down_raw"):
        assert ledger["scalars"][category] == here.scalars[category]
    assert ledger["scalars"]["signal"] > here.scalars["signal"]


def test_what_left_a_site_is_written_down(finished: Path) -> None:
    """Each site's log is whole and has the scalars of the server's ledger."""
    ledger = files.read_json(project.server_folder(finished) / "ledger.json")
    for site in SITES:
        sent = verify(
            project.site_folder(finished, site) / "sent.jsonl", ledger["every"]["up_stats"]
        )
        assert sent.again == 0
        assert sent.scalars["Signal"] > 0


def test_listens_on_loopback_only(finished: Path) -> None:
    _, parties = project.read(finished)
    port = f"{parties['port']:04X}"
    listening = [
        line.split()[1]
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{port}")
    ]
    assert listening == [f"0100007F:{port}"]


def test_strangers_get_nothing(finished: Path, tmp_path: Path) -> None:
    """No certificate, or one of another authority: not a byte comes back, and no session."""
    _, parties = project.read(finished)
    address = ("127.0.0.1", parties["port"])
    other = project.init(tmp_path / "other", FEDERATION, {"site-1": {}}, port=parties["port"])
    for kit in (None, other / "kits" / "site-1" / "startup"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if kit is not None:
            context.load_cert_chain(kit / "client.crt", kit / "client.key")
        assert _speak(context, address) == b""
    with socket.create_connection(address, 5.0) as plain:
        plain.settimeout(5.0)
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert _read(plain) == b""
    with pytest.raises(TransportError, match="no answer"):
        project._flare("Console")(other / "kits" / project.ADMIN, project.ADMIN, timeout=3.0)


def _speak(context: ssl.SSLContext, address: tuple[str, int]) -> bytes:
    with socket.create_connection(address, 5.0) as raw:
        try:
            with context.wrap_socket(raw) as secure:
                secure.settimeout(5.0)
                secure.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                return _read(secure)
        except (ssl.SSLError, ConnectionError):
            return b""


def _read(connection: socket.socket) -> bytes:
    try:
        return connection.recv(4096)
    except (ssl.SSLError, ConnectionError):
        return b""


def test_a_job_with_code_or_other_classes_is_refused(finished: Path, tmp_path: Path) -> None:
    """Even from the administrator: no party runs what came with a job."""
    assert not list((finished / "job").glob("**/*.py"))
    connection = project.console(finished)
    for change in ("code", "class"):
        job = shutil.copytree(finished / "job" / "trial", tmp_path / change)
        (config,) = job.glob("**/config_fed_client.json")
        if change == "code":
            (config.parent.parent / "custom").mkdir()
            (config.parent.parent / "custom" / "extra.py").write_text("print('here')")
        else:
            named = config.read_text()
            assert "fedlsvi.transports.flare.Site" in named
            config.write_text(named.replace("fedlsvi.transports.flare.Site", "fedlsvi.FedLSVI"))
        number = connection.submit(job)
        end = time.monotonic() + 60.0
        while not (state := connection.job(number)).startswith(("FINISHED", "FAILED")):
            assert time.monotonic() < end, state
            time.sleep(0.3)
        assert state != "FINISHED:COMPLETED", change
    connection.close()


def test_status_and_jobs(finished: Path) -> None:
    found = project.status(finished)
    assert found["episodes"] == FEDERATION.episodes
    assert sorted(found["connected"]) == list(SITES)
    assert found["jobs"][0]["status"] == "FINISHED:COMPLETED"
    assert set(found["processes"]) == {"localhost", *SITES}


def rounds(folder: Path, at_least: int) -> None:
    end = time.monotonic() + 120.0
    while project.progress(folder)["rounds"] < at_least:
        assert time.monotonic() < end, "the run does not move"
        time.sleep(0.01)


def test_kills_of_a_site_and_of_everybody(federation: Path, tmp_path: Path) -> None:
    """SIGKILL a site, then server and sites together, each followed by the job again: the final
    model has the bits of the undisturbed run. The other federation's processes stay as they are."""
    impatient = replace(FEDERATION, name="kills", patience={"deadline": 4.0, "attempts": 1})
    own = {"agents": 1, "env": ENV}
    folder = project.init(
        tmp_path / "project", impatient, dict.fromkeys(SITES, own), port=free_port()
    )
    try:
        project.launch(folder)
        number = project.start(folder)
        rounds(folder, 2)
        project.stop(folder, ["site-2"], kill=True)
        project.launch(folder, ["site-2"])
        assert project.wait(folder, number, 120.0) != "FINISHED:COMPLETED"
        project.start(folder)
        rounds(folder, project.progress(folder)["rounds"] + 2)
        project.stop(folder, kill=True)
        assert project.progress(folder)["episodes"] < FEDERATION.episodes
        project.launch(folder)
        number = project.start(folder)
        assert project.wait(folder, number, 120.0) == "FINISHED:COMPLETED"
    finally:
        project.stop(folder, kill=True)
        project.clean(folder)
    here, model = (
        in_process(),
        files.read_arrays(project.server_folder(folder) / "model.safetensors"),
    )
    assert model["w"].tobytes() == here.w.tobytes()
    assert model["gram"].tobytes() == here.gram_packed.tobytes()
    ledger = files.read_json(project.server_folder(folder) / "ledger.json")
    for site in SITES:
        log = project.site_folder(folder, site) / "sent.jsonl"
        assert verify(log, ledger["every"]["up_stats"]).messages > 0
