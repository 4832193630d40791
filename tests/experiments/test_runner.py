"""Runs are played once: resuming, truncated files, errors from other processes."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest

from expecting import refused
from fedlsvi.errors import FedLSVIError, InvalidInput
from fedlsvi.experiments import processes, runner
from fedlsvi.experiments.runner import ResultFile, RunSpec, missing, run_all
from fedlsvi.experiments.sweeps import Point, matrix, random_linear, run_spec


def small(seed: int, algorithm: str = "fed-lsvi", T: int = 40) -> RunSpec:
    return run_spec(algorithm, random_linear(0, 4, 3), T, 2, seed, {})


def test_a_second_call_plays_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells, path = [small(0), small(1), small(0)], tmp_path / "runs.jsonl"
    results = ResultFile(path)
    assert run_all(cells, results, jobs=1) == 2  # one of them is asked for twice
    first = dict(results.outcomes)
    results.close()
    monkeypatch.setattr(runner, "play", lambda table: pytest.fail("played again"))
    results = ResultFile(path)
    assert run_all(cells, results, jobs=1) == 0
    assert results.outcomes == first
    results.close()


def test_a_torn_line_is_cut_off_and_its_run_made_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    results = ResultFile(path)
    run_all([small(0), small(1)], results, jobs=1)
    whole = results.outcomes
    results.close()
    data = path.read_bytes()
    path.write_bytes(data[:-30])
    results = ResultFile(path)
    assert len(missing([small(0), small(1)], results)) == 1
    assert run_all([small(0), small(1)], results, jobs=1) == 1
    again = {key: vars(o) | {"seconds": 0} for key, o in results.outcomes.items()}
    assert again == {key: vars(o) | {"seconds": 0} for key, o in whole.items()}
    results.close()
    assert len(path.read_text().splitlines()) == 2


def test_a_line_that_is_no_outcome_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"key": "a"}\n')
    with refused(InvalidInput, "not-a-result", "line 1"):
        ResultFile(path)


def test_processes_give_the_same_outcomes_and_errors_are_sentences(tmp_path: Path) -> None:
    cells = [small(seed) for seed in range(3)]
    alone, many = ResultFile(tmp_path / "a.jsonl"), ResultFile(tmp_path / "b.jsonl")
    run_all(cells, alone, jobs=1)
    run_all(cells, many, jobs=2)
    for key, found in alone.outcomes.items():
        assert vars(found) | {"seconds": 0} == vars(many.outcomes[key]) | {"seconds": 0}
    bad = [RunSpec(small(7).table | {"gamma": 0.1}), RunSpec(small(8).table | {"gamma": 0.1})]
    with refused(InvalidInput, "run-failed", "gamma"):
        run_all(bad, many, jobs=2)
    alone.close()
    many.close()


def test_a_process_that_dies_gets_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_quiet", partial(os._exit, 1))  # what a process does first
    results = ResultFile(tmp_path / "runs.jsonl")
    with refused(FedLSVIError, "worker-killed", "--jobs"):
        run_all([small(0), small(1)], results, jobs=2)
    results.close()


def test_the_key_is_of_the_settings_and_not_of_the_labels() -> None:
    one = small(0)
    assert one.key == RunSpec(dict(reversed(one.table.items())), {"other": "words"}).key
    assert one.key != small(1).key


def test_an_outcome_survives_json_and_its_curve_ends_where_the_run_does() -> None:
    found = runner.play(small(0, T=60).table)
    assert runner.Outcome(**json.loads(json.dumps(vars(found)))) == found
    assert found.curve["t"][-1] == 60
    assert found.curve["scalars"][-1] == found.scalars == sum(found.scalars_by_category.values())
    assert found.curve["regret"][-1] == pytest.approx(found.regret, rel=1e-6)
    assert found.uniform is not None
    assert found.regret is not None
    assert found.regret < found.uniform


def test_matrix_puts_seeds_in_rows() -> None:
    base = runner.play(small(0, T=10).table)
    points = [
        Point({"seed": s, "T": T}, type(base)(**vars(base) | {"rounds": 10 * s + T}))
        for T in (3, 1) for s in (2, 0)
    ]  # fmt: skip
    x, rows = matrix(points, "T", lambda o: o.rounds)
    assert x.tolist() == [1.0, 3.0]
    assert rows.tolist() == [[1.0, 3.0], [21.0, 23.0]]
