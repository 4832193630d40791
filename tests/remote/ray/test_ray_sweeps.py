"""Runs of comparisons and claims, played by a Ray cluster."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from expecting import refused
from fedlsvi.cli import main
from fedlsvi.errors import InvalidInput
from fedlsvi.experiments.runner import ResultFile, RunSpec, run_all
from fedlsvi.experiments.sweeps import random_linear, run_spec
from fedlsvi.remote.ray.tasks import tasks
from repeats import only_ci

# Ray's threads use what its libraries call deprecated
pytestmark = pytest.mark.filterwarnings("ignore")

CELLS = [
    run_spec(name, random_linear(seed, 4, 3), 40, 2, seed, {})
    for name in ("fed-lsvi", "centralised")
    for seed in range(3)
]


def numbers(results: ResultFile) -> dict[str, object]:
    """Everything but the seconds."""
    return {key: vars(found) | {"seconds": 0.0} for key, found in results.outcomes.items()}


@only_ci
@pytest.mark.usefixtures("cluster")
def test_a_cluster_gives_the_outcomes_of_this_process(tmp_path: Path) -> None:
    """To the last bit, whatever was there before."""
    here, there = ResultFile(tmp_path / "here.jsonl"), ResultFile(tmp_path / "there.jsonl")
    run_all(CELLS, here, jobs=1)
    run_all(CELLS[:2], there, jobs=1)
    asked: list[RunSpec] = []
    with tasks() as workers:
        assert run_all(CELLS, there, 1, lambda spec, _: asked.append(spec), workers) == 4
    assert numbers(there) == numbers(here)
    assert {spec.key for spec in asked} == {spec.key for spec in CELLS[2:]}
    here.close()
    there.close()


def once_killed(folder: Path) -> int:
    """The process that plays it for the first time is killed."""
    try:
        (folder / "played").touch(exist_ok=False)
    except FileExistsError:
        return os.getpid()
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


@only_ci
@pytest.mark.usefixtures("cluster")
def test_what_a_killed_process_played_is_played_again(tmp_path: Path) -> None:
    with tasks() as (workers, _):
        assert workers.submit(once_killed, tmp_path).result() not in (0, os.getpid())


@only_ci
@pytest.mark.usefixtures("cluster")
def test_a_run_that_fails_there_is_a_sentence(tmp_path: Path) -> None:
    results = ResultFile(tmp_path / "runs.jsonl")
    broken = run_spec("fed-lsvi", random_linear(0, 4, 3), 40, 2, 0, {}, gamma=0.1)
    with refused(InvalidInput, "run-failed", "gamma"), tasks() as workers:
        run_all([broken], results, 1, cluster=workers)
    results.close()


@only_ci
@pytest.mark.usefixtures("cluster")
def test_the_command_compares_on_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["compare", "--env", "random-linear", "--agents", "2", "--episodes", "30", "--seeds",
             "0:2", "--algorithms", "fed-lsvi,independent", "--quiet"]  # fmt: skip
    assert main([*asked, "--out", str(tmp_path / "ray"), "--transport", "ray"]) == 0
    shown = capsys.readouterr().out.splitlines()[1:3]
    assert main([*asked, "--out", str(tmp_path / "here")]) == 0
    same = capsys.readouterr().out.splitlines()[1:3]
    assert [row.rsplit(maxsplit=1)[0] for row in shown] == [  # but for the seconds
        row.rsplit(maxsplit=1)[0] for row in same
    ]


@pytest.mark.parametrize(
    "options", [["--ray-address", "auto"], ["--transport", "ray", "--jobs", "2"]]
)
def test_what_does_not_go_together_is_said_before_anything_is_played(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["compare", "--env", "random-linear", "--out", str(tmp_path / "out"), *options]
    assert main(given) == 2
    assert options[-2] in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
