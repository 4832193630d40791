"""A project folder from someone else: no command on it touches files or processes outside it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from expecting import refused
from fedlsvi.errors import FedLSVIError, InvalidInput, StoreError
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.flare import project
from fedlsvi.storage import settings_file

FEDERATION = Federation("trial", episodes=10, horizon=3, dim=4)
PARTIES = {"host": "localhost", "port": 1, "sites": ["north"], "storage": "x"}


def write(folder: Path, **change: Any) -> None:
    """A project without kits."""
    folder.mkdir(exist_ok=True)
    text = settings_file.dump({**FEDERATION.table(), "parties": PARTIES | change})
    (folder / "federation.toml").write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "project")
    for kit in ("localhost", "north"):
        (tmp_path / "project" / "kits" / kit / "fedlsvi" / "trial").mkdir(parents=True)
    return tmp_path / "project"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """Somebody else's folder, laid out as a job and as a kit; it is compared at the end."""
    home = tmp_path / "elsewhere"
    names = ("trial/app/custom/mine.py", "trial/meta.json", "fedlsvi.toml", "startup/mine.sh")
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("precious")
    yield home
    found = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    assert found == set(names)
    assert all((home / name).read_text() == "precious" for name in names)


@pytest.fixture(autouse=True)
def nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server is there, but the job is written before anybody asks for one."""
    silent = SimpleNamespace(jobs=list, sites=lambda: ["north"], submit=str, close=lambda: None)
    monkeypatch.setattr(project, "_connect", lambda folder, end: silent)


@pytest.mark.parametrize("at", ["job", "job/trial", "job/trial/app"])
def test_the_job_is_written_through_no_link(at: str, folder: Path, elsewhere: Path) -> None:
    (folder / at).parent.mkdir(parents=True, exist_ok=True)
    target = {"job": elsewhere, "job/trial": elsewhere / "trial"}.get(
        at, elsewhere / "trial" / "app"
    )
    (folder / at).symlink_to(target)
    with refused(StoreError, "linked-file", at):
        project.start(folder)


@pytest.mark.parametrize("at", ["kits", "kits/north", "kits/north/fedlsvi", "kits/north/local",
                                "kits/north/local/fedlsvi.toml"])  # fmt: skip
def test_a_renewed_kit_holds_nothing_from_elsewhere(
    at: str, folder: Path, elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is handed out: what a link leads to would be handed out with it."""
    monkeypatch.setattr(project, "init", lambda out, *given: shutil.copytree(folder, out))
    shutil.rmtree(folder / at, ignore_errors=True)
    (folder / at).parent.mkdir(parents=True, exist_ok=True)
    (folder / at).symlink_to(elsewhere / "fedlsvi.toml" if at.endswith("toml") else elsewhere)
    with refused(StoreError, "linked-file", at):
        project.renew(folder, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_stop_ends_no_process_of_somebody_else(folder: Path, elsewhere: Path) -> None:
    """A party is ended with every process that names its kit: so a name must be that of a kit."""
    kit = elsewhere / "kits" / "north"
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)", str(kit)])
    try:
        for name in (str(kit), f"../../{elsewhere.name}/kits/north"):
            (folder / "running.json").write_text(f'{{"{name}": {sleeper.pid}}}')
            project.stop(folder, kill=True)
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


@pytest.mark.parametrize("change", [
    {"host": "../elsewhere"}, {"sites": ["/etc"]}, {"sites": [".."]}, {"storage": "x/../../etc"},
    {"host": 3}, {"sites": "north"}, {"storage": None},
])  # fmt: skip
@pytest.mark.parametrize("act", [
    project.launch, project.start, project.status, project.clean, project.abort,
    project.server_folder,
], ids=lambda act: act.__name__)  # fmt: skip
def test_parties_that_are_no_names_are_refused(
    change: dict[str, Any], act: Callable[[Path], Any], folder: Path
) -> None:
    table = PARTIES | {key: value for key, value in change.items() if value is not None}
    table = {key: value for key, value in table.items() if change.get(key, value) is not None}
    text = settings_file.dump({**FEDERATION.table(), "parties": table})
    (folder / "federation.toml").write_text(text)
    with refused(InvalidInput, "no-parties", "federation.toml"):
        act(folder)


def test_settings_are_read_through_no_link(folder: Path, elsewhere: Path) -> None:
    (folder / "federation.toml").unlink()
    (folder / "federation.toml").symlink_to(elsewhere / "fedlsvi.toml")
    with refused(StoreError, "linked-file", "federation.toml"):
        project.read(folder)


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 100_000, "a" * 1_000_000, "\0", "episodes = 1e999"]
)
def test_settings_that_are_nonsense_get_a_sentence(text: str, folder: Path) -> None:
    (folder / "federation.toml").write_text(text)
    with pytest.raises(FedLSVIError):
        project.read(folder)
