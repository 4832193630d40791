"""What `--import` brings in: edited, it asks another question; its errors and its names' commas."""

from __future__ import annotations

import os
import re
import shlex
import sys
from html import unescape
from pathlib import Path

import pytest

from fedlsvi import registry as extensions
from fedlsvi.algorithms import registry as algorithms_registry
from fedlsvi.cli import main
from fedlsvi.envs import names
from fedlsvi.envs import registry as envs_registry
from repeats import repeats

ROOM = """
import numpy as np
from fedlsvi.envs import FiniteMDP, register
register("my-room", lambda: FiniteMDP(np.ones((1, 2, 1)), np.eye(2)[:1], horizon=2), "one state")
"""

ELSEWHERE = """
import multiprocessing
import numpy as np
from fedlsvi.envs import FiniteMDP, register
class Both(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")
def room():
    if multiprocessing.parent_process() is not None:
        raise Both("this", "that")
    return FiniteMDP(np.ones((1, 2, 1)), np.eye(2)[:1], horizon=2)
register("my-room", room, "not in another process")
"""


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test imports is gone after it."""
    monkeypatch.setenv(extensions.VARIABLE, "")
    for registry in (envs_registry, algorithms_registry):
        monkeypatch.setattr(registry.REGISTRY, "rows", dict(registry.REGISTRY.rows))  # type: ignore[attr-defined]
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("my_room", "my_other", "my_twin", "my_pack", "my_pack.inner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    extensions.load_extensions.cache_clear()


def test_an_edited_file_is_another_question(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["--import", "my_room.py", "compare", "--env", "my-room", "--episodes", "10",
            "--seeds", "0:1", "--algorithms", "fed-lsvi", "--jobs", "1", "--out", "c"]  # fmt: skip
    (here / "my_room.py").write_text(ROOM)
    for made in ("; 1 new run", "; 0 new runs"):
        forget()
        assert main(line) == 0
        assert made in capsys.readouterr().out
    # of another length, so that what Python compiled a moment ago is not taken for it
    (here / "my_room.py").write_text(ROOM.replace("horizon=2", "horizon=30"))
    forget()
    assert main(line) == 2
    assert "another" in capsys.readouterr().err
    assert main(["report", "c"]) == 0  # it is played, whatever became of the file


TWIN = """
from fedlsvi.algorithms import register
from fedlsvi.learner import FedLSVI
class Twin(FedLSVI):
    name = "my-twin"
register("my-twin", Twin, "Fed-LSVI by another name")
"""


def forget() -> None:
    """As in a new process; registries are put back by `forgotten`."""
    for registry, name in ((envs_registry, "my-room"), (algorithms_registry, "my-twin")):
        registry.REGISTRY.rows.pop(name, None)  # type: ignore[attr-defined]
    for name in ("my_room", "my_twin"):
        sys.modules.pop(name, None)
    os.environ[extensions.VARIABLE] = ""
    extensions.load_extensions.cache_clear()


def pasted(page: str, verb: str) -> list[str]:
    """The arguments of the command that a page shows."""
    text = unescape(Path(page).read_text(encoding="utf-8"))
    found = re.search(rf"fedlsvi [^\n<]*{verb} settings.toml[^\n<]*", text)
    assert found is not None
    return shlex.split(found[0].removesuffix("."))[1:]


OWN = ["--env", "my-room", "--episodes", "10"]
NAMES = ["--algorithms", "my-twin,fed-lsvi", "--seeds", "0:1", "--jobs", "1"]


@pytest.mark.parametrize("by", ["variable", "option"][: repeats(1, 2)])
def test_the_command_on_a_page_can_be_pasted(by: str, here: Path) -> None:
    """For an algorithm and an environment of one's own, in files with odd names."""
    (here / "a, b").mkdir()
    (here / "a, b" / "my_room.py").write_text(ROOM)
    (here / "my_twin.py").write_text(TWIN)
    option = ["--import", "a, b/my_room.py", "--import", "my_twin.py"]
    if by == "variable":
        os.environ[extensions.VARIABLE] = "a\\, b/my_room.py, my_twin.py"
        option = []
    assert main([*option, "run", *OWN, "--algorithm", "my-twin", "--out", "r"]) == 0
    assert main(["compare", *OWN, *NAMES, "--out", "c"]) == 0
    for folder in ("r", "c"):
        assert main(["report", folder]) == 0
    Path("settings.toml").write_text(Path("r/settings.toml").read_text())
    for folder, verb in (("r", "run"), ("c", "compare")):
        line = pasted(f"{folder}/report.html", verb)
        forget()
        assert main(line) == 0


def test_a_page_made_without_the_module_says_what_to_name(here: Path) -> None:
    (here / "my_room.py").write_text(ROOM)
    assert main(["--import", "my_room.py", "run", *OWN, "--out", "r"]) == 0
    assert main(["compare", *OWN, "--seeds", "0:1", "--jobs", "1", "--out", "c"]) == 0
    forget()
    for folder, verb in (("r", "run"), ("c", "compare")):
        assert main(["report", folder]) == 0
        assert pasted(f"{folder}/report.html", verb)[:2] == ["--import", "MODULE"]
        text = Path(folder, "report.html").read_text(encoding="utf-8")
        assert "MODULE is your module or .py file that registers my-room" in text


def test_all_that_is_imported_of_a_package_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = tmp_path / "my_pack"
    pack.mkdir()
    (pack / "__init__.py").write_text("from my_pack import inner\n")
    (pack / "inner.py").write_text("")
    (pack / "unused.py").write_text("")
    (tmp_path / "my_room.py").write_text(ROOM)
    monkeypatch.syspath_prepend(tmp_path)
    extensions.announce(["my_pack", str(tmp_path / "my_room.py")])
    assert extensions.extension_files() == {
        "my_pack": pack / "__init__.py",
        "my_pack.inner": pack / "inner.py",
        "my_room": tmp_path / "my_room.py",
    }


def test_an_error_that_cannot_be_sent_is_told_in_words(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "my_room.py").write_text(ELSEWHERE)
    line = ["--import", "my_room.py", "compare", "--env", "my-room", "--episodes", "10",
            "--seeds", "0:2", "--algorithms", "fed-lsvi", "--jobs", "2"]  # fmt: skip
    assert main(line) == 2
    said = capsys.readouterr().err
    assert "Both: this and that" in said
    assert "memory" not in said


def test_commas_in_names_and_blanks_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a, b"
    folder.mkdir()
    (folder / "my_room.py").write_text(ROOM)
    (folder / "my_other.py").write_text(ROOM.replace("my-room", "my-other"))
    monkeypatch.chdir(folder)
    extensions.announce(["my_room.py"])
    extensions.announce(["my_other.py"])  # what was there before stays as it was
    assert {"my-room", "my-other"} <= set(names())


@pytest.mark.parametrize("given", ["my_room.py, my_other.py", "my_room.py,my_other.py,"])
@pytest.mark.parametrize("by", ["option", "variable"])
def test_several_in_one_word(
    given: str, by: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "my_room.py").write_text(ROOM)
    (here / "my_other.py").write_text(ROOM.replace("my-room", "my-other"))
    if by == "option":
        extensions.announce([given])
    else:
        monkeypatch.setenv(extensions.VARIABLE, given)
    assert {"my-room", "my-other"} <= set(names())
