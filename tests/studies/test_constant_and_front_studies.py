"""The studies of the comparators' constants and of regret against rounds: rules and tables."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from fedlsvi.algorithms import registry
from fedlsvi.algorithms.shared.settings import PRACTICAL
from studies import comparators, front

PAGE = Path(comparators.__file__).with_suffix(".md").read_text()


def test_every_practical_constant_has_a_search() -> None:
    assert set(comparators.SEARCHES) >= set(PRACTICAL)
    for name, search in comparators.SEARCHES.items():
        assert len(search.tune) * len(search.families) >= 20
        assert not set(search.tune) & set(search.test)
        known = registry.entry(search.after or name).parameters()
        now = known[search.parameter]
        chosen = re.findall(rf"^\| {name} \|.*\*\*(\S+): [0-9.]+\*\*", PAGE, re.MULTILINE)
        assert now in (None, search.before) or [comparators.shown(now)] == chosen


def test_a_search_goes_beyond_the_end_of_its_grid_but_not_for_ever() -> None:
    scores = {1.0: [3.0], 0.25: [2.0], 0.0625: [1.0]}
    assert comparators.beyond(scores) == 0.0625 / 4
    assert comparators.beyond(scores | {0.0625 / 4: [1.5]}) is None
    assert comparators.beyond({comparators.LEAST: [0.0], 1.0: [1.0]}) is None
    assert comparators.beyond({0.5: [1.0], 1.0: [0.0]}) == 4.0


def test_the_study_of_constants_chooses_the_least_and_reports_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(comparators, "EPISODES", 30)
    monkeypatch.setattr(comparators, "FAMILIES", {"random-mdp": comparators.FAMILIES["random-mdp"]})
    comparators.main(str(tmp_path / "runs.jsonl"), names=["fed-ucbvi"])
    out = capsys.readouterr().out
    entries = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    means: dict[float, list[float]] = {}
    for entry in entries:
        if entry["job"]["seed"] < 1000:
            ratio = entry["outcome"]["regret"] / entry["outcome"]["uniform"]
            means.setdefault(entry["job"]["c"], []).append(ratio)
    best = min(means, key=lambda c: sum(means[c]))
    assert all(len(row) == 3 for row in means.values())
    assert {best / 2, best * 2} - {comparators.MOST * 2} <= set(means)
    assert f"**{comparators.shown(best)}: {sum(means[best]) / 3:.4f}**" in out
    held = {entry["job"]["c"] for entry in entries if entry["job"]["seed"] >= 1000}
    assert held == {best, 1.0}
    comparators.main(str(tmp_path / "runs.jsonl"), names=["fed-ucbvi"])
    assert capsys.readouterr().out == out
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == len(entries)


def test_a_rate_is_chosen_after_the_exploration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(comparators, "EPISODES", 10)
    monkeypatch.setattr(comparators, "FAMILIES", {"random-mdp": comparators.FAMILIES["random-mdp"]})
    path = tmp_path / "runs.jsonl"
    comparators.main(str(path), names=["q-avg-rate"])
    jobs = [json.loads(line)["job"] for line in path.read_text().splitlines()]
    explored = {job["epsilon"] for job in jobs if "rate" not in job}
    rates = {job["rate"]: {j["epsilon"] for j in jobs if j.get("rate") == job["rate"]}
             for job in jobs if "rate" in job}  # fmt: skip
    assert len(explored) >= 3
    assert {0.8, 0.2, 0.05} <= set(rates)
    assert max(rates) <= 1.0
    assert len(set.union(*rates.values())) == 1
    assert set.union(*rates.values()) <= explored


def test_the_front_compares_rules_that_take_no_more_rounds() -> None:
    others = {rule: [] for rule in front.RULES}
    dots = others | {
        front.BUDGET: [(5.0, 0.6), (10.0, 0.33)],
        "period T/K": [(5.0, 0.9), (10.0, 0.3), (20.0, 0.1)],
        "determinant ≥ c": [(7.0, 0.4)],
    }
    assert front.excess(dots, 5) == (pytest.approx(0.6 / 0.9), "period T/K")
    assert front.excess(dots, 7) == (pytest.approx(1.5), "determinant ≥ c")
    assert front.excess(dots, 10) == (pytest.approx(1.1), "period T/K")
    assert front.excess(dots, 40) == (pytest.approx(3.3), "period T/K")


def test_the_front_is_played_once_and_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(front, "EPISODES", 40)
    monkeypatch.setattr(front, "ROUNDS", (5, 10))
    monkeypatch.setattr(front, "TIGHT", 5)
    monkeypatch.setattr(front, "INSTANCES", 1)
    monkeypatch.setattr(front, "PROBLEMS", {"garnet": front.PROBLEMS["garnet"]})
    kept = {rule: dict(list(row.items())[:2]) for rule, row in front.RULES.items()}
    monkeypatch.setattr(front, "RULES", kept)
    file, figure = tmp_path / "front.jsonl", tmp_path / "front.png"
    front.main(str(file), str(figure))
    table = capsys.readouterr().out
    results = [front.Result(**json.loads(line)) for line in file.read_text().splitlines()]
    assert len(results) == sum(len(row) for row in kept.values())
    for result in results:
        if result.rule.startswith("budget"):
            assert result.rounds <= int(result.parameter)
        assert asdict(front.play(*result.key)) == asdict(result)
    assert figure.read_bytes()[:4] == b"\x89PNG"
    front.main(str(file))
    assert capsys.readouterr().out == table
    assert len(file.read_text().splitlines()) == len(results)
