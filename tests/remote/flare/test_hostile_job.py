"""A job comes from elsewhere: what it names reaches no other folder, and a site is told in a
sentence what is wrong with its own settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kits import JOB, engine, server_kit, site_kit

from expecting import refused
from fedlsvi import envs
from fedlsvi.errors import InvalidInput, InvalidSetting, StoreError
from fedlsvi.remote import site as site_module
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.flare import job as flare
from fedlsvi.remote.flare.signing import Signer
from fedlsvi.remote.flare.transport import SignedSite
from fedlsvi.remote.journal import Journal
from fedlsvi.remote.site import open_books, open_endpoint
from fedlsvi.remote.site_settings import SiteSettings
from fedlsvi.storage import settings_file

SIZES = {"n_states": 20, "n_actions": 4, "dim": 8, "horizon": 5, "seed": 0}
FEDERATION = Federation("trial", episodes=40, horizon=5, dim=8, settings={"gamma": 9.0})


def write(folder: Path, **env: Any) -> Path:
    path = folder / "fedlsvi.toml"
    path.write_text(settings_file.dump({"agents": 2, "durable": False, "env": env}))
    return path


@pytest.mark.parametrize(
    "name", ["../elsewhere", "a/b", "a\\b", "..", ".", "", "trial\n", " trial", "-trial", 5, None]
)
def test_a_name_that_is_no_name_is_refused(name: Any) -> None:
    with refused(InvalidSetting, "bad-name", repr(name)):
        Federation.of(FEDERATION.table() | {"name": name})


def test_a_job_reaches_no_other_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is the path of a folder that somebody else uses: nothing there changes."""
    write(tmp_path, name="random-linear", **SIZES)
    theirs = tmp_path / "elsewhere" / "journal"
    theirs.mkdir(parents=True)
    theirs.chmod(0o755)
    (theirs / "letter.txt").write_text("dear reader")
    signers = server_kit(tmp_path / "server"), site_kit(tmp_path / "startup")
    monkeypatch.setattr(flare, "collab", engine(tmp_path))
    before = {path: path.stat().st_mode for path in tmp_path.rglob("*")}
    for name in (str(tmp_path / "elsewhere"), "../../elsewhere"):
        job = flare.Site(FEDERATION.table() | {"name": name})
        site = SignedSite(job, Signer(signers[0], name, JOB), "south")
        with pytest.raises(flare.SiteTrouble, match="hello failed with InvalidSetting"):
            site.hello()
        with pytest.raises(flare.SiteTrouble, match="join failed with InvalidSetting"):
            site.join(0, 2)
    assert {path: path.stat().st_mode for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(("first", "n_agents"), [(-1, 4), (3, 4), (0, 1), (4, 4)])
def test_agents_that_the_run_does_not_have(first: int, n_agents: int, tmp_path: Path) -> None:
    settings = SiteSettings.read(write(tmp_path, name="random-linear", **SIZES))
    books = open_books(settings, tmp_path / "site")
    with refused(InvalidInput, "no-such-agents", str(n_agents)):
        open_endpoint(FEDERATION, settings, first, n_agents, books)
    for book in books:
        book.close()


@pytest.mark.parametrize(
    ("env", "code", "value"),
    [
        ({"entry": ":make"}, "bad-entry", "':make'"),
        ({"entry": ".x:make"}, "bad-entry", "'.x:make'"),
        ({"entry": "ward..bed:make"}, "bad-entry", "ward..bed:make"),
        ({"entry": "json:"}, "bad-entry", "'json:'"),
        ({"entry": "ward_on_fire:make"}, "entry-failed", "RuntimeError: all out"),
        ({"entry": "ward_that_quits:make"}, "entry-failed", "SystemExit: 3"),
        ({"entry": "ward_of_nonsense:make"}, "entry-failed", "SyntaxError"),
        ({"entry": "builtins:max"}, "entry-not-a-function", "builtins:max"),
        ({"entry": 5}, "bad-env", "entry"),
        ({"name": 5}, "bad-env", "name"),
        ({"gym": ["CartPole-v1"]}, "bad-env", "gym"),
    ],
)
def test_a_wrong_environment_is_refused_in_a_sentence(
    env: dict[str, Any], code: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ward_on_fire.py").write_text("raise RuntimeError('all out')\n")
    (tmp_path / "ward_that_quits.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "ward_of_nonsense.py").write_text("def make(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    with refused(InvalidInput, code, value):
        SiteSettings.read(write(tmp_path, **env))


def test_books_that_cannot_be_opened_are_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the error was, the journal is not "in use by another process" afterwards."""
    settings = SiteSettings.read(write(tmp_path, name="random-linear", **SIZES))

    def broken(*given: Any, **options: Any) -> None:
        raise OSError("no such disk")

    monkeypatch.setattr(site_module, "Audit", broken)
    with pytest.raises(OSError, match="no such disk"):
        open_books(settings, tmp_path / "site")
    Journal(tmp_path / "site" / "journal", durable=False).close()


@pytest.mark.parametrize("name", ["sent.jsonl", "journal"])
def test_the_books_of_a_site_are_not_links(name: str, tmp_path: Path) -> None:
    """Whoever can write into a kit cannot have a log filled or a folder pruned elsewhere."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    if name == "journal":
        elsewhere.mkdir()
        (elsewhere / "1.log").write_text("mine")
    else:
        elsewhere.write_text("mine")
    (home / name).symlink_to(elsewhere)
    settings = SiteSettings(envs.make("random-linear"))
    for _ in range(2):  # and the lock of the journal was let go of
        with refused(StoreError, "linked-file", name):
            open_books(settings, home)
    kept = elsewhere / "1.log" if name == "journal" else elsewhere
    assert kept.read_text() == "mine"
