"""`fedlsvi resume RUN --episodes T`, and Ctrl-C where nothing is written."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedlsvi import load
from fedlsvi.cli import main
from fedlsvi.protocol.records import RoundRecord
from fedlsvi.protocol.session import Session

RUN = ["run", "--env", "random-linear", "--agents", "2", "-q", "--format", "json"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def printed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert main(list(words)) == code
    return json.loads(capsys.readouterr().out)


def test_a_finished_run_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--set", "gamma=anytime"]
    one = printed(capsys, *RUN, *own, "--episodes", "60", "--out", "one")
    printed(capsys, *RUN, *own, "--episodes", "25", "--out", "two")
    more = printed(capsys, "resume", "two", "--episodes", "60", "-q", "--format", "json")
    same = ("episodes", "rounds", "regret", "scalars", "bounds", "extended")
    assert {key: more[key] for key in same} == {key: one[key] for key in same}
    assert load("two").w.tobytes() == load("one").w.tobytes()
    again = printed(capsys, "resume", "two", "--episodes", "60", "-q", "--format", "json")
    assert again["regret"] == one["regret"]
    assert main(["resume", "two", "--episodes", "30"]) == 2
    assert "60 were played" in capsys.readouterr().err


def test_seeds_go_on_together_and_say_what_differs_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed(capsys, *RUN, "--episodes", "25", "--seeds", "0:2", "--out", "two")
    assert main(["resume", "two", "--episodes", "50"]) == 0
    said = capsys.readouterr()
    assert said.err.count("was extended after episode") == 1
    assert "note: this run was extended after episode" in said.out
    assert [load(f"two/seed-{seed}").played for seed in (0, 1)] == [50, 50]
    assert main(["resume", "two", "--episodes", "60", "-q"]) == 0
    assert capsys.readouterr().err == ""


def test_ctrl_c_without_a_folder_prints_the_run_so_far(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Session.rounds

    def pressed(self: Session) -> Iterator[RoundRecord]:
        for record in usual(self):
            if record.last == 7:
                os.kill(os.getpid(), signal.SIGINT)
            yield record

    monkeypatch.setattr(Session, "rounds", pressed)
    words = [*RUN, "--set", "gamma=1", "--episodes", "90", "--out", "-"]
    found = printed(capsys, *words, code=130)
    assert (found["ending"], found["finished"]) == ("interrupted", False)
    assert 7 <= found["episodes"] < 90
    assert main([word for word in words if word not in ("--format", "json")]) == 130
    assert f"{found['episodes']} of 90 episodes each, interrupted" in capsys.readouterr().out
    several = printed(capsys, *words, "--seeds", "0:3", code=130)
    assert [one["ending"] for one in several["runs"]] == ["interrupted"]
