"""What cannot be compared or tuned is refused before anything is played or written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedlsvi.cli import main
from fedlsvi.experiments import runner
from shell import refused

SMALL = ["--env", "random-linear", "--set", "env.dim=4", "--set", "env.horizon=3", "--agents", "2",
         "--episodes", "20", "--jobs", "1"]  # fmt: skip

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def nothing_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "play", lambda table: pytest.fail("played"))


@pytest.mark.usefixtures("nothing_is_played")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["compare", *SMALL, "--seeds=0,-1,5"], ["seed", "-1"]),
        (["tune", *SMALL, "--test=7,-1,8"], ["seed", "-1"]),
        (["compare", *SMALL, "--set", "fed-lsvi.n_agents=1"], ["fed-lsvi.n_agents", "same"]),
    ],
)
def test_before_anything_is_played(
    line: list[str], said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = refused(capsys, *line)
    assert all(word in sentence for word in said), sentence


@pytest.mark.usefixtures("nothing_is_played")
def test_where_no_action_matters_there_is_nothing_to_tune(
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.savez("one.npz", P=np.full((2, 1, 2), 0.5), r=np.array([[0.0], [1.0]]), horizon=2)
    sentence = refused(capsys, "tune", "--env", "one.npz", "--episodes", "20", "--jobs", "1")
    assert "nothing to tune" in sentence
    assert "finite" not in sentence


@pytest.mark.usefixtures("nothing_is_played")
def test_a_file_in_the_place_of_the_pages(capsys: pytest.CaptureFixture[str]) -> None:
    Path("pages").write_text("mine")
    line = ["reproduce", "trigger", "--quick", "--out", "pages", "--cells", "kept", "--jobs", "1"]
    assert "cannot make pages" in refused(capsys, *line)


def test_a_bound_that_is_infinite_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """β = 10³⁰⁸ is allowed; Theorem 1 then bounds nothing, and JSON has no number for that."""
    line = ["compare", *SMALL, "--algorithms", "fed-lsvi", "--seeds", "0:1", "--out", "c"]
    assert main([*line, "--set", "beta=1e308", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs_made"] == 1
    (kept,) = Path("c/runs.jsonl").read_text().splitlines()
    assert set(json.loads(kept)["outcome"]["bounds"]) == {"theorem_3", "budget", "scalars"}
