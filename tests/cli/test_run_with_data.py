"""`fedlsvi run --data` and `--warm-start` as they are typed, resumed and reported."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fedlsvi
from fedlsvi import FedLSVI
from fedlsvi.cli import main
from fedlsvi.envs import RandomMDP, record_episodes, write_records

SIZES = {"n_states": 4, "n_actions": 3, "horizon": 3, "seed": 1}
WORDS = ["run", "--env", "random-mdp", "--agents", "2", "--episodes", "15", "--quiet"]
WORDS += [word for key, value in SIZES.items() for word in ("--set", f"env.{key}={value}")]


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    both = {}
    for m, name in enumerate(("north", "south")):
        log = record_episodes(RandomMDP(**SIZES), 20 + m, seed=m)
        write_records(log, f"{name}.csv")
        log["agent"] = np.full(len(log["step"]), m)
        both = {k: np.concatenate([both[k], log[k]]) if both else log[k] for k in log}
    write_records(both, "both.parquet")


def test_data_and_a_settings_file_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--data", "north.csv", "--data", "south.csv"]
    assert main([*WORDS, *files, "--out", "run", "--format", "json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["counts"]["logged_episodes"] == 41
    assert summary["parameters"]["logged"] == 21
    same = FedLSVI(2).learn(RandomMDP(**SIZES), 15, data="both.parquet", progress=False)
    first = fedlsvi.load("run")
    assert first.w.tobytes() == same.w.tobytes()
    assert main(["run", "run/settings.toml", "--out", "again", "--quiet"]) == 0
    assert "41 logged episodes of 2 of 2 agents" in capsys.readouterr().out
    assert fedlsvi.load("again").w.tobytes() == first.w.tobytes()
    assert main([*WORDS, *files, "--seeds", "0:2", "--out", "two"]) == 0
    assert fedlsvi.load("two/seed-0").w.tobytes() == first.w.tobytes()
    assert main(["report", "run"]) == 0
    assert "What it started from" in Path("run/report.html").read_text()
    assert main(["resume", "run", "--episodes", "20", "--quiet"]) == 0
    assert fedlsvi.load("run").played == 20


def test_an_earlier_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--out", "before"]) == 0
    start = ["--warm-start", "before", "--warm-weight", "0.5"]
    assert main([*WORDS, *start, "--out", "run"]) == 0
    assert "0.5 times" in capsys.readouterr().out
    assert fedlsvi.load("run").parameters.prior == 0.5
    assert main(["run", "run/settings.toml", "--out", "again", "--quiet"]) == 0
    assert fedlsvi.load("again").w.tobytes() == fedlsvi.load("run").w.tobytes()
    assert main([*WORDS, "--warm-weight", "0.5", "--out", "-"]) == 2
    assert main([*WORDS, "--algorithm", "periodic", *start, "--out", "-"]) == 2
    assert main([*WORDS, "--warm-start", "nowhere", "--out", "-"]) == 2
