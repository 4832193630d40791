"""Problems that are stepped: regret is not known, so returns are compared."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedlsvi.cli import main
from fedlsvi.experiments import ranking
from fedlsvi.experiments.runner import Outcome
from fedlsvi.report.model_class import ModelClass
from fedlsvi.report.plotting import make_figure

pytestmark = pytest.mark.usefixtures("here")


def _outcome(algorithm: str, earned: float | None, scalars: int = 10) -> Outcome:
    return Outcome(
        algorithm=algorithm, seed=0, n_agents=1, episodes=20, horizon=3, dim=2, gamma=1.0,
        beta=1.0, lam=1.0, rounds=2, scalars=scalars, scalars_by_category={}, regret=None,
        late=None, uniform=None, bounds={}, raw_per_step=3, seconds=1.0, late_return=earned,
        curve={"t": [1, 20], "scalars": [0, scalars], "return": [0.0, earned or 0.0]},
    )  # fmt: skip


def test_the_highest_return_comes_first() -> None:
    found = {name: [_outcome(name, v)] for name, v in (("a", -9.5), ("b", 3.0), ("c", 1.0))}
    rows = ranking.standings(found)
    assert [row.name for row in rows] == ["b", "c", "a"]
    header, body = ranking.table(rows, ModelClass(dict.fromkeys("abc", True)))
    assert header[2:4] == ["one model for", "return, last tenth"]
    assert [row[2] for row in body] == ["all steps"] * 3
    assert [row[3] for row in body] == ["3.000", "1.000", "-9.500"]
    drawn = ranking.panels(found, "bca")
    assert list(drawn) == ["returns", "worth"]
    assert make_figure(list(drawn.values())).axes[0].get_ylim()[0] < -9.0


def test_of_equal_returns_the_cheaper_comes_first() -> None:
    found = {name: [_outcome(name, -9.0, sent)] for name, sent in (("a", 7), ("b", 5))}
    assert [row.name for row in ranking.standings(found)] == ["b", "a"]


def test_scalars_decide_where_nothing_else_is_known() -> None:
    runs = {"a": _outcome("a", None, 7), "b": _outcome("b", 2.0, 5)}
    rows = ranking.standings({name: [run] for name, run in runs.items()})
    assert [row.name for row in rows] == ["b", "a"]
    assert ranking.table(rows, ModelClass(dict.fromkeys("ab", False)))[0][3] == "group regret"
    silent = replace(runs["a"], curve={"t": [1, 20], "scalars": [0, 7]})
    assert ranking.panels({"a": [silent], "b": [runs["b"]]}, "ab") == {}


def test_a_stepped_problem_is_ranked_by_return(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gymnasium")
    line = ["compare", "--env", "CartPole-v1", "--features", "fourier", "--set", "env.horizon=20",
            "--set", "features.n_frequencies=4", "--seeds", "0:2", "--episodes", "10",
            "--algorithms", "fed-lsvi,independent,centralised,periodic",
            "--out", "c", "--jobs", "1"]  # fmt: skip
    assert main(line) == 0
    said = capsys.readouterr().out
    assert "return, last tenth" in said
    assert "  –" not in said
    assert "figure: c/comparison.png" in said
    assert Path("c/comparison.png").exists()
    summary = json.loads(Path("c/summary.json").read_text())
    earned = [row["late_return"]["median"] for row in summary["ranking"]]
    assert earned == sorted(earned, reverse=True)
    assert all(1.0 <= value <= 20.0 for value in earned)
    with Path("c/runs.csv").open() as file:
        assert all(1.0 <= float(row["late_return"]) <= 20.0 for row in csv.DictReader(file))
    with Path("c/curves.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["algorithm"] == "fed-lsvi"]
    assert all(1.0 <= float(row["return"]) <= 20.0 and row["regret"] == "" for row in rows)
    assert main(["report", "c"]) == 0
    assert "plots  c/plots (4 files" in capsys.readouterr().out
    page = Path("c/report.html").read_text()
    assert "earned most (return, last tenth: " in page
    assert "1 agent, 10 episodes each, horizon 20, 16 features" in page
    assert "4 algorithms on CartPole-v1" in page
