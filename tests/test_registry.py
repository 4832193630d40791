"""The registry itself, and what the package shows and imports."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import fedlsvi
from expecting import refused
from fedlsvi import algorithms, envs, features
from fedlsvi.errors import InvalidInput, InvalidSetting, UnknownName
from fedlsvi.registry import Entry, Registry, resolve


def registry(**rows: Any) -> Registry[Entry]:
    made: Registry[Entry] = Registry("tool", "a dict", InvalidSetting, base=dict)
    for name, target in rows.items():
        made.register(Entry(name, target, ""))
    return made


@pytest.mark.parametrize("package", [fedlsvi, algorithms, envs, features])
def test_dir_shows_the_public_names_and_nothing_else(package: Any) -> None:
    assert dir(package) == sorted(package.__all__)
    assert all(hasattr(package, name) for name in package.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = package.no_such_name


def test_a_run_imports_neither_other_algorithms_nor_what_it_does_not_use() -> None:
    others = "logged.world stepped vector_ with_logs private privacy.masks one_trip warm_start"
    code = (
        "import sys; from fedlsvi import algorithms, envs; import fedlsvi.storage;"
        "learner = algorithms.make('fed-lsvi', n_agents=2, stationary=False);"
        "learner.learn(envs.make('random-linear'), 2, progress=False);"
        "own = [m for m in sys.modules if m.startswith('fedlsvi.')];"
        f"others = {others.split()};"
        "print([m for m in own if m.startswith('fedlsvi.algorithms.')]);"
        "print([m for m in own if any(other in m for other in others)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['fedlsvi.algorithms.registry']", "[]"]


def test_the_command_run_imports_no_sites_and_no_pages(tmp_path: Path) -> None:
    given = ["run", "--env", "random-linear", "--episodes", "20", "--out", str(tmp_path / "run")]
    code = (
        f"import sys; from fedlsvi.cli import main; main({given!r});"
        "rooms = {m.split('.')[1] for m in sys.modules if m.startswith('fedlsvi.')};"
        "print(sorted(rooms & {'remote', 'report', 'live', 'experiments', 'bandits'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("home", [algorithms, envs, features])
def test_every_row_names_something_that_exists(home: Any) -> None:
    for row in import_module(f"{home.__name__}.registry").REGISTRY.rows.values():
        assert callable(row.constructor)
        assert row.summary


def test_a_target_is_a_constructor_or_where_to_find_it() -> None:
    assert resolve("math:pi") > 3
    assert resolve(dict) is dict
    tools = registry(plain=lambda: {}, lazy="copy:copy")
    assert tools.names() == ["lazy", "plain"]
    assert tools.make(tools.entry("lazy"), {"x": {1: 2}}) == {1: 2}
    assert tools.make(tools.entry("plain"), {}) == {}


def test_defaults_of_a_row_stand_before_those_of_the_constructor() -> None:
    row = Entry("tool", lambda a=1, b=2: {"a": a, "b": b}, "", defaults={"a": 5})
    assert row.parameters() == {"a": 5, "b": 2}
    assert registry().make(row, {"b": 3}) == {"a": 5, "b": 3}


def test_what_cannot_be_made_is_refused() -> None:
    def fails(x: int = 0) -> dict[str, int]:
        raise [TypeError, ValueError, OverflowError, MemoryError][x]("why")

    def refuses() -> None:
        raise InvalidInput("own", code="own-code")

    tools = registry(fails=fails, list=lambda: [], none=lambda: None, refuses=refuses)
    for x in range(4):
        with refused(InvalidSetting, "constructor-failed", "'fails'", f"{x}", "why"):
            tools.make(tools.entry("fails"), {"x": x})
    with refused(UnknownName, "unknown-parameter", "'xs'", "'x'"):
        tools.make(tools.entry("fails"), {"xs": 1})
    with refused(InvalidSetting, "no-parameters", "'x'"):
        tools.make(tools.entry("none"), {"x": 1})
    for name, value in (("list", "[]"), ("none", "None")):
        with refused(InvalidSetting, "bad-constructor", f"'{name}'", value):
            tools.make(tools.entry(name), {})
    with refused(InvalidInput, "own-code"):
        tools.make(tools.entry("refuses"), {})
    with refused(UnknownName, "unknown-tool", "'lists'", "'list'"):
        tools.entry("lists")
    with refused(InvalidSetting, "name-taken", "'list'"):
        tools.register(Entry("list", dict, ""))
