"""What protected a run, in the report and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fedlsvi
import problems
from fedlsvi import FedLSVI
from fedlsvi.cli import main
from fedlsvi.report.protections import protections


def learned(**settings: Any) -> Any:
    learner = FedLSVI(n_agents=3, gamma=8.0, beta=0.5, lam=0.5, **settings)
    return learner.learn(problems.simplex().envs, 24, 1, progress=False)


def test_without_protection_it_says_so() -> None:
    rows = dict(protections(learned()))
    assert "min_round = 1" in rows["floor under every upload"]
    assert '"float"' in rows["sums"]
    assert rows["the server saw"].startswith("of every agent and step")
    assert rows["trips per synchronisation"].startswith("3")


def test_protections_in_force_are_named() -> None:
    run = learned(min_round=5, aggregation="secure", exchange="one-trip")
    rows = dict(protections(run))
    assert "5 episodes" in rows["floor under every upload"]
    assert int(rows["smallest upload"].split()[0]) >= 5
    assert "3 sites" in rows["sums"]
    assert "contribution of a single site" in rows["the server could not check"]
    assert rows["trips per synchronisation"] == "1 instead of 3"
    assert f"{run.ledger.total:,}" in rows["scalars"]


def test_agents_that_share_nothing_need_no_protection() -> None:
    run = fedlsvi.algorithms.make("independent", n_agents=2).learn(
        problems.simplex().envs, 8, progress=False
    )
    assert protections(run) == [("left the agents", "nothing")]


def test_the_command_prints_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learner = FedLSVI(n_agents=3, gamma=8.0, aggregation="secure")
    folder = tmp_path / "run"
    run = learner.learn("river-swim", 20, progress=False, folder=folder)
    assert main(["privacy", str(folder), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == dict(protections(run))
    assert "cert.json" in dict(protections(run))["the organiser"]
    assert main(["privacy", str(folder)]) == 0
    said = capsys.readouterr().out
    for what, how in protections(run):
        assert f"{what} " in said
        assert how in said
