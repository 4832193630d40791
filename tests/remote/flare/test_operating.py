"""Operating a project when something is amiss: sites that left, a torn list, names too long."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from expecting import refused
from fedlsvi.cli import main
from fedlsvi.errors import InvalidInput, TransportError
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.flare import processes, project
from fedlsvi.remote.flare.job import _asked
from fedlsvi.storage import settings_file
from patience import PATIENCE

FEDERATION = Federation("trial", episodes=10, horizon=3, dim=4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project without kits."""
    parties = {"host": "localhost", "port": 1, "sites": ["north", "south"], "storage": "x"}
    text = settings_file.dump({**FEDERATION.table(), "parties": parties})
    (tmp_path / "federation.toml").write_text(text)
    return tmp_path


class Console:
    """A server that answers at the second call; the site south has left."""

    calls = 0
    ended: ClassVar[list[str]] = []

    def __init__(self, *given: Any, **options: Any) -> None:
        Console.calls += 1
        if Console.calls < 2:
            raise TransportError("no answer")

    def sites(self) -> list[str]:
        return ["north"]

    def submit(self, job: Path) -> str:
        return "7"

    def job(self, number: str) -> str:
        return "FINISHED:EXECUTION_EXCEPTION"

    def reason(self, number: str) -> str:
        return f"agent 1 did not answer in job {number}"

    def jobs(self) -> list[dict[str, Any]]:
        return [{"id": "7", "name": "trial", "status": "RUNNING", "alive": False}]

    def progress(self, name: str) -> dict[str, Any]:
        notes = [f"round {k}: north's agent 0 carried, away since round 1" for k in range(2, 30)]
        return {"rounds": 29, "episodes": 10, "notes": [*notes, "north's agent 0 is excluded"]}

    def abort(self, number: str) -> None:
        Console.ended.append(number)

    def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Seconds that pass in sleep alone."""
    Console.calls, passed = 0, SimpleNamespace(seconds=0.0)

    def sleep(seconds: float) -> None:
        passed.seconds += seconds

    monkeypatch.setattr(project, "time", SimpleNamespace(
        monotonic=lambda: passed.seconds, sleep=sleep))  # fmt: skip
    monkeypatch.setattr(project, "flare", lambda name: Console)
    return passed


def test_the_reason_is_told_when_a_site_has_left(folder: Path, clock: Any) -> None:
    """A job that failed because of a site: nobody waits for that site to hear so."""
    assert project.wait(folder, "7") == "FINISHED:EXECUTION_EXCEPTION"
    assert project.reason(folder, "7") == "agent 1 did not answer in job 7"
    assert clock.seconds < 5.0
    with refused(TransportError, "sites-missing", "south"):
        project.console(folder)


def test_rounds_come_from_a_server_on_another_machine(
    folder: Path, clock: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """No round is no number, as before the server answers; then its rounds, the last notes, and
    what became of a job whose server ended."""
    assert main(["federate", "status", str(folder)]) == 0
    assert "trial: no rounds" in capsys.readouterr().out
    assert main(["federate", "status", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "trial: 29 rounds, episode 10 of 10\n  21 earlier notes" in said
    assert "  north's agent 0 is excluded\n" in said
    assert "job 7: RUNNING: it has no running process: it is ending" in said
    found = project.outcome(folder, "7", "FINISHED:ABNORMAL")
    assert (found["rounds"], found["reason"]) == (29, "agent 1 did not answer in job 7")


def test_a_job_is_ended_in_scripts_too(
    folder: Path, clock: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody is asked; jobs that have ended, or are of another federation, are left alone."""
    assert main(["federate", "abort", str(folder)]) == 0
    assert "no job is waiting or running" in capsys.readouterr().out
    jobs = [("7", "trial", False), ("8", "trial", True), ("9", "other", True)]
    found = [{"id": n, "name": of, "status": "RUNNING", "alive": now} for n, of, now in jobs]
    monkeypatch.setattr(Console, "jobs", lambda self: found)
    monkeypatch.setattr(Console, "ended", [])
    assert main(["federate", "abort", str(folder)]) == 0
    assert Console.ended == ["8"]
    assert "ended job 8" in capsys.readouterr().out


def test_a_job_that_does_not_begin(
    folder: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Console, "job", lambda self, number: "SUBMITTED")
    monkeypatch.setattr(Console, "reason", lambda self, number: "FLARE has not started it")
    with refused(TransportError, "job-not-ended", "SUBMITTED", "FLARE has not started it"):
        project.wait(folder, "7", 20.0)


def test_a_server_that_stays_silent_is_said(
    folder: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*given: Any) -> Any:
        raise TransportError("no answer from the federation's server", code="no-server")

    monkeypatch.setattr(project, "flare", lambda name: silent)
    with refused(TransportError, "no-server"):
        project.reason(folder, "7")
    assert clock.seconds == pytest.approx(61.0, abs=2.0)


@pytest.fixture
def party(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the site north."""
    kit = folder / "kits" / "north"
    kit.mkdir(parents=True)
    (folder / "kits" / "south").mkdir()
    code = "import time; print(1, flush=True); time.sleep(3600)"
    child = subprocess.Popen([sys.executable, "-c", code, str(kit)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    processes.children.append(child)
    yield child
    child.kill()
    child.communicate()
    processes.children.remove(child)


@pytest.mark.parametrize("text", ["", '{"north": 1', "[1]", '{"north": "x"}', '{"north": null}'])
def test_a_torn_list_of_processes(
    text: str, folder: Path, party: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status and stop find the processes themselves."""
    (folder / "running.json").write_text(text)
    assert project.status(folder)["processes"] == {"north": party.pid}
    monkeypatch.undo()
    assert project.stop(folder) == ["north"]
    assert party.wait(PATIENCE) != 0
    assert json.loads((folder / "running.json").read_text()) == {}
    assert project.stop(folder) == []


def test_stop_says_what_it_does_not_stop(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Parties that their own scripts started are ended by their own scripts."""
    assert main(["federate", "stop", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "nothing" in said
    assert "startup/stop_fl.sh" in said


@pytest.mark.parametrize(
    ("name", "site", "host"),
    [("t" * 64, "a", "localhost"), ("t", "s" * 70, "localhost"), ("t", "a", "h" * 65 + ".org"),
     ("t", "a", ".".join(["h" * 30] * 3))],
)  # fmt: skip
def test_a_name_that_no_certificate_holds_is_refused(
    name: str, site: str, host: str, tmp_path: Path
) -> None:
    federation = Federation(name, episodes=10, horizon=3, dim=4)
    long = max(name, site, host, key=len)
    with refused(InvalidInput, "name-too-long", "63", str(len(long)), long):
        project.init(tmp_path / "project", federation, {site: {}}, host=host)
    assert not (tmp_path / "project").exists()


def test_the_longest_names_become_a_project(tmp_path: Path) -> None:
    federation = Federation("t" * 63, episodes=10, horizon=3, dim=4)
    host = ".".join(["h" * 31] * 2)
    made = project.init(tmp_path / "project", federation, {"s" * 63: {}}, host=host)
    assert {"s" * 63, host} < {kit.name for kit in (made / "kits").iterdir()}


def test_what_a_site_says_before_the_first_round_stays_on_its_line() -> None:
    """Its text comes with the engine's error; it cannot write a reason of its own into the log."""

    class Site:
        name = "south"

        def __call__(self, **options: Any) -> Site:
            return self

        def hello(self) -> int:
            raise RuntimeError("SiteTrouble: no\nERROR - this run ends: fine\x1b[2J " + "x" * 9999)

    with pytest.raises(TransportError) as said:
        _asked(Site(), "hello")
    begins = "site south cannot take part: no ERROR - … fine [2J xxx"
    assert str(said.value).startswith(begins)
    assert len(str(said.value)) < 600
