"""A project that is written: whose its keys are, and what its job says; nobody is started."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from expecting import refused
from fedlsvi.cli import main
from fedlsvi.errors import InvalidInput, InvalidSetting, MessageRefused, TransportError
from fedlsvi.protocol.records import RoundRecord
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.flare import log as flare_log
from fedlsvi.remote.flare import project
from fedlsvi.remote.flare.demo import free_port
from fedlsvi.remote.flare.provision import flare
from fedlsvi.remote.flare.signing import Signer, Verifier

FEDERATION = Federation("trial", episodes=10, horizon=3, dim=4)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project.init(tmp_path_factory.mktemp("written") / "project", FEDERATION, {"a": {}})


def test_keys_are_for_their_owner_alone(written: Path) -> None:
    """Each file that holds a private key, and each folder above it within the project."""
    holders = {path for path in written.rglob("*")
               if path.is_file() and b"PRIVATE KEY" in path.read_bytes()}  # fmt: skip
    assert {path.name for path in holders} == {"cert.json", "client.key", "server.key"}
    for path in holders | {written}:
        while path != written.parent:
            assert not path.stat().st_mode & 0o077, path
            path = path.parent
    page = (written / "README.md").read_text()
    assert "`provisioned/trial/state/cert.json` contains the keys of the authority" in page


def test_the_page_says_what_the_scripts_of_flare_do_not(written: Path) -> None:
    """They do nothing where a question is not answered, or an old number is somebody else's."""
    page = (written / "README.md").read_text()
    assert "echo y | ./startup/stop_fl.sh" in page
    assert "`rm -f pid.fl daemon_pid.fl`" in page


def test_init_says_who_is_started_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(project, "init", lambda *given: tmp_path)
    file = tmp_path / "federation.toml"
    file.write_text('name = "trial"\nepisodes = 10\nhorizon = 3\ndim = 4\n')
    assert main(["federate", "init", str(file), "--sites", "a", "--out", "x"]) == 0
    said = capsys.readouterr().out
    assert said.index("startup/start.sh") < said.index("fedlsvi federate start")


@pytest.mark.parametrize(
    ("sites", "more", "sums"),
    [
        ("a,b,c", "", "secure"),
        ("a,b", "", None),  # two cannot hide from each other
        ("a,b,c", '[settings]\naggregation = "float"\n', "float"),
        ("a,b,c", '[retry]\nabsent = "carry"\n', None),
        ("a,b,c", '[retry]\nabsent = "wait"\n', "secure"),
        ("a,b,c", '[retry]\nrefused = "refuse"\n', "secure"),
        ("a,b,c", '[retry]\nsuspicious = "exclude"\n', None),
    ],
)
def test_strangers_sums_are_secure_by_default(
    sites: str, more: str, sums: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    made: list[Any] = []
    monkeypatch.setattr(project, "init", lambda out, job, *rest: made.append(job) or tmp_path)
    file = tmp_path / "federation.toml"
    file.write_text('name = "trial"\nepisodes = 10\nhorizon = 3\ndim = 4\n' + more)
    assert main(["federate", "init", str(file), "--sites", sites, "--out", "x"]) == 0
    job, _ = project.with_secure_sums(made[0], len(sites.split(",")))
    assert job.settings.get("aggregation") == sums
    job.check(len(sites.split(",")))
    said = capsys.readouterr().out
    assert ("sums are secure" in said) == (sums == "secure")
    assert ("sums are not secure" in said) == (sums != "secure")


@pytest.mark.parametrize("more", [{}, {"retry": {"absent": "carry"}}], ids=str)
def test_a_project_that_python_writes_has_the_same_sums(
    more: dict[str, Any], tmp_path: Path
) -> None:
    """So do strangers whose organiser writes Python, and the README says where they are not secure;
    the settings of a run that has begun stay."""
    federation = replace(FEDERATION, settings={"gamma": 9.0}, **more)
    folder = project.init(tmp_path / "project", federation, {"a": {}, "b": {}, "c": {}})
    written, _ = project.read(folder)
    sums = None if more else "secure"
    assert written.settings.get("aggregation") == sums
    assert ("not secure" in (folder / "README.md").read_text()) == (sums is None)
    text = (folder / "federation.toml").read_text().replace('aggregation = "secure"\n', "")
    (folder / "federation.toml").write_text(text)
    again, _ = project.renew(folder, tmp_path / "renewed")
    assert "aggregation" not in project.read(again)[0].settings


@pytest.mark.parametrize(
    ("log", "deployed", "said"),
    [
        ("ERROR - this run ends: no site has an agent", ["a: OK"], "no site has an agent"),
        ("", ["server: BYOC not permitted", "a: OK"], "server: BYOC not permitted"),
        ("ComponentNotAuthorized: component not authorized: Component 'other.Class' at config path "
         "'components.#1' is not in allow_list", [],
         "the server refused a class that the job names: Component 'other.Class' at config path "
         "'components.#1' is not in allow_list"),
        ("Aborting current RUN due to FATAL_SYSTEM_ERROR received: failed to sync clients "
         "['north', 'south']\nINFO - Server runner finished.", ["server: OK"],
         "the job ended before north, south started it: a site refused a class in the job, or "
         "could not start its process; see 7/log.txt in the kit of a site"),
        ("ERROR - Client b is deemed disconnected!\nINFO - this run is complete", [],
         "the run is complete, and its results are in the server's kit; FLARE gave up b, which had "
         "not reported its end. `fedlsvi federate start` is safe: it plays nothing more and "
         "finishes the job"),
        ("INFO - Client b is deemed disconnected!", [],
         "FLARE gave up b; see log.txt in the server's kit and 7/log.txt in the kit of a site. "
         "`fedlsvi federate start` continues from the last checkpoint"),
        ("INFO - Server runner finished.", [],
         "the engine ended the job and gave no reason; see log.txt in the server's kit and "
         "7/log.txt in the kit of a site. `fedlsvi federate start` continues from the last "
         "checkpoint"),
        ("INFO - this run has done round 3, at episode 20", [],
         "the server's job ended without a word, as after a kill or where memory runs out; see "
         "log.txt in the server's kit and 7/log.txt in the kit of a site. `fedlsvi federate start` "
         "continues from the last checkpoint"),
        ("WARNING - this run waits: waiting for north since 10:00 UTC (Stop, round 3)\n"
         "INFO - Server runner finished.", [],
         "the engine ended the job while the server was waiting for north since 10:00 UTC (Stop, "
         "round 3); see log.txt in the server's kit and 7/log.txt in the kit of a site. `fedlsvi "
         "federate start` continues from the last checkpoint"),
    ],
)  # fmt: skip
def test_the_reason_of_a_failure(log: str, deployed: list[str], said: str) -> None:
    """In what FLARE's server tells of a job; no site sends its log."""
    connection = session(
        get_job_logs=lambda number: {"logs": {"server": log}},
        get_job_meta=lambda number: {"job_deploy_detail": deployed},
    )
    assert connection.reason("7") == said


def test_who_ended_a_job_is_its_reason() -> None:
    """Its processes end one after the other then, and say that they miss each other."""
    connection = session(
        get_job_logs=lambda number: {"logs": {"server": "this run ends: no answer to Explore"}},
        get_job_meta=lambda number: {"status": "FINISHED:ABORTED"},
    )
    said = connection.reason("7")
    assert "an administrator ended it" in said
    assert "Explore" not in said


def session(**answers: Any) -> Any:
    """A console whose session gives these answers."""
    connection = object.__new__(flare("Console"))
    connection._session = SimpleNamespace(**answers)
    return connection


def test_why_a_job_has_not_begun() -> None:
    """FLARE's last attempt to schedule it."""
    tried = ["2026-01-01 10:00:00: no", "2026-01-01 10:00:10: connected sites (2) < min_sites (3)"]
    connection = session(
        get_job_meta=lambda number: {"status": "SUBMITTED", "schedule_history": tried}
    )
    assert connection.reason("7").startswith(
        "FLARE has not started it (connected sites (2) < min_sites (3)): it waits for all sites"
    )


def test_the_jobs_that_a_server_is_at() -> None:
    """One that has died leaves its jobs as RUNNING for good: those that began before this one have
    failed, and of one that began later, or nobody knows when, that is not known. And a site that is
    not heard is not connected, though FLARE lists it for long."""
    jobs = {"1": "RUNNING", "2": "FINISHED:COMPLETED", "3": "RUNNING", "4": "SUBMITTED",
            "5": "RUNNING", "6": "DISPATCHED"}  # fmt: skip
    began = {n: datetime.fromtimestamp(at, UTC).isoformat() for n, at in (("1", 1799), ("5", 1801))}
    began["6"] = ""  # as FLARE writes it until a job runs
    heard = {"north": 1000.0, "south": 1024.0, "east": 999.0}
    connection = session(
        list_jobs=lambda: [{"job_id": n, "job_name": "t", "status": s} for n, s in jobs.items()],
        get_job_meta=lambda number: {"start_time": began[number]},
        get_system_info=lambda: SimpleNamespace(
            server_info=SimpleNamespace(start_time=1800.0),
            job_info=[SimpleNamespace(job_id="3")],
            client_info=[SimpleNamespace(name=n, last_connect_time=t) for n, t in heard.items()],
        ),
    )
    listed = connection.jobs()
    assert [job["id"] for job in listed if job["alive"]] == ["3", "4"]
    assert {job["id"]: job["status"] for job in listed} == jobs | {"1": "FAILED:SERVER_ENDED"}
    assert connection.sites() == ["north", "south"]


def test_the_rounds_are_read_from_the_log_of_the_job(caplog: pytest.LogCaptureFixture) -> None:
    """Of the last job of this name that has done one: what the server wrote, note by note. What a
    site said is in the middle of a line and counts for nothing."""
    caplog.set_level("INFO")
    note = f"round 2: east's agent 0 excluded (away\n{flare_log.ROUND}9, at episode 99)"
    record = RoundRecord(k=2, first=4, last=8, signals=0, triggers=[], logdet=[], scalars={},
                         regret=None, overshoot=0, seconds={}, notes=[note])  # fmt: skip
    flare_log.tell(record)
    logs = {"1": "x", "2": caplog.text, "3": "no round yet", "4": "x"}
    names = {"1": "t", "2": "t", "3": "t", "4": "other"}
    connection = session(
        get_job_logs=lambda number: {"logs": {"server": logs[number]}},
        list_jobs=lambda: [{"job_id": n, "job_name": j, "status": ""} for n, j in names.items()],
        get_system_info=lambda: SimpleNamespace(job_info=[]),
    )
    said = "round 2: east's agent 0 excluded (away … 9, at episode 99)"
    assert connection.progress("t") == {
        "rounds": 2, "episodes": 8, "notes": [said], "waits": "",
    }  # fmt: skip
    assert connection.progress("other")["rounds"] is None


class Submitted(list[Path]):
    """A console that is told of jobs."""

    status = "FINISHED:ABORTED"

    def jobs(self) -> list[dict[str, Any]]:
        alive = not self.status.startswith("FINISHED")
        return [{"id": "7", "name": "trial", "status": self.status, "alive": alive}]

    def sites(self) -> list[str]:
        return ["a"]

    def submit(self, job: Path) -> str:
        self.append(job)
        return "1"

    def close(self) -> None:
        pass


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> Submitted:
    found = Submitted()
    monkeypatch.setattr(project, "_connect", lambda folder, end: found)
    return found


@pytest.mark.parametrize("status", ["SUBMITTED", "RUNNING"])
def test_a_second_job_is_refused_while_one_has_not_ended(
    status: str, written: Path, submitted: Submitted
) -> None:
    submitted.status = status
    with refused(InvalidInput, "job-under-way", "7", status, "fedlsvi federate abort"):
        project.start(written)
    assert not submitted


def test_the_job_says_what_the_settings_say_now(written: Path, submitted: Submitted) -> None:
    """An operator who changes federation.toml after a failure starts a job with the change."""
    settings = written / "federation.toml"
    before = settings.read_text()
    settings.write_text(before.replace("[retry]", '[retry]\nabsent = "carry"'))
    project.start(written)
    config = submitted[0] / "app" / "config" / "config_fed_server.json"
    assert '"absent": "carry"' in json.dumps(json.loads(config.read_text()))
    assert not list(submitted[0].rglob("*.py"))
    settings.write_text(before.replace("[retry]", "[retry]\nattempts = 0"))
    with refused(InvalidSetting, "bad-attempts", "0"):
        project.start(written)
    assert len(submitted) == 1
    settings.write_text(before)


def test_a_project_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the same command can be given again."""

    def fails(*given: Any, **options: Any) -> Any:
        return SimpleNamespace(returncode=1, stderr="no", stdout="")

    monkeypatch.setattr("subprocess.run", fails)
    with refused(TransportError, "not-provisioned"):
        project.init(tmp_path / "project", FEDERATION, {"a": {}})
    assert not (tmp_path / "project").exists()


def test_no_site_is_called_server(tmp_path: Path) -> None:
    """FLARE calls the server so, and would take the site for it."""
    with refused(InvalidInput, "reserved-name", "'server'"):
        project.init(tmp_path / "project", FEDERATION, {"server": {}})
    assert not (tmp_path / "project").exists()


def test_what_flare_stores_is_for_its_owner_alone(written: Path) -> None:
    _, parties = project.read(written)
    for party in ("localhost", "a"):
        script = written / "kits" / party / "startup" / "sub_start.sh"
        assert script.read_text().splitlines()[1] == "umask 077"
        assert script.stat().st_mode & 0o100
    resources = (written / "kits" / "localhost" / "local" / "resources.json").read_text()
    assert f"/tmp/fedlsvi-{parties['storage']}/jobs-storage" in resources
    assert "/tmp/nvflare" not in resources


def test_the_project_says_how_many_agents_each_site_may_have(written: Path) -> None:
    federation, _ = project.read(written)
    assert federation.max_agents == {"a": 1000}


def test_a_renewed_project_has_new_certificates_and_what_its_parties_had(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The new server is heard by the new kits and by no old one, nor the old server by new kits;
    a party whose kit is elsewhere is named."""
    kits = written / "kits"
    (kits / "a" / "fedlsvi" / "trial" / "journal").mkdir(parents=True)
    (kits / "a" / "fedlsvi" / "trial" / "journal" / "000000004.log").write_bytes(b"seen")
    (kits / "a" / "local" / "fedlsvi.toml").write_text("agents = 3\n")
    kits.joinpath("localhost").rename(tmp_path / "elsewhere")
    try:
        assert main(["federate", "renew", str(written), "--out", str(tmp_path / "new")]) == 0
    finally:
        (tmp_path / "elsewhere").rename(kits / "localhost")
    assert "localhost: its old kit is not here" in capsys.readouterr().out
    new = tmp_path / "new" / "kits"
    journal = new / "a" / "fedlsvi" / "trial" / "journal" / "000000004.log"
    assert journal.read_bytes() == b"seen"
    assert (new / "a" / "local" / "fedlsvi.toml").read_text() == "agents = 3\n"
    assert project.read(tmp_path / "new")[0] == project.read(written)[0]
    for server, site, heard in ((new, new, True), (kits, new, False), (new, kits, False)):
        proof = Signer(server / "localhost" / "startup", "trial", "7").sign("hello", "a", b"")
        verifier = Verifier(site / "a" / "startup", "trial", "7", "a")
        if heard:
            verifier.check("hello", b"", proof)
        else:
            with refused(MessageRefused, "foreign-authority"):
                verifier.check("hello", b"", proof)


def test_status_knows_when_certificates_end(
    written: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """FLARE gives them 360 days; the first of all that are here counts."""
    days = project.certificate_days(written)
    assert days in (358, 359)
    assert project.certificate_days(written / "nowhere") is None
    found = {"name": "trial", "rounds": None, "sites": ["a"], "processes": {}, "server": "silent",
             "jobs": [], "connected": [], "live": None, "waits": ""}  # fmt: skip
    for left, warned in ((29, "29"), (-1, "have ended"), (30, ""), (None, "")):
        state = found | {"certificate_days": left}
        monkeypatch.setattr(project, "status", lambda folder, state=state: state)
        assert main(["federate", "status", str(written)]) == 0
        said = capsys.readouterr().out
        assert ("certificates" in said) == bool(warned)
        assert warned in said


def test_a_free_port_is_not_one_of_outgoing_connections() -> None:
    """Those begin at 32768 on Linux: such a port could be taken while a server restarts."""
    ports = {free_port() for _ in range(50)}
    assert len(ports) > 25
    assert all(20_000 <= port < 32_768 for port in ports)
