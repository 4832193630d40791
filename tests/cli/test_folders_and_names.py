"""Folders that are free until somebody is faster, commands that can be pasted, names of modules."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from fedlsvi import algorithms, envs, features
from fedlsvi.algorithms import registry as algorithm_registry
from fedlsvi.cli import main, play
from fedlsvi.envs import registry as env_registry
from fedlsvi.errors import FolderExists, InvalidEnvironment, InvalidInput, UnknownName
from fedlsvi.features import registry as feature_registry
from fedlsvi.learner import FedLSVI
from fedlsvi.registry import VARIABLE
from fedlsvi.storage import seeds as family

RUN = ["run", "--env", "river-swim", "--episodes", "5"]


@pytest.mark.parametrize("more", [[], ["--seeds", "0:2"]])
def test_the_next_folder_where_another_command_was_faster(
    here: Path, more: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All find the same folder free; whoever comes second takes another."""
    found = play.free_folder
    late = ["first call"]

    def raced(wanted: Path) -> Path:
        folder = found(wanted)
        if late:
            late.clear()
            assert main([*RUN, *more]) == 0
        return folder

    monkeypatch.setattr(play, "free_folder", raced)
    assert main([*RUN, *more]) == 0
    assert sorted(path.name for path in (here / "runs").iterdir()) == ["river-swim", "river-swim-2"]


def test_a_folder_that_was_asked_for_is_not_replaced(here: Path) -> None:
    def refuse(folder: Path) -> None:
        raise FolderExists("another folder")

    with pytest.raises(FolderExists, match="another folder"):  # and not for ever
        play.in_free_folder(here / "x", refuse)


def test_of_two_families_at_once_one_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = play.Job.parse({"env": {"name": "river-swim"}, "episodes": 5})
    family.begin(here / "f", job, [0, 1])
    monkeypatch.setattr(family, "refuse_existing", lambda folder: None)  # it was free just now
    with pytest.raises(FolderExists):
        family.begin(here / "f", job, [2])
    assert family.read(here / "f")[1] == [0, 1]


@pytest.mark.parametrize("where", [[], ["--transport", "ray"], ["--transport", "ray",
                                   "--ray-address", "head:6379", "--cohorts", "1"]])  # fmt: skip
@pytest.mark.parametrize("more", [[], ["--seeds", "0:2"]])
def test_the_way_to_go_on_can_be_pasted(
    here: Path, more: list[str], where: list[str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """With the modules that FEDLSVI_IMPORT names, too."""
    monkeypatch.setenv(VARIABLE, "shlex")
    monkeypatch.delitem(sys.modules, "my_part", raising=False)
    (here / "a b").mkdir()
    (here / "a b" / "my_part.py").write_text("")

    def interrupted(*args: Any, folder: Path, **options: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(FedLSVI, "learn", interrupted)
    line = ["--import", "a b/my_part.py", *RUN, *more, *where, "--out", "my runs/a"]
    assert main(line) == 130
    said = capsys.readouterr().err.splitlines()[0].partition("continue with: ")[2]
    imported = f"shlex,{here / 'a b' / 'my_part.py'}"
    begin = ["fedlsvi", "--import", imported, "resume", "my runs/a"]
    assert shlex.split(said) == begin + where


@pytest.mark.parametrize("module", [envs, algorithms, features])
def test_an_unknown_name_may_be_of_a_module_that_was_not_named(module: Any) -> None:
    with pytest.raises(UnknownName, match="--import"):
        module.registry.entry("my-own")


def test_a_constructor_that_returns_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> Any:
        return None

    for registry in (env_registry, algorithm_registry, feature_registry):
        monkeypatch.setattr(registry.REGISTRY, "rows", dict(registry.REGISTRY.rows))
        registry.register("hollow", nothing, "")  # type: ignore[attr-defined]
        with pytest.raises(InvalidInput, match="'hollow' returned None"):
            registry.make("hollow")  # type: ignore[attr-defined]
    env_registry.register("odd", lambda: 7, "")  # type: ignore[arg-type, return-value]
    with pytest.raises(InvalidEnvironment, match="returned 7"):
        env_registry.make("odd")
