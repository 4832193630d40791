"""The page on many agents is what its script writes of what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import many_agents, scaling, sizes
from benchmarks.many_agents import Reading


def known() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(scaling.KNOWN.read_text("utf-8"))
    return found


def readings(name: str) -> list[Reading]:
    return [Reading(**one) for one in known()[name]]


def test_the_page_is_that_of_the_readings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="no matplotlib: fedlsvi[plot]")
    page = scaling.PAGE.read_text("utf-8")
    for name in ("PAGE", "FIGURE"):
        monkeypatch.setattr(scaling, name, tmp_path / name)
    scaling.write(known())
    assert (tmp_path / "PAGE").read_text("utf-8") == page
    assert (tmp_path / "FIGURE").read_text("utf-8").startswith("<?xml")


def test_every_number_of_agents_was_measured() -> None:
    found = readings("agents")
    assert [r.agents for r in found if r.together] == list(many_agents.AGENTS)
    assert [r.agents for r in found if not r.together] == list(many_agents.APART)
    assert found[len(many_agents.AGENTS) - 1].steps == many_agents.LARGEST
    asked = readings("asked")
    assert [r.agents for r in asked] == list(many_agents.ASKED_OF)
    assert {r.steps for r in asked} == {10**6}
    assert [(r["axis"], r["size"]) for r in known()["sizes"]] == [
        (axis, size) for axis, few in sizes.SIZES.items() for size in few
    ]


def test_a_reading_is_of_the_run_that_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_agents, "STEPS", 4_000)
    for together in (True, False):
        one = many_agents.measured(100, together)
        assert (one.agents, one.together, one.episodes, one.steps) == (100, together, 4, 4_000)
        assert 1 <= one.rounds <= 4
    monkeypatch.setattr(many_agents, "ASKED_EPISODES", 3)
    one = many_agents.measured(100, True, asked=10)
    assert (one.episodes, one.steps, one.asked) == (3, 300, 10)


def test_one_size_differs_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "BASE", {"T": 40, "S": 6, "d": 4, "H": 3})
    one = sizes.measured("T", 20)
    assert (one.axis, one.size) == ("T", 20)
    assert 1 <= one.rounds <= 20
