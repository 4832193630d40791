"""The page on many agents is what its script writes of what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import many_agents, scaling
from benchmarks.many_agents import Reading


def readings() -> list[Reading]:
    return [Reading(**one) for one in json.loads(scaling.KNOWN.read_text("utf-8"))]


def test_the_page_is_that_of_the_readings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="no matplotlib: fedlsvi[plot]")
    page = scaling.PAGE.read_text("utf-8")
    for name in ("PAGE", "FIGURE"):
        monkeypatch.setattr(scaling, name, tmp_path / name)
    scaling.write(readings())
    assert (tmp_path / "PAGE").read_text("utf-8") == page
    assert (tmp_path / "FIGURE").read_text("utf-8").startswith("<?xml")


def test_every_number_of_agents_was_measured() -> None:
    found = readings()
    assert [r.agents for r in found if r.together] == list(many_agents.AGENTS)
    assert [r.agents for r in found if not r.together] == list(many_agents.APART)
    assert found[len(many_agents.AGENTS) - 1].steps == many_agents.LARGEST


def test_a_reading_is_of_the_run_that_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_agents, "STEPS", 4_000)
    for together in (True, False):
        one = many_agents.measured(100, together)
        assert (one.agents, one.together, one.episodes, one.steps) == (100, together, 4, 4_000)
        assert 1 <= one.rounds <= 4
