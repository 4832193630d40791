"""A folder of runs: one command writes at a time, others read; unfinished ones are taken up."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from expecting import refused as refusal
from fedlsvi.cli import main
from fedlsvi.errors import FolderExists, InvalidInput, StoreError
from fedlsvi.experiments import reproduce, runner
from fedlsvi.experiments.compare import Question, claim_folder, holds
from fedlsvi.experiments.runner import ResultFile, RunSpec, missing, run_all
from fedlsvi.experiments.sweeps import random_linear, run_spec
from fedlsvi.storage import files
from shell import refused

SMALL = ["--env", "random-linear", "--set", "env.dim=4", "--set", "env.horizon=3"]
COMPARE = ["compare", *SMALL, "--episodes", "20", "--seeds", "0:2", "--jobs", "1",
           "--algorithms", "fed-lsvi,independent", "--format", "json"]  # fmt: skip
TUNE = ["tune", *SMALL, "--episodes", "20", "--tune", "0:1", "--test", "5:6", "--jobs", "1",
        "--algorithms", "fed-lsvi", "--format", "json"]  # fmt: skip

pytestmark = pytest.mark.usefixtures("here")


def small(seed: int) -> RunSpec:
    return run_spec("fed-lsvi", random_linear(0, 4, 3), 20, 2, seed, {})


def stopped_after(monkeypatch: pytest.MonkeyPatch, runs: int) -> None:
    """Ctrl-C once so many runs are finished."""
    left, play = iter(range(runs)), runner.play

    def until(table: dict[str, Any]) -> runner.Outcome:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return play(table)

    monkeypatch.setattr(runner, "play", until)


def test_one_command_at_a_time_has_the_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    first = ResultFile(path)
    run_all([small(0)], first, jobs=1)
    with refusal(StoreError, "in-use", "runs.jsonl"):
        ResultFile(path)
    run_all([small(1)], first, jobs=1)  # the refused one has cut nothing off
    first.close()
    after = ResultFile(path)
    assert missing([small(0), small(1)], after) == []
    after.close()


def test_a_file_that_cannot_be_read_is_let_go(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text("{}\n")
    for _ in range(2):
        with refusal(InvalidInput, "not-a-result", "line 1"):
            ResultFile(path)
    path.unlink()
    ResultFile(path).close()


def test_reading_changes_nothing_while_another_writes(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    assert ResultFile.read(path) == {}
    assert not path.exists()
    results = ResultFile(path)
    run_all([small(0)], results, jobs=1)
    with path.open("ab") as file:
        file.write(b'{"key": ')  # a line that is under way
    before = path.read_bytes()
    assert ResultFile.read(path) == results.outcomes
    assert path.read_bytes() == before
    results.close()


def test_reproduce_has_the_file_until_its_pages_are_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = reproduce.study("trigger")

    def analysis(points: Any) -> Any:
        with refusal(StoreError, "in-use"):
            ResultFile(Path("r/cells/quick.jsonl"))
        return study.finding(points)

    def tiny(size: object) -> list[RunSpec]:
        return [
            run_spec("fed-lsvi", random_linear(i), 64, 8, i, {"γ": g}, gamma=g)
            for g in (1.0, 8.0, 64.0) for i in range(2)
        ]  # fmt: skip

    here = reproduce.Study(study.name, tiny, analysis)
    monkeypatch.setattr(reproduce, "studies", lambda names: [here])
    assert main(["reproduce", "--quick", "trigger", "--jobs", "1", "--out", "r"]) == 0
    capsys.readouterr()
    ResultFile(Path("r/cells/quick.jsonl")).close()


def questions() -> list[Question]:
    return [Question.parse({"env": "river-swim"}, ["fed-lsvi"], seeds) for seeds in ([0], [1])]


def raced(monkeypatch: pytest.MonkeyPatch, rival: Callable[[], object]) -> None:
    """Another command is faster, once everything was looked at and before anything is written."""
    make, late = files.make_folder, ["first call"]

    def after(folder: Path) -> None:
        make(folder)
        if late:
            late.clear()
            rival()

    monkeypatch.setattr(files, "make_folder", after)


@pytest.mark.parametrize("links", [True, False])
def test_of_two_questions_at_once_one_has_the_folder(
    links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = questions()
    folder = Path("c")
    with monkeypatch.context() as patch:
        if not links:
            patch.setattr(os, "link", refuse)
            assert claim_folder(folder, first) is False
        else:
            raced(patch, lambda: claim_folder(folder, first))
        with refusal(FolderExists, "another-question", "folder c"):
            claim_folder(folder, second)
    assert holds(folder, first)
    assert [path.name for path in folder.iterdir()] == ["question.json"]
    assert claim_folder(folder, first) is True


def refuse(*paths: object) -> None:
    raise OSError("no links on this disk")


def test_the_same_question_at_once_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = questions()
    raced(monkeypatch, lambda: claim_folder(Path("c"), first))
    assert claim_folder(Path("c"), first) is True


def test_what_a_killed_command_left_is_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = questions()
    Path("c").mkdir()
    for name in (".question.json.1", "..question.json.1.tmp"):
        Path("c", name).write_text("{")
    assert claim_folder(Path("c"), first) is False
    Path("d").mkdir()
    Path("d/notes.txt").touch()
    with refusal(FolderExists, "folder-exists", "folder d"):
        claim_folder(Path("d"), first)


def test_the_next_folder_where_another_question_has_the_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    claim_folder(Path("runs/compare"), questions()[0])
    assert main(COMPARE) == 0
    assert json.loads(capsys.readouterr().out)["folder"] == str(Path("runs/compare-2"))


def test_report_of_an_unfinished_comparison_leaves_it_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped_after(monkeypatch, 1)
    assert main([*COMPARE, "--out", "c"]) == 130
    capsys.readouterr()
    with Path("c/runs.jsonl").open("ab") as file:
        file.write(b'{"key": ')
    before = Path("c/runs.jsonl").read_bytes()
    assert "not all runs" in refused(capsys, "report", "c")
    assert Path("c/runs.jsonl").read_bytes() == before
    Path("c/runs.jsonl").unlink()
    assert "not all runs" in refused(capsys, "report", "c")  # which also looks for new files


@pytest.mark.parametrize(("line", "runs"), [(COMPARE, 4), (TUNE, 9)])
def test_the_same_command_goes_on_where_it_was_stopped(
    line: list[str], runs: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = line[0]
    with monkeypatch.context() as until:
        stopped_after(until, 1)
        assert main(line) == 130
    other = [*line, "--set", "lam=0.5"]
    with monkeypatch.context() as until:
        stopped_after(until, 0)
        assert main(other) == 130
    capsys.readouterr()
    assert main(line) == 0
    found = json.loads(capsys.readouterr().out)
    assert Path(found["folder"]) == Path("runs") / name
    kept = Path("runs", name, "runs.jsonl").read_text().splitlines()
    assert found["runs_made"] == len(kept) - 1
    assert len(kept) <= runs
    assert main(other) == 0
    assert json.loads(capsys.readouterr().out)["folder"] == str(Path("runs") / f"{name}-2")
    assert main(line) == 0  # finished already: a repeated command starts another folder
    assert json.loads(capsys.readouterr().out)["folder"] == str(Path("runs") / f"{name}-3")


def test_a_damaged_question_is_not_taken_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as until:
        stopped_after(until, 1)
        assert main(COMPARE) == 130
    capsys.readouterr()
    Path("runs/compare/question.json").write_text("{}")
    assert main(COMPARE) == 0
    assert json.loads(capsys.readouterr().out)["folder"] == str(Path("runs/compare-2"))


def test_no_file_of_a_comparison_is_followed_where_it_is_a_link(here: Path) -> None:
    """The folder may be someone else's: what a link leads to is neither filled nor replaced."""
    line = ["compare", "--env", "n-chain", "--episodes", "5", "--seeds", "0:1", "--jobs", "1",
            "--algorithms", "fed-lsvi", "--out", "c"]  # fmt: skip
    assert main(line) == 0
    found = sorted(path for path in (here / "c").iterdir() if path.is_file())
    assert len(found) >= 6
    for path in found:
        data, elsewhere = path.read_bytes(), here / "elsewhere"
        elsewhere.write_bytes(data + b" ")
        path.unlink()
        path.symlink_to(elsewhere)
        assert main(line) == (2 if path.is_symlink() else 0)
        assert elsewhere.read_bytes() == data + b" "
        path.unlink()
        path.write_bytes(data)
