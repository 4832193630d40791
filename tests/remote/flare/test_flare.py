"""NVIDIA FLARE for real: a server and three sites, each a process of its own, on loopback. The run
that is looked at here was resumed after a kill of its server."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from parties import FEDERATION, SITES, InThisProcess
from strangers import REQUEST, receive, speak, unregistered, welcome

import fedlsvi
from canary import PATTERN, contents, leaks
from expecting import refused
from fedlsvi.errors import TransportError
from fedlsvi.remote import codec as wire
from fedlsvi.remote.audit import verify
from fedlsvi.remote.flare import project
from fedlsvi.remote.flare.provision import flare, job_store
from fedlsvi.storage import files
from patience import PATIENCE

# FLARE's threads use what its libraries call deprecated
pytestmark = pytest.mark.filterwarnings("ignore")


def test_same_run_as_in_process(finished: Path, undisturbed: InThisProcess) -> None:
    server, ends, _ = undisturbed
    run = fedlsvi.load(project.server_folder(finished))
    assert [record.last for record in run.records] == ends
    assert run.w.tobytes() == server.w.tobytes()
    assert run.gram_packed.tobytes() == server.gram.tobytes()


def test_states_never_leave(finished: Path) -> None:
    """What FLARE sent from the process of site-1, message by message before it was encrypted, has
    the site's uploads and not the pattern that is in all its states and rewards; nor has anything
    that the server keeps."""
    overheard = (finished.parent / "overheard").read_bytes()
    assert overheard.count(wire.MAGIC) > 50
    server = contents(finished / "kits" / "localhost")
    assert leaks({"overheard": overheard, "server": server}) == {}
    kept = contents(project.site_folder(finished, "site-1") / "journal")
    assert kept.count(PATTERN) >= FEDERATION.episodes * 2 * FEDERATION.horizon


def test_no_site_answers_another(finished: Path) -> None:
    """Site-1 called every method of the others over FLARE's own channels, unsigned and signed with
    its key: each was refused, as their logs say, and the run is the one of before."""
    answers = (finished.parent / "answers").read_text().splitlines()
    assert len(answers) >= 2 * 5 * 2
    for answer in answers:
        method = answer.partition(": ")[0].split()[1]
        assert f"SiteTrouble: {method} was refused" in answer, answer
    for site in ("site-2", "site-3"):
        logs = [path.read_text() for path in (finished / "kits" / site).glob("*/log.txt")]
        assert any("handle from site-1 was refused" in log for log in logs)


def test_what_flare_stores_is_for_its_owner_alone(finished: Path) -> None:
    _, parties = project.read(finished)
    store = job_store(parties["storage"])
    assert list(store.rglob("*"))
    assert not store.stat().st_mode & 0o077


def test_ledger_is_the_formula_and_control_is_signal(
    finished: Path, undisturbed: InThisProcess
) -> None:
    ledger = files.read_json(project.server_folder(finished) / "ledger.json", {str: object})
    here = undisturbed.ledger
    for category in ("init", "up_stats", "down_model", "up_raw", "down_raw"):
        assert ledger["scalars"][category] == here.scalars[category]
    assert ledger["scalars"]["signal"] > here.scalars["signal"]


def test_what_left_a_site_is_written_down(finished: Path) -> None:
    """Each site's log is whole and has the scalars of the server's ledger."""
    ledger = files.read_json(project.server_folder(finished) / "ledger.json", {str: object})
    for site in SITES:
        sent = verify(
            project.site_folder(finished, site) / "sent.jsonl", ledger["every"]["up_stats"],
            run=ledger["run"],
        )  # fmt: skip
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
    """No certificate, one of another authority, or a key that nobody registered under the name of a
    site: not a byte comes back, and no session."""
    _, parties = project.read(finished)
    address = ("127.0.0.1", parties["port"])
    other = project.init(tmp_path / "other", FEDERATION, {"site-1": {}}, port=parties["port"])
    assert welcome(finished / "kits" / "site-1" / "startup", address)
    for kit in (None, other / "kits" / "site-1" / "startup", unregistered(tmp_path, "site-1")):
        assert speak(kit, address) == b""
    with socket.create_connection(address, PATIENCE) as plain:
        plain.sendall(REQUEST)
        assert receive(plain) == b""
    with refused(TransportError, "no-server"):
        flare("Console")(other / "kits" / project.ADMIN, project.ADMIN, timeout=3.0)


def test_status_and_jobs(finished: Path) -> None:
    found = project.status(finished)
    assert found["episodes"] == FEDERATION.episodes
    assert sorted(found["connected"]) == list(SITES)
    assert found["jobs"][-1]["status"] == "FINISHED:COMPLETED"
    assert set(found["processes"]) == {"localhost", *SITES}
