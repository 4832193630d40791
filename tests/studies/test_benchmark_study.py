"""The benchmark of all algorithms: its order, its rule of choice, its page."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from fedlsvi.algorithms import registry
from studies import benchmark, benchmark_page

SMALL = {
    "garnet": benchmark.Problem({"name": "garnet", "n_states": 4, "horizon": 3}, 12, seeded=True),
    "random-linear": benchmark.Problem(
        {"name": "random-linear", "n_states": 6, "n_actions": 3, "dim": 3, "horizon": 3}, 12,
        seeded=True, maps={"one-hot": "one-hot"},
    ),
}  # fmt: skip
ROSTER = ["fed-lsvi", "fed-ucbvi", "fed-sarsa", "psrl", "ucrl-vtr"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(benchmark, "PROBLEMS", SMALL)
    monkeypatch.setattr(benchmark, "TEST", range(100, 105))
    monkeypatch.setattr(benchmark, "LAWS", 250)
    monkeypatch.setattr(benchmark, "DATA", tmp_path / "algorithms.csv")
    monkeypatch.setattr(benchmark, "PAGE", tmp_path / "algorithms.md")
    monkeypatch.setattr(registry, "names", lambda: ROSTER)
    benchmark.world.cache_clear()
    return tmp_path


def test_the_constant_is_chosen_where_nothing_is_reported(small: Path) -> None:
    assert not set(benchmark.TUNE) & set(benchmark.TEST)
    benchmark.main(str(small / "runs.jsonl"))
    entries = [json.loads(line) for line in (small / "runs.jsonl").read_text().splitlines()]
    played = [e["job"] for e in entries]
    order = [job["env"]["name"] for job in played]
    assert order == sorted(order)  # problem by problem
    scores: dict[float, list[float]] = {}
    for e in entries:
        job = e["job"]
        if job["algorithm"] == "fed-ucbvi" and job["env"]["name"] == "garnet" and job["seed"] < 3:
            share = e["outcome"]["regret"] / e["outcome"]["uniform"]
            scores.setdefault(job.get("c", 2.0**-4), []).append(share)
    assert [len(row) for row in scores.values()] == [3] * 4
    assert sorted(scores) == [2.0**-4 * factor for factor in benchmark.FACTORS]
    best = min(scores, key=lambda c: sum(scores[c]))
    data = benchmark_page.read(benchmark.DATA)
    [tuned] = [e for e in data.entries["garnet"]["tuned"] if e.algorithm == "fed-ucbvi"]
    # of equal scores it is the factor nearest to the default
    assert np.mean(scores[tuned.factor * 2.0**-4]) == pytest.approx(np.mean(scores[best]))
    assert len(tuned.found["share"]) == 5
    before = benchmark.PAGE.read_text()
    benchmark.main(str(small / "runs.jsonl"))  # nothing is left to play
    assert len((small / "runs.jsonl").read_text().splitlines()) == len(entries)
    assert benchmark.PAGE.read_text() == before


def test_empty_cells_say_why_and_variants_take_no_part_in_ranks(small: Path) -> None:
    benchmark.main(str(small / "runs.jsonl"))
    data = benchmark_page.read(benchmark.DATA)
    why = {(p, name): reason for p, row in data.empty.items() for name, _, reason in row}
    assert "numbers" in why["random-linear", "psrl"]
    assert ("garnet", "psrl") not in why
    variants = {e.variant for e in data.entries["random-linear"]["tuned"]}
    assert variants == {"", "one-hot"}
    pooled = [e for e in data.entries["garnet"]["tuned"] if e.variant == benchmark.POOLED]
    assert len(pooled) == 1
    ranks = benchmark_page.Summary(data, "tuned").ranks()
    assert set(ranks) == set(ROSTER)
    text = benchmark.PAGE.read_text()
    assert "fed-sarsa°, one-hot" in text
    assert f"Not here: psrl, because {why['random-linear', 'psrl']}." in text
    with benchmark.DATA.open(newline="") as file:
        assert {len(row) for row in csv.reader(file)} == {len(benchmark_page.HEAD)}


def test_a_cell_whose_first_run_is_slow_stays_empty(
    small: Path,
) -> None:
    benchmark.main(str(small / "runs.jsonl"), slow=-1.0)
    lines = (small / "runs.jsonl").read_text().splitlines()
    jobs = [json.loads(line)["job"] for line in lines]
    assert {job["seed"] for job in jobs} == {benchmark.TUNE[0]}
    data = benchmark_page.read(benchmark.DATA)
    assert not data.entries
    assert all(reason.startswith(("the first run took", "a draw", "value-targeted"))
               for row in data.empty.values() for _, _, reason in row)  # fmt: skip


def test_an_unfinished_problem_is_left_out(small: Path) -> None:
    benchmark.main(str(small / "runs.jsonl"))
    lines = (small / "runs.jsonl").read_text().splitlines(keepends=True)
    (small / "runs.jsonl").write_text("".join(lines[:-1]))
    benchmark.main(str(small / "runs.jsonl"), 0)
    data = benchmark_page.read(benchmark.DATA)
    assert set(data.entries) == {"garnet"}
    assert data.unfinished == ["random-linear"]
    assert "Not played to the end yet: random-linear." in benchmark.PAGE.read_text()


def test_a_smaller_benchmark_is_part_of_the_whole_one(small: Path) -> None:
    path = small / "runs.jsonl"
    benchmark.main(str(path), seeds=2)
    played = path.read_text()
    assert max(json.loads(line)["job"]["seed"] for line in played.splitlines()) == 101
    assert "medians of 2 seeds" in benchmark.PAGE.read_text()
    benchmark.main(str(path))
    assert path.read_text().startswith(played)
    assert "medians of 5 seeds" in benchmark.PAGE.read_text()


def shares(**rows: list[float]) -> benchmark_page.Data:
    """One problem with these shares, at both settings."""
    entries = [
        benchmark_page.Entry(
            name.replace("_", "-"), "", 1.0, {m: np.array(row) for m in benchmark_page.MEASURES}
        )
        for name, row in rows.items()
    ]
    return benchmark_page.Data({"garnet": {"tuned": entries, "default": entries}})


def test_aggregates_by_hand() -> None:
    data = shares(
        fed_lsvi=[1.0, 2.0, 3.0, 4.0], stale=[0.0, 0.0, 0.0, 0.0], psrl=[2.0, 2.0, 2.0, 9.0]
    )
    summary = benchmark_page.Summary(data, "tuned")
    ranks = summary.ranks()
    assert (ranks["stale"].mid, ranks["stale"].low, ranks["stale"].high) == (1.0, 1.0, 1.0)
    assert (ranks["psrl"].mid, ranks["fed-lsvi"].mid) == (2.0, 3.0)  # medians 2 and 2.5
    assert ranks["psrl"].low < ranks["psrl"].high  # it is not certain
    middle = summary.middle("fed-lsvi")
    assert middle is not None
    assert middle.mid == 2.5  # the mean of the middle half
    assert summary.better("stale").mid == 1.0
    # of 16 pairs psrl is below in 6 and equal in 3
    assert summary.better("psrl").mid == pytest.approx((6 + 3 / 2) / 16)
    [row] = benchmark_page.winners(data)
    assert row == ["garnet", "stale: 0 [0, 0]", "nobody", "3 of 3"]
