"""`run`, `resume`, `list`, `report`, `doctor`, `bench`, `demo` and `completion` do their work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.shell_completion import ShellComplete

import fedlsvi
from expecting import refused as raises_refused
from fedlsvi import json_log
from fedlsvi.cli import SECTIONS, commands, main
from fedlsvi.cli.command import new_folder
from fedlsvi.cli.machine import TAUS
from fedlsvi.errors import InvalidInput
from fedlsvi.learner import FedLSVI
from fedlsvi.registry import Entry
from shell import refused

SOURCE = Path(__file__).parents[2] / "src"
LINE = ["run", "--env", "random-linear", "--agents", "3", "--episodes", "60"]


pytestmark = pytest.mark.usefixtures("here")


def said(capsys: pytest.CaptureFixture[str], *line: str) -> str:
    assert main(list(line)) == 0
    return capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str], *line: str) -> Any:
    return json.loads(said(capsys, *line, "--format", "json"))


def test_help_is_fast_and_imports_little() -> None:
    code = (
        "import sys; from fedlsvi.cli import SECTIONS, main; main(['--help']);"
        "names = [name for section in SECTIONS.values() for name in section];"
        "assert all(main([name, '--help']) == 0 for name in names);"
        "print([m for m in ('numpy', 'numba', 'matplotlib', 'rich', 'scipy') if m in sys.modules])"
    )
    env = os.environ | {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_help_shows_sections_examples_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    root = said(capsys, "--help")
    assert all(f"{title}:\n" in root for title in SECTIONS)
    text = " ".join(said(capsys, "run", "--help").split())
    for words in ("fedlsvi run --env", "FrozenLake-v1", "fedlsvi list settings",
                  "[default: fed-lsvi]", "[default: 5.0]", "Repeatable"):  # fmt: skip
        assert words in text
    claims = said(capsys, "reproduce", "--help")
    assert "theorem-3" in claims
    assert main([]) == 2  # the same help on standard error
    assert capsys.readouterr().err.startswith("Usage")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands_options_and_names(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("click.shell_completion.BashComplete._check_version", lambda *_: None)
    assert "_FEDLSVI_COMPLETE" in said(capsys, "completion", shell)

    def completed(*words: str) -> set[str]:
        *before, last = words
        complete = ShellComplete(commands, {}, "fedlsvi", "_FEDLSVI_COMPLETE")
        return {item.value for item in complete.get_completions(before, last)}

    assert "run" in completed("r")
    assert "--episodes" in completed("run", "--e")
    assert "river-swim" in completed("run", "--env", "river")
    assert "theorem-1" in completed("reproduce", "theorem")
    assert {"init", "status"} <= completed("federate", "")


def test_public_names_are_pinned() -> None:
    assert sorted(fedlsvi.__all__) == [
        "FedLSVI", "FedLSVIError", "PEVI", "Run", "STOP", "__version__", "load", "offline",
        "resume",
    ]  # fmt: skip
    for name in fedlsvi.__all__:
        assert getattr(fedlsvi, name) is not None
    with pytest.raises(AttributeError):
        fedlsvi.nothing  # noqa: B018


def test_run_writes_a_folder_that_the_library_reads(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = as_json(capsys, *LINE, "--seed", "5", "--set", "gamma=9", "--set", "env.horizon=4")
    assert summary["folder"] == str(Path("runs") / "random-linear")
    run = fedlsvi.load(summary["folder"])
    env = fedlsvi.envs.make("random-linear", horizon=4)
    again = fedlsvi.FedLSVI(n_agents=3, gamma=9.0).learn(env, 60, seed=5, progress=False)
    assert run.w.tobytes() == again.w.tobytes()
    assert summary["rounds"] == again.rounds
    assert summary["regret"] == again.regret[-1]  # type: ignore[index]
    assert summary["parameters"]["horizon"] == 4
    text = said(capsys, *LINE)
    assert "runs/random-linear-2" in text
    assert "are possible" in text


@pytest.mark.parametrize(("algorithm", "numbers"), [
    ("fed-lsvi", "(H = 5, d = 8, γ = 1, β = 1.25 (tapered), λ = 0.001)"),
    ("independent", "(H = 5, d = 8, β = 1.25 (tapered), λ = 0.001)"),
])  # fmt: skip
def test_one_is_one_and_only_numbers_that_exist_are_told(
    algorithm: str, numbers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["run", "--env", "random-linear", "--episodes", "1", "--out", "-"]
    text = said(capsys, *line, "--algorithm", algorithm)
    assert f"{algorithm} on random-linear: 1 agent, 1 episode each {numbers}" in text
    assert "  episode; short rounds" in text


def test_commands_that_are_shown_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    assert "report 'a b/run'\n" in said(capsys, *LINE, "--out", "a b/run")
    assert "report 'a b/runs'\n" in said(capsys, *LINE, "--seeds", "0:2", "--out", "a b/runs")


def test_settings_come_from_a_file_and_the_line_wins(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "job.toml").write_text(
        'episodes = 30\nn_agents = 2\ngamma = 5\n[env]\nname = "garnet"\nn_states = 7\n'
    )
    summary = as_json(capsys, "run", "job.toml", "--agents", "4", "--out", "-")
    assert summary["folder"] is None
    assert summary["parameters"]["n_agents"] == 4
    assert summary["parameters"]["gamma"] == 5
    assert summary["parameters"]["dim"] == 28
    other = as_json(capsys, "run", "job.toml", "--env", "deep-sea", "--out", "-")
    assert other["environment"] == "deep-sea"
    assert not (here / "runs").exists()


def test_a_written_settings_file_plays_the_same_run(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("mdp.npz", P=np.full((2, 2, 2), 0.5), r=np.eye(2), horizon=3)
    for line in ([*LINE, "--features", "one-hot"], ["run", "--env", "mdp.npz", "--episodes", "30"]):
        main([*line, "--out", "first"])
        main(["run", "first/settings.toml", "--out", "second"])
        first, second = fedlsvi.load("first"), fedlsvi.load("second")
        assert first.w.tobytes() == second.w.tobytes()
        assert first.taus == second.taus
        for name in ("first", "second"):
            Path(name).rename(f"{name}-{len(line)}")
    capsys.readouterr()


def test_several_seeds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = as_json(capsys, *LINE, "--seeds", "0:3", "--out", "many")
    assert result["seeds"] == [0, 1, 2]
    regrets = [run["regret"] for run in result["runs"]]
    found = {"median": np.median(regrets), "low": min(regrets), "high": max(regrets)}
    assert result["regret"] == found
    assert {"rounds", "scalars"} <= set(result)
    assert sorted(p.name for p in Path("many").iterdir()) == [
        "seed-0", "seed-1", "seed-2", "seeds.json",
    ]  # fmt: skip
    assert fedlsvi.load("many/seed-2").seed == 2
    assert "median" in said(capsys, *LINE, "--seeds", "4,6", "--out", "-")


def test_resume_finishes_a_family(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A family that was interrupted in its second run and never began the third."""
    expected = as_json(capsys, *LINE, "--seeds", "0:3", "--out", "whole")
    main([*LINE, "--seeds", "0:3", "--out", "cut"])
    capsys.readouterr()
    import shutil

    shutil.rmtree("cut/seed-2")
    for path in Path("cut/seed-1/checkpoints").iterdir():
        path.unlink()
    result = as_json(capsys, "resume", "cut")
    assert [r["regret"] for r in result["runs"]] == [r["regret"] for r in expected["runs"]]


def test_resume_a_finished_run(capsys: pytest.CaptureFixture[str]) -> None:
    main([*LINE, "--out", "run"])
    capsys.readouterr()
    assert as_json(capsys, "resume", "run")["finished"] is True


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "list")
    assert {row["name"] for row in found["environments"]} >= {"random-linear", "river-swim"}
    assert "fed-lsvi" in {row["name"] for row in found["algorithms"]}
    assert found["features"]
    text = said(capsys, "list", "algorithms")
    assert "fed-lsvi" in text
    assert "river-swim" not in text


def test_report(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*LINE, "--seeds", "0:2", "--out", "many"])
    capsys.readouterr()
    found = as_json(capsys, "report", "many")
    assert found["page"] == str(Path("many") / "report.html")
    assert all(Path(path).exists() for path in found["plots"])
    assert len(found["plots"]) == 12
    assert "report.html" in said(capsys, "report", "many/seed-1", "--out", "one")
    assert Path("one/plots/regret.svg").exists()


def test_runs_of_different_problems_are_not_drawn_together(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main([*LINE, "--out", "a"])
    main([*LINE, "--set", "env.dim=7", "--out", "b"])
    assert main(["report", "a", "b"]) == 2
    assert "one by one" in capsys.readouterr().err


def test_runs_of_one_problem_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    main([*LINE, "--seeds", "0:2", "--out", "a"])
    main([*LINE, "--set", "gamma=3", "--out", "b"])
    capsys.readouterr()
    found = as_json(capsys, "report", "a", "b", "--out", "both")
    assert "2 settings of fed-lsvi" in Path(found["page"]).read_text(encoding="utf-8")
    found = as_json(capsys, "report", "a", "b")
    assert Path(found["page"]) == Path("report/report.html").absolute()
    assert "report/ in the folder" in " ".join(said(capsys, "report", "--help").split())


def test_a_comparison_is_reported_by_itself_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    line = "compare --env river-swim --algorithms fed-lsvi,centralised --agents 2 --episodes 20"
    assert main([*line.split(), "--seeds", "0:2", "--jobs", "1", "--out", "compared"]) == 0
    main([*LINE, "--out", "a"])
    capsys.readouterr()
    assert refused(capsys, "report", "a", "compared").code == "comparison-among-runs"
    found = as_json(capsys, "report", "compared")
    text = Path(found["page"]).read_text(encoding="utf-8")
    assert "2 algorithms on river-swim" in text
    cells = Path("compared/runs.jsonl")
    cells.write_bytes(b"".join(cells.read_bytes().splitlines(keepends=True)[:-1]))
    assert refused(capsys, "report", "compared").code == "comparison-unfinished"


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "doctor")
    assert found["ok"], found
    assert {row["check"] for row in found["checks"]} >= {"BLAS", "known run", "matrix rows"}


def test_the_doctors_known_run_is_the_papers() -> None:
    """Its rounds are those of the literal reference, not merely those this code once gave."""
    from fedlsvi.envs import RandomLinearMDP
    from literal import literal_fed_lsvi

    env = RandomLinearMDP(6, 2, 3, horizon=3, seed=0, initial="uniform")
    reference = literal_fed_lsvi(env, env.phi, 4, 60, 3, 0, 1.0, 0.5, 8.0, None)
    assert reference.taus == TAUS


def test_an_algorithm_of_ones_own_is_a_row_like_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedlsvi.algorithms import registry

    class Cautious(fedlsvi.FedLSVI):
        name = "cautious"

        def __init__(self, n_agents: int = 1, *, gamma: float = 4.0) -> None:
            super().__init__(n_agents, gamma=gamma, beta=2.0)

    monkeypatch.setattr(registry.REGISTRY, "rows", dict(registry.REGISTRY.rows))
    registry.register("cautious", Cautious, "explores more")
    with raises_refused(InvalidInput, "name-taken", "cautious"):
        registry.register("cautious", Cautious, "again")
    rows = as_json(capsys, "list", "algorithms")["algorithms"]
    assert {"n_agents": 1, "gamma": 4.0} in [row["parameters"] for row in rows]
    summary = as_json(capsys, *LINE, "--algorithm", "cautious", "--out", "run")
    assert summary["parameters"]["beta"] == 2.0
    for path in Path("run/checkpoints").iterdir():
        path.unlink()
    assert as_json(capsys, "resume", "run")["regret"] == summary["regret"]
    assert main([*LINE, "--algorithm", "cautious", "--set", "lam=1"]) == 2


def test_bench_prints_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedlsvi.experiments import bench
    from fedlsvi.experiments.measure import Row

    monkeypatch.setattr(bench, "finite", lambda: [Row("steps", 18.5)])
    monkeypatch.setattr(bench, "continuous", lambda: [Row("rate", 0.5, "x")])
    lines = said(capsys, "bench").splitlines()
    assert [line.split() for line in lines[1:]] == [["steps", "18.5"], ["rate", "0.5", "x"]]
    assert "wanted" not in lines[0]


def test_runs_are_listed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*LINE, "--out", "runs/a"])
    main([*LINE, "--seeds", "0:2", "--out", "runs/b"])
    Path("runs/c").mkdir()
    Path("runs/c/settings.toml").write_text("")
    capsys.readouterr()
    rows = as_json(capsys, "list", "runs")["runs"]
    assert [row["name"] for row in rows] == ["a", "b/seed-0", "b/seed-1", "c"]
    run = fedlsvi.load("runs/a")
    assert run.regret is not None
    assert rows[0] == {
        "name": "a", "folder": "runs/a", "algorithm": "fed-lsvi", "environment": "random-linear",
        "episodes": 60, "of": 60, "rounds": run.rounds, "regret": run.regret[-1], "return": None,
    }  # fmt: skip
    assert "c" in rows[3]["problem"]
    text = said(capsys, "list", "runs", "runs/b").splitlines()
    assert len(text) == 3
    assert "60/60" in text[1]
    assert refused(capsys, "list", "runs", "nowhere").code == "no-folder"
    assert refused(capsys, "list", "features", "runs").code == "bad-folder"


def test_settings_are_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rows = {row["name"]: row for row in as_json(capsys, "list", "settings")["settings"]}
    assert rows["gamma"]["parameters"] == {"default": "auto"}
    assert rows["gamma"]["algorithms"] == ["fed-lsvi", "stale"]
    assert "Episodes between two" in rows["period"]["summary"]
    text = said(capsys, "list", "settings")
    assert "docs/" not in text  # the text itself, also where there is no clone
    assert max(map(len, text.splitlines())) <= 80
    for name, row in rows.items():
        assert not row["summary"].startswith("("), f"{name} is not documented"


def test_a_setting_says_what_its_docstring_says() -> None:
    class Documented(FedLSVI):
        """Another.

        Args:
            n_agents: M.
            haste: In all
                its lines: whole.

        Attributes:
            name: What it is called.

        More text.
        """

        name = "documented"

        def __init__(self, n_agents: int = 1, haste: float = 4.0) -> None:
            super().__init__(n_agents)

    assert Entry("documented", Documented, "").parameter_texts() == {
        "n_agents": "M.", "haste": "In all its lines: whole.", "name": "What it is called.",
    }  # fmt: skip
    assert Entry("nothing", lambda: None, "").parameter_texts() == {}


def test_privacy_of_several_seeds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the README makes them: it said "no versions.json"."""
    main([*LINE, "--seeds", "0:2", "--out", "runs/first"])
    capsys.readouterr()
    each = as_json(capsys, "privacy", "runs/first/")
    assert list(each) == ["runs/first/seed-0", "runs/first/seed-1"]
    assert each["runs/first/seed-1"] == as_json(capsys, "privacy", "runs/first/seed-1/")
    text = said(capsys, "privacy", "runs/first")
    assert text.count("smallest upload") == 2
    assert "runs/first/seed-1:" in text


@pytest.mark.parametrize("verb", ["report", "evaluate", "privacy"])
def test_a_folder_of_runs_names_them(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([*LINE, "--seeds", "0:2", "--out", "runs/many"])
    capsys.readouterr()
    for folder in ("runs", "runs/many")[: 1 + (verb == "evaluate")]:
        message = refused(capsys, verb, folder)
        assert message.code == "contains-runs"
        assert "runs/many/seed-1" in message


def test_quiet_shows_no_progress_and_no_notices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*LINE, "-q", "--out", "-"]) == 0
    assert capsys.readouterr().err == ""


def test_demo(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "demo", "--episodes", "120")
    for word in ("regret", "rounds", "scalars sent", "Theorem 3", "each alone"):
        assert word in text
    for line in text.splitlines():
        if line.strip().endswith((".png", ".html")):
            assert Path(line.strip()).exists()
    with new_folder(Path("runs/demo")) as folder:
        assert folder == Path("runs/demo-2")


def test_demo_without_matplotlib_is_refused_at_once(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "fedlsvi[plot]" in refused(capsys, "demo")


def test_a_run_writes_a_log_of_its_own(tmp_path: Path) -> None:
    """Its begin, rounds and end as JSON lines for their owner alone, above a level; a resumed run
    appends."""
    log, folder = tmp_path / "log.jsonl", tmp_path / "run"
    words = ["run", "--env", "river-swim", "--agents", "2", "--episodes", "20", "-q"]
    assert main([*words, "--out", str(folder), "--log", str(log)]) == 0
    assert log.stat().st_mode & 0o777 == 0o600
    rounds = fedlsvi.load(folder).records
    said = [(line["level"], line["message"]) for line in json_log.read(log)]
    ends = [("INFO", f"round {record.k} ends at episode {record.last}") for record in rounds]
    assert [row for row in said if row[1].startswith("round ")] == ends
    assert (said[0][1], said[-1][1]) == ("this run begins", "this run ends")
    assert main(["resume", str(folder), "--episodes", "30", "-q", "--log", str(log)]) == 0
    assert len(list(json_log.read(log))) > len(said)
    only = [*words, "--out", "-", "--log-level", "warning"]
    assert main([*only, "--log", str(tmp_path / "quiet.jsonl")]) == 0
    assert list(json_log.read(tmp_path / "quiet.jsonl")) == []
    assert main([*only, "--log", str(tmp_path / "nowhere" / "log.jsonl")]) == 2
