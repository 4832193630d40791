"""Modules of one's own: named by the command or a variable, found by every registry."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from expecting import refused as raises_refused
from fedlsvi import registry as extensions
from fedlsvi.cli import main
from fedlsvi.envs import names
from fedlsvi.envs import registry as envs_registry
from fedlsvi.errors import InvalidInput
from shell import refused

ROOM = """
import numpy as np
from fedlsvi.envs import FiniteMDP, register
register("my-room", lambda: FiniteMDP(np.ones((1, 2, 1)), np.eye(2)[:1], horizon=2), "one state")
"""

TOY = """
import gymnasium
class Toy(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return 0, {}
    def step(self, action):
        return 1, float(action), False, False, {}
gymnasium.register("Toy-v0", Toy)
"""


pytestmark = pytest.mark.usefixtures("forgotten")


def test_a_file_is_imported_once(tmp_path: Path) -> None:
    path = tmp_path / "my_room.py"
    path.write_text(ROOM)
    assert "my-room" not in names()
    extensions.announce([str(path)])
    assert "my-room" in names()
    extensions.announce([str(path)])  # a second time it would be refused as registered already
    assert "my-room" in names()


def test_a_file_may_import_its_neighbour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change to the neighbour then counts as one to the file."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_neighbour.py").write_text('NAME = "one state"\n')
    path = tmp_path / "my_room.py"
    path.write_text("from my_neighbour import NAME\n" + ROOM.replace('"one state"', "NAME"))
    extensions.announce([str(path)])
    assert envs_registry.entry("my-room").summary == "one state"
    assert extensions.extension_files() == {
        "my_neighbour": tmp_path / "my_neighbour.py", "my_room": path,
    }  # fmt: skip
    del sys.modules["my_neighbour"]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("option", "name", "meant"),
    [("--features", "FourierFeatures", "'fourier'"), ("--env", "RiverSwim", "'river-swim'")],
)
def test_a_class_name_leads_to_the_registered_one(
    option: str, name: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    env = [] if option == "--env" else ["--env", "CartPole-v1"]
    assert meant in refused(capsys, "run", *env, option, name)


def test_a_module_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_room.py").write_text(ROOM)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(extensions.VARIABLE, "my_room")
    assert envs_registry.entry("my-room").summary == "one state"


def test_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name = "pointed"

        def load(self) -> None:
            envs_registry.register("pointed-at", lambda: None, "")  # type: ignore[arg-type, return-value]

    monkeypatch.setattr(extensions, "entry_points", lambda group: [Point()])
    assert "pointed-at" in names()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["no_such_module", "no_such_file.py"])
def test_what_is_not_there_gets_a_sentence(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"no_such_{name[8:12]}" in refused(capsys, "--import", name, "list", "environments")


@pytest.mark.parametrize(
    ("text", "said"),
    [("raise RuntimeError('no')", "RuntimeError: no"), ("def (", "SyntaxError"), ("1 / 0", "Zero")],
)
def test_a_file_that_fails_gets_a_sentence_and_is_not_left_behind(
    here: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "my_room.py").write_text(text)
    message = refused(capsys, "--import", "my_room.py", "list", "environments")
    assert "my_room.py" in message
    assert said in message
    assert "my_room" not in sys.modules


@pytest.mark.parametrize("name", ["platform.py", "second/my_room.py"])
def test_a_file_with_the_name_of_another_module_is_refused(name: str, tmp_path: Path) -> None:
    first, other = tmp_path / "my_room.py", tmp_path / name
    other.parent.mkdir(exist_ok=True)
    for path in (first, other):
        path.write_text(ROOM)
    extensions.announce([str(first), str(other)])
    with raises_refused(InvalidInput, "import-failed", other.stem):
        names()


def test_an_imported_gymnasium_id_is_found_by_whatever_reads_the_folder(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gym = pytest.importorskip("gymnasium")
    (here / "my_toy.py").write_text(TOY)
    play = ["run", "--env", "Toy-v0", "--set", "env.horizon=3", "--episodes", "4", "--out", "first"]
    for line in (play, ["resume", "first"], ["run", "first/settings.toml", "--out", "-"]):
        assert main(["--import", "my_toy.py", *line]) == 0, capsys.readouterr().err
        for path in (here / "first" / "checkpoints").iterdir():
            path.unlink()
        del gym.registry["Toy-v0"], sys.modules["my_toy"]  # as in a new process
        monkeypatch.setenv(extensions.VARIABLE, "")


@pytest.mark.usefixtures("here")
def test_settings_cannot_name_a_module(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that needs a module does not import it by itself."""
    Path("my_room.py").write_text(ROOM)
    known = dict(envs_registry.REGISTRY.rows)
    play = ["run", "--env", "my-room", "--episodes", "20", "--out", "first"]
    assert main(["--import", "my_room.py", *play]) == 0
    monkeypatch.setattr(envs_registry.REGISTRY, "rows", known)
    monkeypatch.setenv(extensions.VARIABLE, "")
    monkeypatch.delitem(sys.modules, "my_room")
    extensions.load_extensions.cache_clear()
    again = ["run", "first/settings.toml", "--out", "-"]
    assert main(again) == 2
    assert "my-room" in capsys.readouterr().err
    assert main(["--import", "my_room.py", *again]) == 0
