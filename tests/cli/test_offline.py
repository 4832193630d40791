"""`fedlsvi offline` and `fedlsvi data` as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fedlsvi
from fedlsvi.cli import main
from fedlsvi.envs import RandomMDP, record_episodes, write_records


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    env = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
    for name, seed in (("north", 0), ("south", 1)):
        write_records(record_episodes(env, 20 + seed, seed=seed), f"{name}.csv")


@pytest.mark.usefixtures("logs")
def test_learn_from_files_and_report(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--states", "4", "--actions", "3", "--horizon", "3"]
    words = ["offline", "north.csv", "south.csv", *given, "--set", "beta=0.2", "--format", "json"]
    assert main([*words, "--out", "run", "--quiet"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["counts"] == {
        "logged_episodes": 41, "logged_transitions": 123, "left_out": 0,
    }  # fmt: skip
    assert summary["parameters"]["beta"] == 0.2
    same = fedlsvi.offline(["north.csv", "south.csv"], n_states=4, n_actions=3, beta=0.2,
                           progress=False)  # fmt: skip
    assert fedlsvi.load("run").w.tobytes() == same.w.tobytes()
    assert main(["report", "run"]) == 0
    page = Path("run/report.html").read_text()
    assert "What the logs cover" in page
    assert main(["evaluate", "run"]) == 2
    assert main(["evaluate", "run", "--env", "random-mdp", "--set", "env.n_states=4", "--set",
                 "env.n_actions=3", "--set", "env.horizon=3", "--episodes", "3"]) == 0  # fmt: skip


@pytest.mark.usefixtures("logs")
def test_a_value_is_estimated_from_logs(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a run and of a policy file, the same; the text keeps estimated and measured apart."""
    run = fedlsvi.offline(["north.csv", "south.csv"], folder="run", progress=False)
    run.policy.save("policy")
    found = []
    for where in ("run", "policy"):
        words = ["evaluate", where, "--data", "north.csv", "--data", "south.csv"]
        assert main([*words, "--repeats", "20", "--format", "json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]
    assert found[0]["low"] < found[0]["value"] < found[0]["high"]
    assert found[0]["pessimistic"] == 0.0
    assert found[0]["episodes"] == 41
    assert main([*words, "--repeats", "0"]) == 0
    said = capsys.readouterr().out
    assert "estimated" in said
    assert "measured" in said


@pytest.mark.usefixtures("logs")
def test_what_logs_hold_is_printed_and_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["data", "north.csv", "south.csv", "--states", "5", "--actions", "3"]
    assert main([*words, "--format", "json", "--plot", "seen.png"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["episodes"] for one in found["agents"]] == [20, 21]
    assert [one["visits"] for one in found["steps"]] == [41.0] * 3
    assert all(one["unseen"] >= 3 for one in found["steps"])  # state 4 does not exist
    assert Path("seen.png").is_file()
    assert main(words) == 0
    assert "as good as unseen" in capsys.readouterr().out
    assert main(["data", "gone.csv"]) == 2
