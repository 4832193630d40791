"""A run can be killed at any moment and is resumed to the same bits (reliability 1, decision 9)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from killing import BUDGET

import fedlsvi
from repeats import repeats

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
KILLS = {"finite": repeats(6, 50), "continuous": repeats(3, 20)}
STEP = repeats(6, 1)
"""Of the places where a run is killed, every so many."""


def shell() -> dict[str, str]:
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | {"PYTHONPATH": path}


def kill(mode: str, seed: int) -> dict[str, object]:
    number = str(KILLS.get(mode, STEP))
    command = [sys.executable, str(HERE / "killing.py"), mode, str(seed), number]
    done = subprocess.run(command, capture_output=True, text=True, env=shell(), timeout=300)
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout)
    return result | {"stderr": done.stderr}


@pytest.mark.parametrize("kind", ["finite", "continuous"])
def test_one_run_killed_again_and_again_changes_nothing(kind: str) -> None:
    """w, Λ, τ's, regret and ledger are byte-equal to those of the uninterrupted run. Many kills
    find a run that has got further since the one before."""
    kills = KILLS[kind]
    result = kill(kind, seed=0)
    assert result["kills"] == kills, result
    assert result["unfinished"], result
    assert result["working"] >= kills // 3, result
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
    arguments = ["--env", "random-linear", "--agents", "3", "--set", "gamma=3", "--seed", "4"]
    command = [sys.executable, "-m", "fedlsvi", "run", *arguments, "--out", "run"]
    long = [*command, "--episodes", "400000"]
    process = subprocess.Popen(long, cwd=tmp_path, env=shell(), stderr=subprocess.PIPE, text=True)
    try:
        records = tmp_path / "run" / "records.jsonl"
        until = time.monotonic() + 120.0
        while time.monotonic() < until and not (records.exists() and records.stat().st_size):
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "fedlsvi resume run" in said
    stopped = fedlsvi.load(tmp_path / "run")
    assert 0 < stopped.played < 400_000
