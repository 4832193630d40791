"""New run folders, commands to paste, and constructors that return nothing."""

from __future__ import annotations

import pickle
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from expecting import refused as expected
from fedlsvi import algorithms, envs, features
from fedlsvi.algorithms import registry as algorithm_registry
from fedlsvi.cli import in_shell_words, main
from fedlsvi.cli.command import new_folder
from fedlsvi.envs import registry as env_registry
from fedlsvi.errors import FolderExists, InvalidEnvironment, InvalidInput, UnknownName
from fedlsvi.features import registry as feature_registry
from fedlsvi.learner import FedLSVI
from fedlsvi.registry import VARIABLE
from fedlsvi.storage import seeds as family
from fedlsvi.storage.settings_file import Job
from shell import refused

RUN = ["run", "--env", "river-swim", "--episodes", "5"]


def test_commands_at_once_have_different_folders(here: Path) -> None:
    """Making the folder claims it, so none is given to two."""

    def claim(number: int) -> Path:
        with new_folder(here / "runs" / "a") as folder:
            (folder / "mine").touch(exist_ok=False)
            return folder

    with ThreadPoolExecutor(8) as threads:
        folders = set(threads.map(claim, range(24)))
    assert len(folders) == 24
    assert here / "runs" / "a-24" in folders


@pytest.mark.parametrize("more", [[], ["--seeds", "0:2"]])
def test_a_refused_run_leaves_no_folder(
    here: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("gymnasium")
    line = ["run", "--env", "CartPole-v1", "--features", "fourier", "--set", "env.horizon=4",
            "--episodes", "4", *more]  # fmt: skip
    assert "reward_range" in refused(capsys, *line, "--set", "env.reward_range=[0, 0.5]")
    assert main([*line, "--set", "env.reward_range=(0, 1)"]) == 0
    assert [path.name for path in (here / "runs").iterdir()] == ["CartPole-v1"]


def test_what_was_written_stays(here: Path) -> None:
    def fail() -> None:
        with new_folder(here / "runs" / "a") as folder:
            (folder / "result").touch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (here / "runs" / "a" / "result").exists()


def test_of_two_families_at_once_one_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job.parse({"env": {"name": "river-swim"}, "episodes": 5})
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
        (folder / "records.jsonl").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(FedLSVI, "learn", interrupted)
    line = ["--import", "a b/my_part.py", *RUN, *more, *where, "--out", "my runs/a"]
    assert main(line) == 130
    said = capsys.readouterr().err.splitlines()[0].partition("continue with: ")[2]
    imported = f"shlex,{here / 'a b' / 'my_part.py'}"
    begin = ["fedlsvi", "--import", imported, "resume", "my runs/a"]
    assert shlex.split(said) == begin + where


@pytest.mark.parametrize(
    ("module", "code"),
    [(envs, "unknown-environment"), (algorithms, "unknown-algorithm"),
     (features, "unknown-features")],
)  # fmt: skip
def test_an_unknown_name_may_be_of_a_module_that_was_not_named(module: Any, code: str) -> None:
    with expected(UnknownName, code, "import the module") as caught:
        module.registry.entry("my-own")
    assert "--" not in str(caught.value)  # in Python, Python's words
    copied = pickle.loads(pickle.dumps(caught.value))
    assert "--import FILE" in in_shell_words(copied)
    assert "import the module" not in in_shell_words(copied)


def test_a_constructor_that_returns_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> Any:
        return None

    for registry in (env_registry, algorithm_registry, feature_registry):
        monkeypatch.setattr(registry.REGISTRY, "rows", dict(registry.REGISTRY.rows))
        registry.register("hollow", nothing, "")  # type: ignore[attr-defined]
        with expected(InvalidInput, "bad-constructor", "hollow", "None"):
            registry.make("hollow")  # type: ignore[attr-defined]
    env_registry.register("odd", lambda: 7, "")  # type: ignore[arg-type, return-value]
    with expected(InvalidEnvironment, "bad-constructor", "7"):
        env_registry.make("odd")
