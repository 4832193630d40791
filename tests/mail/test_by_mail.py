"""The whole path by mail as a new user goes it: folders, files and commands, and no server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedlsvi.cli import main
from fedlsvi.envs import RandomMDP
from fedlsvi.logs.recording import record_episodes, write_records
from fedlsvi.policy import Policy
from mailing import NAMES


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed(line: str, *more: str) -> None:
    assert main([*line.split()[1:], *more]) == 0


def printed(capsys: pytest.CaptureFixture[str], line: str, *more: str) -> Any:
    capsys.readouterr()
    typed(line, *more, "--format", "json")
    return json.loads(capsys.readouterr().out)


def test_three_hospitals_and_no_server(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Keys, study, contributions, merge, report: each site works in its own folder."""
    ward = RandomMDP(n_states=6, n_actions=3, horizon=4, seed=0)
    for m, name in enumerate(NAMES):
        typed(f"fedlsvi study key {name} --kit {name}")
        write_records(record_episodes(ward, 200, seed=m), here / name / "records.parquet")
    sites = [word for name in NAMES for word in ("--site", f"{name}/{name}.site")]
    typed(
        "fedlsvi study init --name ward --horizon 4 --episodes 500 --states 6 --actions 3", *sites
    )
    for name in NAMES:
        typed(f"fedlsvi contribute study.toml --kit {name} --keys")
    keys = [f"{name}.keys" for name in NAMES]
    for name in NAMES:
        data = ["--data", f"{name}/records.parquet", "--yes"]
        facts = printed(capsys, f"fedlsvi contribute study.toml --kit {name}", *keys, *data)
        assert facts["episodes"] == 200
        assert facts["bytes"] < Path(f"{name}.contribution").stat().st_size
    files = [f"{name}.contribution" for name in NAMES]
    typed("fedlsvi merge study.toml", *files, "--out", "runs/ward")
    typed("fedlsvi report runs/ward")
    typed("fedlsvi attest runs/ward")
    typed("fedlsvi recheck runs/ward/statement.json", *files)
    card = Path("runs/ward/model-card.md").read_text()
    for title in ("Question", "Data", "Protections", "Estimates", "Coverage", "Limits"):
        assert f"## {title}" in card
        assert title in Path("runs/ward/report.html").read_text()
    assert "not estimated" in card  # sums estimate nothing
    held_out = here / "north" / "others.parquet"
    write_records(record_episodes(ward, 300, seed=10), held_out)
    found = printed(capsys, f"fedlsvi evaluate runs/ward --data {held_out} --repeats 50")
    typed("fedlsvi report runs/ward")
    card = Path("runs/ward/model-card.md").read_text()
    assert "not estimated" not in card + Path("runs/ward/report.html").read_text()
    estimates = card.split("## Estimates")[1].split("## Coverage")[0]
    for number in ("value", "low", "high", "robust", "behaviour"):
        assert f"{found[number]:.4g}" in estimates, number
    learned = ward.policy_values(Policy.load("runs/ward/policy").table)[0]
    best, start = ward.optimal_values()[0], ward.initial_law(0)
    assert 0.9 * start @ best < start @ learned <= start @ best + 1e-9
    assert found["low"] < start @ learned < found["high"]
    for name in NAMES:
        typed(f"fedlsvi contribute study.toml --kit {name} --end")
        typed(f"fedlsvi verify {name}/fedlsvi/{facts['study']}/sent.jsonl")
