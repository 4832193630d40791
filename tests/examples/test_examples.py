"""Every example runs, on a small budget, and says what it found."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from repeats import only_ci, repeats

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {
    "frozen_lake": (["episodes=200"], "Fed-LSVI, 8 agents", 0.02),
    "cliff_walking": (["episodes=100"], "Fed-LSVI, 8 agents", -20.5),
    "cartpole": (["episodes=20", "env.horizon=40", "value_range=40"], "random policy", 10.0),
    "frozen_lake_8x8": (["episodes=30"], "Fed-LSVI, 8 agents", 0.0),
    "taxi": (["episodes=60", "n_agents=2"], "Fed-LSVI, 2 agents", -200.0),
    "mobile_edge": (["episodes=3"], "Fed-LSVI, 4 phones", -1.0),
}
"""What is changed, and which line has at least which number; the last three where CI is set."""


@pytest.fixture(autouse=True)
def _from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples are run from the root of the repository."""
    monkeypatch.syspath_prepend(str(EXAMPLES.parent))


def _load(name: str) -> ModuleType:
    return importlib.import_module(f"examples.{name}.run")


@pytest.mark.parametrize("name", list(SMALL)[: repeats(3, len(SMALL))])
def test_the_example_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "mobile_edge":
        pytest.importorskip("mobile_env")
    changes, what, least = SMALL[name]
    example = _load(name)
    monkeypatch.setattr(example, "PLAYED", 4, raising=False)
    lines = example.main(1, changes)
    found = {line.what: line.numbers for line in lines}
    assert found[what][0] >= least
    assert all(str(line).startswith(line.what) for line in lines)


@only_ci
def test_the_sepsis_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("icu_sepsis")
    example = _load("sepsis")
    monkeypatch.setattr(example, "N", 2)
    found = example.main(1, ["episodes=30", "n_agents=2"])
    lines = {line.what: line.numbers[0] for line in found}
    assert lines["optimum V*"] == pytest.approx(0.7922, abs=1e-4)
    assert lines["uniform policy"] == pytest.approx(0.6854, abs=1e-4)
    assert lines["clinicians' policy"] == pytest.approx(0.6920, abs=1e-4)
    assert lines["best constant action"] == pytest.approx(0.7394, abs=1e-4)
    assert lines["10 hospitals, privileged features (d = 16)"] > 0.65
    assert lines["optimum with fluids only"] == pytest.approx(0.788, abs=1e-3)


def test_every_example_has_its_settings_and_its_place_in_the_docs() -> None:
    told = (EXAMPLES.parent / "docs" / "examples.md").read_text()
    for folder in sorted(p for p in EXAMPLES.iterdir() if (p / "run.py").exists()):
        assert (folder / "settings.toml").exists()
        assert f"examples.{folder.name}.run" in told
