"""A project that is written: whose its keys are, and what its job says; nobody is started."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedlsvi.errors import InvalidSetting, TransportError
from fedlsvi.federation import project
from fedlsvi.federation.job import Federation
from fedlsvi.federation.provision import flare

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
    assert "`provisioned/trial/state/cert.json` holds the key of the authority" in page


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
         "the job ended before north, south had begun it: a site refused a class that it names, or "
         "could not start its process; 7/log.txt in the kit of a site says what it was"),
        ("INFO - Server runner finished.", [],
         "log.txt in the server's kit and 7/log.txt in the kit of a site have more"),
    ],
)  # fmt: skip
def test_the_reason_of_a_failure(log: str, deployed: list[str], said: str) -> None:
    """In what FLARE's server tells of a job; no site sends its log."""
    connection = object.__new__(flare("Console"))
    connection._session = SimpleNamespace(
        get_job_logs=lambda number: {"logs": {"server": log}},
        get_job_meta=lambda number: {"job_deploy_detail": deployed},
    )
    assert connection.reason("7") == said


class Submitted(list[Path]):
    """A console that is told of jobs."""

    def submit(self, job: Path) -> str:
        self.append(job)
        return "1"

    def close(self) -> None:
        pass


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> Submitted:
    found = Submitted()
    monkeypatch.setattr(project, "console", lambda folder, seconds: found)
    return found


def test_the_job_says_what_the_settings_say_now(written: Path, submitted: Submitted) -> None:
    """An operator who changes federation.toml after a failure starts a job with the change."""
    settings = written / "federation.toml"
    before = settings.read_text()
    settings.write_text(before.replace("[patience]", '[patience]\nabsent = "carry"'))
    project.start(written)
    config = submitted[0] / "app" / "config" / "config_fed_server.json"
    assert '"absent": "carry"' in json.dumps(json.loads(config.read_text()))
    assert not list(submitted[0].rglob("*.py"))
    settings.write_text(before.replace("[patience]", "[patience]\nattempts = 0"))
    with pytest.raises(InvalidSetting, match="attempts must be at least 1"):
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
    with pytest.raises(TransportError, match="could not provision: no"):
        project.init(tmp_path / "project", FEDERATION, {"a": {}})
    assert not (tmp_path / "project").exists()
