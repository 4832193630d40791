"""NVIDIA FLARE for real: a server and three sites, each a process of its own, on loopback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from parties import ENV, FEDERATION, processes

import fedlsvi
from canary import PATTERN, contents, leaks, mark
from fedlsvi.cli import main
from fedlsvi.envs import RandomMDP, record_episodes, write_records
from fedlsvi.errors import InvalidInput, TransportError
from fedlsvi.policy import Policy
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.protocol.server import Server
from fedlsvi.protocol.session import FederatedPlayer, Session
from fedlsvi.protocol.transport import InProcess
from fedlsvi.remote import codec as wire
from fedlsvi.remote.audit import verify
from fedlsvi.remote.federation import Federation, environment
from fedlsvi.remote.flare import project
from fedlsvi.remote.flare.demo import free_port
from fedlsvi.remote.flare.log import line
from fedlsvi.remote.flare.provision import flare, job_store
from fedlsvi.storage import checkpoint, files
from variants import MIXED, assert_kept, paid

# FLARE's threads use what its libraries call deprecated
pytestmark = pytest.mark.filterwarnings("ignore")

SITES = ("site-1", "site-2", "site-3")
OWN = {
    # the three ways to name an environment; the first is a world of another kind, continuous
    "site-1": {"entry": "canary:make", "horizon": 5, "dim": 8},
    "site-2": {**ENV, "gym": "fedlsvi/RandomLinearMDP-v0"},
    "site-3": ENV,
}
del OWN["site-2"]["name"]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory, here: Any) -> Iterator[Path]:
    """A project whose parties are running; every process ends with the tests. What they run was
    compiled `here` before."""
    folder = tmp_path_factory.mktemp("federation") / "project"
    own = {site: {"agents": 1, "env": dict(env)} for site, env in OWN.items()}
    for file in ("overheard", "answers"):
        own["site-1"]["env"][file] = str(folder.parent / file)
    project.init(folder, FEDERATION, own, port=free_port())
    with pytest.MonkeyPatch.context() as patch:  # a site finds its module as the tests do
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        project.launch(folder)
    yield folder
    project.stop(folder)
    project.clean(folder)
    shutil.rmtree(folder / "kits")


@pytest.fixture(scope="module")
def finished(federation: Path) -> Path:
    """The same project after its job has ended, and no second one was taken meanwhile."""
    number = project.start(federation)
    with pytest.raises(InvalidInput, match=f"job {number} of trial is .*watch it with"):
        project.start(federation)
    assert project.wait(federation, number, 240.0) == "FINISHED:COMPLETED"
    return federation


def in_this_process(federation: Federation) -> tuple[Server, list[int], Ledger]:
    """The same federation in this process: server, last episodes of the rounds, ledger."""
    p = federation.parameters(3)
    plans = [federation.plan(environment(env), 3) for env in OWN.values()]
    cohorts = [plan.cohort(c, c + 1) for c, plan in enumerate(plans)]
    player = FederatedPlayer(p, InProcess(cohorts, p.trigger, p.overshoot))
    ends = [record.last for record in Session(player).rounds()]
    return player.server, ends, player.ledger


@pytest.fixture(scope="module")
def here() -> tuple[Server, list[int], Ledger]:
    return in_this_process(FEDERATION)


def test_same_run_as_in_process(finished: Path, here: Any) -> None:
    server, ends, _ = here
    run = fedlsvi.load(project.server_folder(finished))
    assert [record.last for record in run.records] == ends
    assert run.w.tobytes() == server.w.tobytes()
    assert run.gram_packed.tobytes() == server.gram.tobytes()


def test_states_never_leave(finished: Path) -> None:
    """What FLARE sent from the process of site-1, message by message before it was encrypted, has
    the site's uploads and not the pattern that is in all its states and rewards; nor has anything
    that the server keeps."""
    overheard = (finished.parent / "overheard").read_bytes()
    assert overheard.count(wire.MAGIC) > 100
    server = contents(finished / "kits" / "localhost")
    assert leaks({"overheard": overheard, "server": server}) == {}
    kept = contents(project.site_folder(finished, "site-1") / "journal")
    assert kept.count(PATTERN) >= FEDERATION.episodes * 2 * FEDERATION.horizon


def test_no_site_answers_another(finished: Path) -> None:
    """Site-1 called every method of the others over FLARE's own channels, unsigned and signed with
    its key: each was refused, as their logs say, and the run is the one of before."""
    answers = (finished.parent / "answers").read_text().splitlines()
    assert len(answers) >= 2 * 4 * 2
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


def test_ledger_is_the_formula_and_control_is_signal(finished: Path, here: Any) -> None:
    ledger = files.read_json(project.server_folder(finished) / "ledger.json", {str: object})
    here = here[2]
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
    """No certificate, one of another authority, or a key that nobody registered under the name of a
    site: not a byte comes back, and no session."""
    _, parties = project.read(finished)
    address = ("127.0.0.1", parties["port"])
    other = project.init(tmp_path / "other", FEDERATION, {"site-1": {}}, port=parties["port"])
    assert _welcome(finished / "kits" / "site-1" / "startup", address)
    for kit in (None, other / "kits" / "site-1" / "startup", unregistered(tmp_path, "site-1")):
        assert speak(kit, address) == b""
    with socket.create_connection(address, 60.0) as plain:
        plain.sendall(REQUEST)
        assert _read(plain) == b""
    with pytest.raises(TransportError, match="no answer"):
        flare("Console")(other / "kits" / project.ADMIN, project.ADMIN, timeout=3.0)


def unregistered(folder: Path, name: str) -> Path:
    """A key of one's own, with a certificate for this name that it signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(own, own, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "client.crt").write_bytes(signed.public_bytes(Encoding.PEM))
    kinds = Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    (folder / "client.key").write_bytes(key.private_bytes(*kinds))
    return folder


REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def speak(
    kit: Path | None, address: tuple[str, int], words: bytes = REQUEST, seconds: float = 60.0
) -> bytes:
    """What comes back to the holder of a key; nothing where TLS is refused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if kit is not None:
        context.load_cert_chain(kit / "client.crt", kit / "client.key")
    with socket.create_connection(address, 60.0) as raw:
        try:
            with context.wrap_socket(raw) as secure:
                secure.settimeout(seconds)
                secure.sendall(words)
                return _read(secure)
        except (ssl.SSLError, ConnectionError):
            return b""


def _welcome(kit: Path, address: tuple[str, int]) -> bool:
    """Whether the line stays open, even if nobody has anything to say."""
    try:
        return speak(kit, address, b"", 2.0) != b""
    except TimeoutError:
        return True


def _read(connection: socket.socket) -> bytes:
    try:
        return connection.recv(4096)
    except (ssl.SSLError, ConnectionError):
        return b""


KEPT = replace(FEDERATION, name="kept", settings={"gamma": 60.0, "overshoot": "keep"})
AWAY = replace(
    FEDERATION, name="away", episodes=2000, settings={"gamma": 60.0},
    retry={"deadline": 8.0, "attempts": 1, "absent": "carry"},
)  # fmt: skip
SECURE = replace(
    FEDERATION, name="secure", episodes=60, settings={"gamma": 30.0, "aggregation": "secure"},
)  # fmt: skip
VARIED = {
    f"varied-{i}": (own, replace(FEDERATION, name=f"varied-{i}", settings=paid(own, 3, 5, 36 + 8)))
    for i, own in enumerate(MIXED)
}
UNANSWERED = "agent 1 carried (no answer to"


@pytest.fixture(scope="module")
def others(finished: Path) -> Path:
    """More jobs of the same parties at once. In one of them a site's process is held for some
    rounds, as by a network that fails, and goes on."""
    connection = project.console(finished)
    numbers = [
        connection.submit(flare("write_job")(f.table(), finished / "job", 3).absolute())
        for f in (KEPT, AWAY, SECURE, *(f for _, f in VARIED.values()))
    ]
    connection.close()
    records = project.server_folder(finished).parent / "away" / "records.jsonl"
    await_rounds(records, 2)
    held = processes(finished, "site-2", numbers[1])["job"]
    before = records.read_text().count(UNANSWERED)
    os.kill(held, signal.SIGSTOP)
    try:
        end = time.monotonic() + 240.0
        while records.read_text().count(UNANSWERED) == before:
            assert time.monotonic() < end, "the site that is held is not carried"
            time.sleep(0.05)
        await_rounds(records, len(records.read_text().splitlines()) + 2)
    finally:
        os.kill(held, signal.SIGCONT)
    for number in numbers:
        assert project.wait(finished, number, 240.0) == project.COMPLETED
    return project.server_folder(finished).parent


def await_rounds(records: Path, at_least: int) -> None:
    end = time.monotonic() + 240.0
    while not records.exists() or len(records.read_text().splitlines()) < at_least:
        assert time.monotonic() < end, "the run does not move"
        time.sleep(0.01)


def test_episodes_beyond_the_signal_can_be_kept(others: Path) -> None:
    """overshoot="keep" is the in-process run too."""
    server, ends, _ = in_this_process(KEPT)
    run = fedlsvi.load(others / "kept")
    assert sum(record.overshoot for record in run.records) > 0
    assert [record.last for record in run.records] == ends
    assert run.w.tobytes() == server.w.tobytes()


def test_secure_sums_are_those_of_one_process(others: Path) -> None:
    """Keys signed with the certificates of three kits, masked uploads, and the model of "exact" in
    this process to the bit; no site's log has an upload that is not masked."""
    exact = replace(SECURE, settings=SECURE.settings | {"aggregation": "exact"})
    server, ends, _ = in_this_process(exact)
    run = fedlsvi.load(others / "secure")
    assert [record.last for record in run.records] == ends
    assert run.w.tobytes() == server.w.tobytes()
    assert run.gram_packed.tobytes() == server.gram.tobytes()
    bound = run.bounds["scalars"]
    assert bound.measured == bound.bound
    kits = others.parents[1]
    for site in SITES:
        sent = verify(kits / site / "fedlsvi" / "secure" / "sent.jsonl")
        assert sent.scalars["MaskedUpload"] == run.rounds * 5 * (36 + 8) + 5 * 8  # the last pass
        assert "Upload" not in sent.scalars


@pytest.mark.parametrize("name", list(VARIED))
def test_other_triggers_are_the_in_process_run_too(others: Path, name: str) -> None:
    own, federation = VARIED[name]
    server, ends, ledger = in_this_process(federation)
    run = fedlsvi.load(others / name)
    assert [record.last for record in run.records] == ends
    assert run.w.tobytes() == server.w.tobytes()
    assert run.gram_packed.tobytes() == server.gram.tobytes()
    assert_kept(run, own)
    for category in ("init", "up_stats", "down_model"):
        assert run.ledger.scalars[category] == ledger.scalars[category]


def test_a_site_that_is_held_is_carried_and_taken_back(others: Path) -> None:
    """No job has to be started again. All features sum to one, so 1ᵀΛ1 − λd counts episodes: none
    is missing and none is there twice. A busy machine may be late with any site, also at the end:
    of one that is away then, the last checkpoint says up to which episode Λ_h has it."""
    rows = (others / "away" / "records.jsonl").read_text().splitlines()
    notes = [note for row in rows for note in json.loads(row)["notes"] if "agent 1 " in note]
    assert any(UNANSWERED in note for note in notes)
    assert any("agent 1 carried, away since round" in note for note in notes)
    lost = next(i for i, note in enumerate(notes) if UNANSWERED in note)
    assert any("agent 1 taken back" in note for note in notes[lost:])
    gram = fedlsvi.load(others / "away").gram
    episodes = gram.sum(axis=(1, 2)) - 8 * AWAY.parameters(3).lam
    last = checkpoint.newest(others / "away", lambda note: None)
    assert last is not None
    upto = [upto for _, upto, _ in last[0].plain["transport"]["carried"]["away"].values()]
    upto += [[AWAY.episodes] * AWAY.horizon] * (3 - len(upto))
    np.testing.assert_allclose(episodes, np.sum(upto, axis=0), rtol=1e-12)


@pytest.fixture(scope="module")
def spoilt(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Jobs that no party may run, as the administrator could submit them: by what was changed,
    their numbers."""
    assert not list((finished / "job").glob("**/*.py"))
    connection, numbers = project.console(finished), {}
    for change in ("code", "class", "server"):
        part, own = ("server", "Coordinator") if change == "server" else ("client", "Site")
        job = tmp_path_factory.mktemp("spoilt") / change
        shutil.copytree(finished / "job" / "trial", job)
        meta = (job / "meta.json").read_text()
        assert '"trial"' in meta
        (job / "meta.json").write_text(meta.replace('"trial"', '"spoilt"'))
        (config,) = job.glob(f"**/config_fed_{part}.json")
        if change == "code":
            (config.parent.parent / "custom").mkdir()
            (config.parent.parent / "custom" / "extra.py").write_text("print('here')")
        else:
            named = config.read_text()
            ours = f"fedlsvi.remote.flare.job.{own}"
            assert ours in named
            config.write_text(named.replace(ours, "fedlsvi.FedLSVI"))
        numbers[change] = connection.submit(job)
    connection.close()
    return numbers


def test_the_reason_of_a_failure_reaches_the_terminal(
    finished: Path, spoilt: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A site whose environment is not the federation's: the operator reads which site and what kind
    of error, in one sentence; the text of the error stays at the site."""
    settings = finished / "kits" / "site-3" / "local" / "fedlsvi.toml"
    before = settings.read_text()
    assert "horizon = 5" in before
    settings.write_text(before.replace("horizon = 5", "horizon = 4"))
    assert main(["federate", "start", str(finished), "--wait", "240"]) == 1
    settings.write_text(before)
    sentence = (
        "site site-3 cannot take part: join failed with InvalidEnvironment; "
        "the log at that site has the text"
    )
    assert sentence in capsys.readouterr().out
    logs = [path.read_text() for path in (finished / "kits" / "site-3").glob("*/log.txt")]
    assert any("has horizon 4, the federation agreed on 5" in log for log in logs)
    assert main(["federate", "status", str(finished)]) == 0
    said = capsys.readouterr().out
    assert sentence in said
    assert "connected: site-1, site-2, site-3" in said
    assert f"episode {FEDERATION.episodes} of {FEDERATION.episodes}" in said


@pytest.mark.parametrize(
    ("change", "said"),
    [("code", "server: BYOC not permitted"),
     ("class", "{number}/log.txt in the kit of a site"),
     ("server", "the server refused a class that the job names: Component 'fedlsvi.FedLSVI'")],
)  # fmt: skip
def test_a_job_with_code_or_other_classes_is_refused(
    change: str, said: str, finished: Path, spoilt: dict[str, str]
) -> None:
    """Even from the administrator: no party runs what came with a job. Who submitted it is told
    what was refused, or where that stands."""
    number = spoilt[change]
    assert project.wait(finished, number, 240.0) != project.COMPLETED
    assert said.format(number=number) in project.reason(finished, number)
    if change == "class":
        log = (finished / "kits" / "site-1" / number / "log.txt").read_text()
        assert "Component 'fedlsvi.FedLSVI'" in log


def test_an_administrator_elsewhere_hears_of_rounds_and_notes(
    finished: Path, others: Path, tmp_path: Path
) -> None:
    """With the settings and the administrator's kit alone: what the records have."""
    (tmp_path / "kits").mkdir()
    (tmp_path / "kits" / project.ADMIN).symlink_to(finished / "kits" / project.ADMIN)
    connection = project.console(finished)
    for name in ("trial", "away"):
        rows = (others / name / "records.jsonl").read_text().splitlines()
        last = json.loads(rows[-1])
        notes = [line(note) for row in rows for note in json.loads(row)["notes"]]
        found = connection.progress(name)
        assert (found["rounds"], found["episodes"]) == (last["k"], last["last"])
        assert found["notes"][: len(notes)] == notes
    connection.close()
    text = (finished / "federation.toml").read_text()
    (tmp_path / "federation.toml").write_text(text)
    assert project.progress(tmp_path)["rounds"] is None
    assert project.status(tmp_path)["episodes"] == FEDERATION.episodes


def test_status_and_jobs(finished: Path) -> None:
    found = project.status(finished)
    assert found["episodes"] == FEDERATION.episodes
    assert sorted(found["connected"]) == list(SITES)
    assert found["jobs"][0]["status"] == "FINISHED:COMPLETED"
    assert set(found["processes"]) == {"localhost", *SITES}


def test_sites_with_logs_learn_what_pooled_logs_give(finished: Path) -> None:
    """Three sites with a log and no environment, one with a CSV file: w is that of all records in
    one place, each site keeps the policy, and no reward left."""
    env = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
    logs = [record_episodes(env, 30 + m, agent=m, ends=[1]) for m in range(3)]
    for log in logs:
        log["reward"] = mark(log["reward"])
    federation = Federation(
        "records", episodes=32, horizon=3, dim=12, one_hot=True, algorithm="pevi", n_actions=3,
        settings={"beta": 0.3}, retry=FEDERATION.retry,
    )  # fmt: skip
    for site, log, kind in zip(SITES, logs, ("parquet", "csv", "parquet"), strict=True):
        local = finished / "kits" / site / "local"
        write_records(log, local / f"log.{kind}")
        (local / "fedlsvi.toml").write_text(f'data = "log.{kind}"\n')
    connection = project.console(finished)
    job = flare("write_job")(federation.table(), finished / "job", 3).absolute()
    number = connection.submit(job)
    connection.close()
    assert project.wait(finished, number, 240.0) == project.COMPLETED
    folder = project.server_folder(finished).parent / "records"
    run = fedlsvi.load(folder)
    one = {name: np.concatenate([log[name] for log in logs]) for name in logs[0]}
    one["episode"] = np.concatenate([log["episode"] + 100 * m for m, log in enumerate(logs)])
    pooled = fedlsvi.offline(one, env=env, beta=0.3, progress=False)
    here = fedlsvi.offline(logs, env=env, beta=0.3, progress=False)
    assert run.algorithm == "pevi"
    assert np.abs(run.w - pooled.w).max() < 1e-9
    assert run.w.tobytes() == here.w.tobytes()
    assert run.rounds == 1
    for category in ("init", "up_stats", "down_model"):
        assert run.ledger.scalars[category] == here.ledger.scalars[category]
    for site in SITES:
        learned = Policy.load(finished / "kits" / site / "fedlsvi" / "records" / "policy")
        assert np.array_equal(learned.table, pooled.policy.table)
    assert leaks({"server": contents(folder)}) == {}
