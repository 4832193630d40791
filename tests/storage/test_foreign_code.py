"""A file from someone else chooses no code to run, and asks for no more memory than there is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

import fedlsvi
from expecting import refused
from fedlsvi import FedLSVI, envs
from fedlsvi import registry as extensions
from fedlsvi.cli import in_shell_words, main
from fedlsvi.envs import as_environment
from fedlsvi.errors import FedLSVIError, InvalidEnvironment, InvalidInput
from fedlsvi.policy import Policy
from fedlsvi.storage.settings_file import Job

MODULE = """
from pathlib import Path
import gymnasium
Path(__file__).with_name("imported").touch()
if "Theirs-v0" not in gymnasium.registry:
    gymnasium.register("Theirs-v0", "gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv",
                       max_episode_steps=5)
"""
ID = "their_code:Theirs-v0"


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module on the path that leaves a file when it is imported; what it registers is gone after
    the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(extensions.VARIABLE, "")
    monkeypatch.delitem(sys.modules, "their_code", raising=False)
    extensions.load_extensions.cache_clear()
    (tmp_path / "their_code.py").write_text(MODULE)
    yield tmp_path / "imported"
    gymnasium.registry.pop("Theirs-v0", None)


ENTRIES = {
    "by name": {"name": ID},
    "by id": {"name": "gymnasium", "id": ID},
    "nested": {"name": "xi-close", "agent": 0,
               "reference": {"name": "gymnasium", "params": {"id": ID}}},
}  # fmt: skip


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_settings_import_nothing_unasked(entry: dict[str, object], trap: Path) -> None:
    with refused(InvalidInput, "module-not-imported", "import their_code first") as caught:
        Job.parse({"env": entry}).environments()
    assert "--import their_code" in in_shell_words(caught.value)
    assert not trap.exists()


def test_a_run_folder_and_a_policy_import_nothing_unasked(
    trap: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = FedLSVI(n_agents=2).learn(as_environment(ID), 5, folder="run", progress=False)
    run.policy.save("policy")
    assert trap.exists()  # who names a module in Python asks for it
    trap.unlink()
    monkeypatch.delitem(sys.modules, "their_code")
    assert fedlsvi.load("run").summary()["episodes"] == 5
    assert main(["evaluate", "policy", "--episodes", "2"]) == 2
    assert main(["resume", "run", "--episodes", "6"]) == 2
    assert capsys.readouterr().err.count("their_code") >= 2
    assert not trap.exists()
    assert Policy.load("policy").horizon == 5
    assert main(["--import", "their_code", "evaluate", "policy", "--episodes", "2"]) == 0
    assert trap.exists()


def test_who_types_a_module_asks_for_it(trap: Path) -> None:
    assert main(["run", "--env", ID, "--episodes", "5", "--out", "-"]) == 0
    assert trap.exists()


@pytest.mark.parametrize("field", ["points", "cells"])
def test_a_grid_that_no_machine_holds_is_refused(field: str) -> None:
    with refused(InvalidEnvironment, f"bad-{field}", str(2**40)):
        envs.make("continuous-linear", **{field: 2**40})


@pytest.mark.parametrize("name", [name for name in envs.names() if name != "gymnasium"])
def test_sizes_that_no_machine_holds_are_refused(name: str) -> None:
    sizes = ("n_states", "dim", "n_actions", "size", "length", "horizon", "branching", "states")
    known = envs.registry.entry(name).parameters()
    for size in (key for key in sizes if key in known):
        with pytest.raises(FedLSVIError):
            FedLSVI(n_agents=1).prepare(envs.make(name, **{size: 2**44}), 5)
