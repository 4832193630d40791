"""Modules of one's own: named by the command or a variable, found by every registry."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fedlsvi import extensions
from fedlsvi.cli import main
from fedlsvi.envs import names
from fedlsvi.envs import registry as envs_registry

ROOM = """
import numpy as np
from fedlsvi.envs import FiniteMDP, register
register("my-room", lambda: FiniteMDP(np.ones((1, 2, 1)), np.eye(2)[:1], horizon=2), "one state")
"""


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test imports is gone after it."""
    monkeypatch.setenv(extensions.VARIABLE, "")
    monkeypatch.setattr(envs_registry, "_ENTRIES", dict(envs_registry._ENTRIES))
    monkeypatch.delitem(sys.modules, "my_room", raising=False)
    extensions.load_extensions.cache_clear()


def test_a_file_is_imported_once(tmp_path: Path) -> None:
    path = tmp_path / "my_room.py"
    path.write_text(ROOM)
    assert "my-room" not in names()
    extensions.announce([str(path)])
    assert "my-room" in names()
    extensions.announce([str(path)])  # a second time it would be refused as registered already
    assert "my-room" in names()


def test_a_module_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_room.py").write_text(ROOM)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(extensions.VARIABLE, "my_room")
    assert envs_registry.entry("my-room").summary == "one state"


def test_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        def load(self) -> None:
            envs_registry.register("pointed-at", lambda: None, "")  # type: ignore[arg-type, return-value]

    monkeypatch.setattr(extensions, "entry_points", lambda group: [Point()])
    assert "pointed-at" in names()


@pytest.mark.parametrize("name", ["no_such_module", "no_such_file.py"])
def test_what_is_not_there_gets_a_sentence(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--import", name, "list", "environments"]) == 2
    assert f"no_such_{name[8:12]}" in capsys.readouterr().err


def test_a_file_that_fails_is_not_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "my_room.py"
    path.write_text("raise RuntimeError('no')")
    extensions.announce([str(path)])
    with pytest.raises(RuntimeError, match="no"):
        names()
    assert "my_room" not in sys.modules


def test_settings_cannot_name_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that needs a module does not import it by itself."""
    monkeypatch.chdir(tmp_path)
    Path("my_room.py").write_text(ROOM)
    known = dict(envs_registry._ENTRIES)
    play = ["run", "--env", "my-room", "--episodes", "20", "--out", "first"]
    assert main(["--import", "my_room.py", *play]) == 0
    monkeypatch.setattr(envs_registry, "_ENTRIES", known)
    monkeypatch.setenv(extensions.VARIABLE, "")
    monkeypatch.delitem(sys.modules, "my_room")
    extensions.load_extensions.cache_clear()
    again = ["run", "first/settings.toml", "--out", "-"]
    assert main(again) == 2
    assert "my-room" in capsys.readouterr().err
    assert main(["--import", "my_room.py", *again]) == 0
