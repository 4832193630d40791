"""A run can be killed at any moment and is resumed to the same bits (reliability 1, decision 9)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from killing import BUDGET

import fedlsvi
from patience import PATIENCE
from repeats import repeats

HERE = Path(__file__).parent
TESTS, SOURCE = HERE.parent, HERE.parents[1] / "src"
KILLS = {"finite": repeats(6, 50), "continuous": repeats(3, 20)}
STEP = repeats(6, 1)
"""Of the places where a run is killed, every so many."""


def shell() -> dict[str, str]:
    path = [str(SOURCE), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path)}


def kill(mode: str, seed: int) -> dict[str, object]:
    number = str(KILLS.get(mode, STEP))
    command = [sys.executable, str(HERE / "killing.py"), mode, str(seed), number]
    done = subprocess.run(command, capture_output=True, text=True, env=shell(), timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout)
    return result | {"stderr": done.stderr}


@pytest.mark.parametrize("kind", ["finite", "continuous"])
def test_one_run_killed_again_and_again_changes_nothing(kind: str) -> None:
    """w, Λ, τ's, regret and ledger are byte-equal to those of the uninterrupted run. Many kills
    find a run that has got further since the one before, and some a checkpoint half written."""
    kills = KILLS[kind]
    result = kill(kind, seed=0)
    assert result["kills"] == kills, result
    assert result["unfinished"], result
    assert result["working"] >= kills // 3, result
    assert result["inside_a_checkpoint"] > 0, result
    assert result["equal"], result


def test_kills_before_writes_fsyncs_and_renames_change_nothing() -> None:
    """Some of the kills fall between the files of one checkpoint, and some into a resume."""
    result = kill("calls", seed=0)
    assert result["kills"] == len(range(1, 46, 2 * STEP)) + len(range(12, 46, 3 * STEP)), result
    assert result["equal"], result


def test_no_kill_spends_more_than_the_budget_or_breaks_the_floor() -> None:
    result = kill("budget", seed=0)
    assert result["kills"] == len(range(20, 90, 10 * STEP)), result
    assert result["equal"], result
    assert result["rounds"] == BUDGET["rounds"], result
    assert result["shortest"] == BUDGET["min_round"], result


def test_kills_while_a_finished_run_goes_on_change_nothing() -> None:
    """Before each write, fsync, rename and truncation that turns a run of 30 episodes into one of
    60: the end is that of 60 episodes at once."""
    result = kill("longer", seed=0)
    assert result["kills"] == 2 * len(range(1, 40, 3 * STEP)), result
    assert result["equal"], result


def test_ctrl_c_leaves_a_resumable_run_and_says_how(tmp_path: Path) -> None:
    """It comes in the middle of the run: after the second checkpoint, between two rounds."""
    arguments = ["--env", "random-linear", "--agents", "3", "--set", "gamma=3", "--seed", "4"]
    run = ["run", *arguments, "--out", "run", "--episodes", "2000", "--checkpoint-seconds", "0"]
    place = [str(TESTS / "killing_places.py"), f"{int(signal.SIGINT)}:2:1"]
    process = subprocess.run(
        [sys.executable, *place, *run], cwd=tmp_path, env=shell(), capture_output=True, text=True,
        timeout=PATIENCE,
    )  # fmt: skip
    assert process.returncode == 130, process.stderr
    assert "fedlsvi resume run" in process.stderr
    stopped = fedlsvi.load(tmp_path / "run")
    assert 0 < stopped.played < 2000
