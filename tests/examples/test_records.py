"""The examples with records run, on a small budget: a Minari data set, and warm starts."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from notebooks import ROOT, executed, said
from repeats import only_ci


@pytest.fixture(autouse=True)
def _from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.mark.filterwarnings("ignore")
def test_a_minari_data_set_is_recorded_and_learned_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("minari")
    example: Any = importlib.import_module("examples.minari_lake")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    monkeypatch.setattr(example, "HORIZON", 20)
    found = example.main(episodes=200, played=20)
    assert found["learned from the data set"] > found["behaviour, as recorded"]
    assert found["regret of 20 episodes, warm"] < found["regret of 20 episodes, cold"]


@pytest.mark.filterwarnings("ignore")
def test_a_warm_start_on_the_lake_and_its_figure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("icu_sepsis")
    example: Any = importlib.import_module("examples.warm_start")
    lake = replace(example.frozen_lake(), logged=60, agents=2)
    monkeypatch.setattr(example, "EPISODES", 20)
    monkeypatch.setattr(example, "FIRST", 20)
    monkeypatch.setattr(example, "frozen_lake", lambda: lake)
    monkeypatch.setattr(example, "icu_sepsis", lambda: replace(lake, name="again"))
    kept = tmp_path / "kept.npz"
    curves = example.main(1, str(tmp_path / "figure.png"), str(kept))
    assert curves["FrozenLake"]["warm"][0][-1] < curves["FrozenLake"]["cold"][0][-1]
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    again = example.main(1, "", str(kept))
    assert np.array_equal(again["again"]["warm"][0], curves["again"]["warm"][0])


@only_ci
@pytest.mark.filterwarnings("ignore")
def test_hospitals_explore_from_their_records(tmp_path: Path) -> None:
    pytest.importorskip("icu_sepsis")
    example: Any = importlib.import_module("examples.sepsis.records")
    env = example.sepsis()
    paths = example.records(env, tmp_path, 0)[:2]
    found = example.explored(env, paths, episodes=5)
    assert all(0.5 < number < 0.8 for one in found.values() for number in (one.during, one.after))
    values = {"clinicians": 0.692, "ten hospitals": 0.735, "optimum": 0.792}
    estimate = {"value": 0.6, "low": 0.55, "high": 0.75}
    example.draw(str(tmp_path / "figure.png"), values, estimate, found)
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_the_notebook_shows_its_results() -> None:
    text = (ROOT / "examples" / "sepsis" / "records.ipynb").read_text()
    assert "image/png" in text
    assert "scalars = formula: True" in text


@only_ci
@pytest.mark.filterwarnings("ignore")
def test_the_notebook_runs() -> None:
    pytest.importorskip("icu_sepsis")
    smaller = "import examples.sepsis.logs\nexamples.sepsis.logs.PATIENTS = 200\n"
    notebook = executed(
        ROOT / "examples" / "sepsis" / "records.ipynb",
        {"EPISODES = 60": f"{smaller}EPISODES = 5", "repeats=100": "repeats=2"},
    )
    text = said(notebook)
    assert "10 hospitals, 2000 patients," in text
    assert "optimum     0.792" in text
    assert "scalars = formula: True" in text
    measured = float(text.split("measured")[1].split()[0])
    assert 0.692 < measured < 0.792  # better than the clinicians, and no better than possible
