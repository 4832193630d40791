"""Runs as the live page reads them: while they grow, after a restart, and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedlsvi import FedLSVI
from fedlsvi.cli import main
from fedlsvi.envs import RiverSwim
from fedlsvi.live import page
from fedlsvi.live.chart import Line, chart
from fedlsvi.live.curves import POINTS, Runs
from fedlsvi.live.watcher import Watcher
from patience import wait_until


def record(k: int, last: int, regret: float | None = 1.0) -> str:
    return json.dumps({
        "k": k, "first": last - 9, "last": last, "signals": 5, "triggers": [[3, 2], [0, 0]],
        "scalars": {"up_stats": 10 * k}, "regret": regret, "mean_return": 0.5,
        "seconds": {"explore": 0.2}, "notes": [],
    })  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder without rounds."""
    folder = tmp_path / "inside" / "run"
    folder.mkdir(parents=True)
    settings = 'algorithm = "fed-lsvi"\nepisodes = 100\nn_agents = 4\n[env]\nname = "river-swim"\n'
    (folder / "settings.toml").write_text(settings)
    return folder


def found(folder: Path) -> Runs:
    runs = Runs(folder)
    runs.find()
    return runs


def test_a_run_grows(run: Path, tmp_path: Path) -> None:
    """A line counts when it is whole; the time left follows from the speed of the last rounds."""
    runs = found(tmp_path)
    (curve,) = runs.look()
    assert (curve.name, curve.algorithm, curve.environment) == (
        "inside/run", "fed-lsvi", "river-swim",
    )  # fmt: skip
    assert (curve.t, curve.agents, curve.planned) == ([], 4, 100)
    file = (run / "records.jsonl").open("a")
    second = record(2, 20)
    file.write(record(1, 10) + "\n" + second[:40])
    file.flush()
    (curve,) = runs.look()
    assert (curve.t, curve.state) == ([10], "running")
    assert curve.left == pytest.approx(90 * 0.2 / 10)
    assert curve.fired == "agent 3 at h = 2 and 4 more"
    file.write(second[40:] + "\n" + record(10, 100, 7.5) + "\n")
    file.close()
    (curve,) = runs.look()
    assert (curve.t, curve.y, curve.rounds) == ([10, 20, 100], [1.0, 1.0, 7.5], [1, 2, 10])
    assert (curve.state, curve.left, curve.unit) == ("finished", None, "regret")


def test_a_resumed_run_begins_again_where_its_file_was_cut(run: Path) -> None:
    file, runs = run / "records.jsonl", found(run)
    file.write_text("".join(record(k, 10 * k) + "\n" for k in range(1, 6)))
    runs.look()
    file.write_text("".join(record(k, 10 * k) + "\n" for k in range(1, 3)))
    (curve,) = runs.look()
    assert curve.t == [10, 20]


def test_what_is_damaged_is_left_out_and_links_lead_nowhere(run: Path, tmp_path: Path) -> None:
    odd = ["[1]", "{", '{"k": 1}', "\x00", record(1, 10).replace('"regret": 1.0', '"regret": "x"')]
    (run / "records.jsonl").write_text("\n".join([*odd, record(2, 20)]) + "\n")
    (tmp_path / "link").symlink_to(run)
    other = tmp_path / "other"
    other.mkdir()
    (other / "settings.toml").write_text("= [")
    (other / "records.jsonl").symlink_to(run / "records.jsonl")
    curves = {curve.name: curve for curve in found(tmp_path).look()}
    assert curves["inside/run"].t == [20]
    assert (curves["other"].t, curves["other"].algorithm) == ([], "?")
    assert set(curves) == {"inside/run", "other"}


@pytest.mark.parametrize("key", ["regret", "mean_return", "k", "last", "signals"])
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e300", "-1e300", '"x"'])
def test_a_line_that_no_run_has_written_is_left_out_and_counted(
    run: Path, key: str, value: str
) -> None:
    """However impossible its numbers are, the page is made of the other lines."""
    row = json.loads(record(1, 10, None if key == "mean_return" else 1.0))
    bad = json.dumps({**row, key: "HERE"}).replace('"HERE"', value)
    line = record(2, 20, None) if key == "mean_return" else record(2, 20)
    (run / "records.jsonl").write_text(f"{bad}\n{line}\n")
    watcher = Watcher(run.parent)
    watcher.look()
    assert "1 line of run cannot be read" in watcher._parts["runs"]
    assert "<svg" in watcher._parts["curves"]
    (curve,) = watcher._runs.look()
    assert curve.t == [20]


@pytest.mark.parametrize("spoil", [
    {"curve": {"t": [1]}}, {"episodes": float("inf")}, {"curve": {"t": [1], "regret": [1e308]}},
    {"curve": {"t": [float("nan")], "regret": [1.0]}}, {"rounds": None},
])  # fmt: skip
def test_a_bad_line_of_a_comparison_is_left_out_and_counted(
    tmp_path: Path, spoil: dict[str, Any]
) -> None:
    came = {"algorithm": "a", "seed": 0, "n_agents": 1, "episodes": 1, "rounds": 1, "scalars": 1,
            "curve": {"t": [1], "regret": [1.0]}}  # fmt: skip
    rows = [{"job": {"env": {"name": "x"}}, "outcome": of} for of in (came | spoil, came)]
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    watcher = Watcher(tmp_path)
    watcher.look()
    assert "1 line of" in watcher._parts["runs"]
    assert "1 run: 0 going on, 1 finished" in watcher._parts["outcome"]


def test_an_error_is_shown_and_does_not_end_the_watcher(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread looks again, and the page is as it was once the error is gone."""
    watcher = Watcher(run.parent, every=0.001)
    with monkeypatch.context() as patch:
        patch.setattr(page, "curves_part", lambda curves: 1 / 0)
        watcher.start()
        wait_until(lambda: "ZeroDivisionError" in watcher._parts["curves"], "nobody says it")
        assert "run" in watcher._parts["runs"]
        patch.setattr(watcher._runs, "look", lambda: 1 / 0)
        wait_until(lambda: "ZeroDivisionError" in watcher._parts["outcome"], "nobody says it")
    (run / "records.jsonl").write_text(record(1, 10) + "\n")
    wait_until(lambda: "<svg" in watcher._parts["curves"], "the watcher has died")
    watcher.close()
    assert "Error" not in watcher._parts["outcome"]


def test_the_run_of_a_federations_server_knows_no_regret(tmp_path: Path) -> None:
    """It is shown with its rounds, its traffic and the time left, and as finished at its end."""
    folder = tmp_path / "kits" / "host" / "fedlsvi" / "wards"
    folder.mkdir(parents=True)
    (folder / "settings.toml").write_text('algorithm = "fed-lsvi"\nepisodes = 20\nn_agents = 3\n')
    rows = [json.dumps(json.loads(record(k, 10 * k, None)) | {"mean_return": None}) for k in (1, 2)]
    (folder / "records.jsonl").write_text(rows[0] + "\n")
    watcher = Watcher(tmp_path)
    watcher.look()
    (curve,) = watcher._runs.look()
    assert (curve.t, curve.y, curve.rounds, curve.scalars) == ([10], [], [1], [10])
    assert (curve.state, curve.left) == ("running", pytest.approx(0.2))
    (folder / "records.jsonl").write_text("\n".join([*rows, ""]))
    watcher.look()
    assert "1 run: 0 going on, 1 finished" in watcher._parts["outcome"]
    assert watcher._parts["curves"].count("<svg") == 3  # rounds, scalars, and the legend's line


def test_a_curve_whose_first_rounds_have_no_return_begins_where_it_has(run: Path) -> None:
    rows = [json.loads(record(k, 10 * k, None)) for k in (1, 2, 3)]
    rows[0]["mean_return"] = rows[2]["mean_return"] = None
    (run / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (curve,) = found(run).look()
    assert (curve.t, curve.y, curve.rounds) == ([20], [0.5], [2])


def test_long_curves_are_thinned_and_keep_their_end(run: Path) -> None:
    rows = (record(k, k, float(k)) + "\n" for k in range(1, 3001))
    (run / "records.jsonl").write_text("".join(rows))
    (curve,) = found(run).look()
    assert POINTS <= len(curve.t) < 2 * POINTS
    assert curve.t[-1] == 3000
    assert curve.y == [float(t) for t in curve.t] == sorted(curve.y)


def test_real_runs_and_comparisons(tmp_path: Path) -> None:
    """What is shown is what the run returns."""
    made = FedLSVI(2).learn(RiverSwim(3, 4), 60, folder=tmp_path / "run", progress=False)
    asked = "compare --env river-swim --algorithms fed-lsvi,independent --agents 2 --episodes 20"
    more = ["--jobs", "1", "--seeds", "0:2", "--out", str(tmp_path / "compared"), "-q"]
    assert main([*asked.split(), *more]) == 0
    curves = {curve.name: curve for curve in found(tmp_path).look()}
    run = curves.pop("run")
    assert run.y == [record.regret for record in made.records]
    assert run.scalars[-1] == sum(made.records[-1].scalars.values())
    assert sorted(curves) == [
        f"compared/{name}-{seed}" for name in ("fed-lsvi", "independent") for seed in (0, 1)
    ]
    assert all(curve.t[-1] == 20 and curve.unit == "regret" for curve in curves.values())


@pytest.mark.parametrize(
    "y", [[0.0, 0.0], [-3.0, 5.0], [1e-9, 2e-9], [1e12, 1e12], [4.0], [9e15, 9e15], [0.0, 5e-324]]
)
def test_a_chart_stays_inside_its_frame(y: list[float]) -> None:
    text = chart("<title>", [Line('"run"', 3, list(range(len(y))), y)], "episodes", "regret")
    assert "<title>" not in text
    points = text.split(' d="M')[-1].split('"')[0].replace("L", " ").split()
    values = [float(point) for point in points]
    assert all(0.0 <= x <= 400.0 for x in values[::2])
    assert all(0.0 <= x <= 250.0 for x in values[1::2])
    assert chart("empty", [], "x", "y") == ""
