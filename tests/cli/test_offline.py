"""`fedlsvi offline` and `fedlsvi data` as they are typed."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import fedlsvi
from fedlsvi.algorithms.fitted_q_evaluation import ENGINES, estimate_value
from fedlsvi.algorithms.shared.plain_policies import Always
from fedlsvi.cli import main
from fedlsvi.envs import RandomMDP, logged_worlds, record_episodes, write_records
from fedlsvi.storage import evaluations


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
def test_a_value_is_estimated_from_logs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run and of a policy file, the same; the text keeps estimated and measured apart."""
    run = fedlsvi.offline(["north.csv", "south.csv"], folder="run", progress=False)
    run.policy.save("policy")
    assert main(["report", "run"]) == 0
    assert "The policy has not been evaluated from logs" in Path("run/report.html").read_text()
    capsys.readouterr()
    found = []
    for where in ("run", "policy"):
        words = ["evaluate", where, "--data", "north.csv", "--data", "south.csv"]
        assert main([*words, "--repeats", "20", "--format", "json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]
    # wherever the logs are read; tests/remote/ray has an engine in place of threads
    monkeypatch.setitem(ENGINES, "ray", "fedlsvi.remote.evaluation:in_threads")
    assert main([*words, "--repeats", "20", "--transport", "ray", "--format", "json"]) == 0
    there = json.loads(capsys.readouterr().out)
    assert there.pop("scalars") > found[0]["scalars"]  # agents are asked how far they are
    assert there == pytest.approx({k: v for k, v in found[0].items() if k != "scalars"}, abs=1e-9)
    assert found[0]["low"] < found[0]["value"] < found[0]["high"]
    assert found[0]["pessimistic"] == 0.0
    assert found[0]["episodes"] == 41
    assert main([*words, "--repeats", "0"]) == 0
    said = capsys.readouterr().out
    assert "estimated" in said
    assert "measured" in said
    assert "kept in" not in said  # there is no run beside a policy
    assert not Path("policy/evaluations.json").exists()


@pytest.mark.usefixtures("logs")
def test_an_estimate_keeps_to_the_range_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Returns of at most 1: neither estimate, interval nor bounds are above, whether the range
    comes from the run, from its policy or from the command line."""
    for name in ("north", "south"):
        log = record_episodes(RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1), 8)
        log["reward"] = np.where(log["step"] == 3, 0.99, 0.0)
        write_records({k: v for k, v in log.items() if k != "probability"}, f"{name}.csv")
    files = ["north.csv", "south.csv"]
    run = fedlsvi.offline(files, folder="run", value_range=1.0, progress=False)
    run.policy.save("policy")
    fedlsvi.offline(files, folder="other", progress=False)
    words = ["--data", files[0], "--data", files[1], "--repeats", "40"]
    for where, more in (("run", []), ("policy", []), ("other", ["--value-range", "1"])):
        assert main(["evaluate", where, *words, *more, "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["optimistic"] == 1.0
        assert 0.0 <= found["low"] <= found["value"] <= found["high"] <= 1.0
        assert found["value"] + found["unseen"] <= 1.0
    assert main(["evaluate", "other", *words, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["optimistic"] > 1.0
    assert main(["evaluate", "run", *words]) == 0
    assert "no importance sampling" in capsys.readouterr().out
    assert main(["report", "run"]) == 0
    assert "column 'probability'" in html.unescape(section(Path("run/report.html"))[0])
    assert main(["evaluate", "run", *words, "--value-range", "0.5"]) == 2
    assert "--value-range" in capsys.readouterr().err


def clinic(path: str, seed: int = 0) -> None:
    """A table whose columns have other names, and whose actions are words."""
    log = record_episodes(RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1), 20, seed=seed)
    log["dose"] = np.array(["none", "low", "high"])[log.pop("action")]
    log["patient"] = log.pop("episode")
    write_records(log, path)


@pytest.mark.parametrize("given", ["file", "arrays", "warm"])
def test_logs_are_evaluated_as_the_run_has_read_its_own(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Columns and names of actions are in the run folder, also where no file was; --column and
    --actions override them."""
    monkeypatch.chdir(tmp_path)
    clinic("ward.csv")
    clinic("other.csv", seed=1)
    columns = {"episode": "patient", "action": "dose"}
    names = ["none", "low", "high"]
    own: dict[str, Any] = {"columns": columns, "progress": False, "folder": "run"}
    data: Any = "ward.csv"
    if given == "warm":
        env = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
        logs = logged_worlds(data, like=env, columns=columns, action_names=names)
        fedlsvi.FedLSVI(1).learn(env, 5, data=logs, progress=False, folder="run")
    else:
        if given == "arrays":
            data = pandas.read_csv(data)
        fedlsvi.offline(data, action_names=names, **own)
    words = ["evaluate", "run", "--data", "other.csv", "--repeats", "0", "--format", "json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    renamed = pandas.read_csv("other.csv").rename(columns={"dose": "drug"})
    renamed["drug"] = renamed["drug"].str.upper()
    renamed.to_csv("renamed.csv", index=False)
    words[3] = "renamed.csv"
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "--column action=" in said
    assert "columns=" not in said
    more = ["--column", "action=drug", "--actions", "NONE,LOW,HIGH"]
    assert main([*words, *more]) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert main([*words[:-2], *more[:2]]) == 2
    assert "HIGH" in capsys.readouterr().err


def test_words_for_actions_that_a_policy_numbers_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    clinic("ward.csv")
    log = record_episodes(RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1), 20)
    fedlsvi.offline(log, folder="run", progress=False)
    words = ["evaluate", "run", "--data", "ward.csv", "--column", "episode=patient", "--column",
             "action=dose", "--repeats", "0"]  # fmt: skip
    assert main(words) == 2
    assert "--actions" in capsys.readouterr().err
    assert main([*words, "--actions", "none,low,high"]) == 0


def test_errors_of_logs_have_the_words_of_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    clinic("ward.csv")
    assert main(["data", "ward.csv"]) == 2
    assert "--column episode=NAME" in capsys.readouterr().err
    named = ["--column", "episode=patient", "--column", "action=dose"]
    assert main(["data", "ward.csv", *named, "--horizon", "2"]) == 2
    assert "--horizon" in capsys.readouterr().err
    assert main(["data", "ward.csv", *named, "--reward-range", "0", "0.1"]) == 2
    assert "--reward-range" in capsys.readouterr().err
    assert main(["data", "ward.csv", *named, "--actions", "4"]) == 2
    assert "--actions NAME" in capsys.readouterr().err
    assert main(["data", "ward.csv", *named]) == 0
    assert "0 = high, 1 = low, 2 = none" in capsys.readouterr().out
    assert main(["data", "ward.csv", *named, "--actions", "none,low,high", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["action_names"] == ["none", "low", "high"]


def section(page: Path) -> tuple[str, str]:
    """What a page says under *estimated* and under *measured*."""
    text = page.read_text().partition(">Estimated and measured value<")[2].partition("<h2>")[0]
    _, estimated, measured = text.split("<h3>")
    return estimated, measured


@pytest.mark.usefixtures("logs")
def test_data_shows_a_policy_beside_plain_rules(capsys: pytest.CaptureFixture[str]) -> None:
    """The same numbers as `evaluate`, and of rules that need no learning."""
    env = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
    run = fedlsvi.offline(["north.csv"], folder="run", n_states=4, n_actions=3, progress=False)
    words = ["data", "south.csv", "--policy", "run", "--repeats", "10"]
    assert main([*words, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["policies"]
    assert list(found) == ["learned", "behaviour cloning", "always action 0", "random"]
    assert main(["evaluate", "run", "--data", "south.csv", "--repeats", "10", "--format",
                 "json"]) == 0  # fmt: skip
    assert json.loads(capsys.readouterr().out) == found["learned"]
    # uniform behaviour: what random earns by importance sampling is what the log earned
    assert found["random"]["importance"] == pytest.approx(found["random"]["behaviour"])
    always = estimate_value(Always(0), logged_worlds("south.csv", like=env), run.plan.features,
                            repeats=10)  # fmt: skip
    assert found["always action 0"] == pytest.approx(always.row())
    assert main(words) == 0
    said = capsys.readouterr().out
    for row in found.values():
        assert f"{row['value']:.4g}" in said
        assert f"{row['robust']:.4g}" in said


@pytest.mark.usefixtures("logs")
def test_the_report_keeps_estimated_and_measured_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs = ["north.csv", "south.csv"]
    sizes: dict[str, Any] = {"n_states": 4, "n_actions": 3}
    run = fedlsvi.offline(logs, folder="run", progress=False, **sizes)
    words = ["evaluate", "run", "--data", logs[0], "--data", logs[1], "--repeats", "20"]
    assert main([*words, "--stationary"]) == 0
    assert "kept in" in capsys.readouterr().out
    assert main([*words, "--seed", "7"]) == 0
    assert main(words) == 0  # takes the place of the one before
    capsys.readouterr()
    assert main([*words, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["stationary"] for one in evaluations.read("run")["estimated"]] == [True, False]
    run.report()
    estimated, measured = section(Path("run/report.html"))
    for number in (
        "value",
        "low",
        "high",
        "unseen",
        "optimistic",
        "importance",
        "robust",
        "robust_low",
        "robust_high",
    ):
        assert f"{found[number]:,.4g}" in estimated, number
    assert f"{found['behaviour']:,.4g}" in measured
    assert f"{found['value']:,.4g}" not in measured
    assert "was not measured" in measured
    # in a simulator it can be played, and that goes to the other list
    ward = ["--env", "random-mdp", "--set", "env.n_states=4", "--set", "env.n_actions=3", "--set",
            "env.horizon=3", "--set", "env.seed=1"]  # fmt: skip
    assert main(["evaluate", "run", *ward, "--episodes", "30", "--format", "json"]) == 0
    played = json.loads(capsys.readouterr().out)
    assert main(["report", "run"]) == 0
    again, measured = section(Path("run/report.html"))
    assert again == estimated
    assert "was not measured" not in measured
    assert f"{played['mean']:,.4g}" in measured
    assert "30 episodes played in" in measured
    # a file that somebody changed is refused, and what cannot be kept is still printed
    kept = Path("run/evaluations.json")
    kept.write_text(kept.read_text().replace("0.", "1.", 1))
    assert main(["report", "run"]) == 2
    capsys.readouterr()
    assert main(words) == 0
    said = capsys.readouterr()
    assert "estimated value" in said.out
    assert "will not show" in said.err


@pytest.mark.usefixtures("logs")
@pytest.mark.filterwarnings("ignore::fedlsvi.errors.ContinuationWarning")
def test_a_run_that_began_with_logs_is_estimated_and_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    env = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
    given: dict[str, Any] = {"progress": False, "folder": "run"}
    fedlsvi.FedLSVI(2).learn(env, 15, data=["north.csv", "south.csv"], **given)
    words = ["evaluate", "run", "--data", "north.csv", "--repeats", "5", "--format", "json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["report", "run"]) == 0
    estimated, measured = section(Path("run/report.html"))
    exact = fedlsvi.load("run").references()["learned"]
    assert f"{found['value']:,.4g}" in estimated
    assert f"{exact:,.4g}" in measured
    assert "exact" in measured
    assert f"{exact:,.4g}" not in estimated
    # the policy of a run that goes on is another one
    fedlsvi.load("run").learn_more(15, progress=False)
    assert main(["report", "run"]) == 0
    estimated, measured = section(Path("run/report.html"))
    assert "has not been evaluated from logs" in estimated
    assert "1 evaluation of the policy before" in measured


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
