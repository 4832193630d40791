"""`fedlsvi federate` and `fedlsvi verify`: what they refuse, and what a log must look like."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedlsvi.cli import main
from fedlsvi.federation import project
from fedlsvi.federation.audit import Audit
from fedlsvi.ledger import Ledger
from fedlsvi.store import files

TOML = 'name = "trial"\nepisodes = 10\nhorizon = 3\ndim = 4\n'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of two uploads of 14 scalars each."""
    path = tmp_path / "sent.jsonl"
    audit = Audit(path)
    for step in (2, 1):
        audit.note("Upload", round=1, step=step, agents=1, scalars=14, bytes=176, digest=f"{step}")
    audit.close()
    return path


def ledger_file(folder: Path, uploads: int) -> str:
    ledger = Ledger(1)
    ledger.each("up_stats", uploads)
    path = folder / "ledger.json"
    files.write_json(path, ledger.to_dict())
    return str(path)


def test_a_whole_log_that_agrees_with_the_ledger(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(log), "--ledger", ledger_file(tmp_path, 28)]) == 0
    said = capsys.readouterr().out
    assert "chain of 2 messages is whole, and its uploads are those of the server's ledger" in said


def test_a_ledger_that_counts_more_is_refused(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(log), "--ledger", ledger_file(tmp_path, 42)]) == 2
    assert "has 28 scalars of uploads, the server's ledger 42" in capsys.readouterr().err


def test_an_altered_line_breaks_the_chain(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_text(log.read_text().replace('"scalars": 14', '"scalars": 13', 1))
    assert main(["verify", str(log)]) == 2
    assert str(log) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("toml", "sites", "sentence"),
    [
        (TOML, "a,a", "names a site twice"),
        (TOML + "horizn = 3\n", "a,b", "did you mean 'horizon'"),
        (TOML + "[settings]\ngamma = 0.5\n", "a,b", "gamma must be a number of at least 1"),
        (TOML + '[patience]\nabsnt = "carry"\n', "a,b", "did you mean 'absent'"),
        (TOML + '[patience]\nabsent = "cary"\n', "a,b", "absent must be one of"),
        (TOML + "[patience]\ncarry = 0\n", "a,b", "carry must be at least 1 round"),
    ],
)
def test_a_wrong_federation_is_refused_and_nothing_written(
    toml: str, sites: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "federation.toml"
    file.write_text(toml)
    out = tmp_path / "project"
    assert main(["federate", "init", str(file), "--sites", sites, "--out", str(out)]) == 2
    assert sentence in capsys.readouterr().err
    assert not out.exists()


def test_status_says_who_is_away_and_why_a_job_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {
        "name": "trial", "rounds": 7, "episodes": 1200, "of": 5000, "sites": ["north", "south"],
        "notes": ["round 7: agent 1 carried, away since round 5"], "processes": {},
        "server": "answers", "connected": ["north"],
        "jobs": [{"id": "12", "name": "trial", "status": "FAILED", "reason": "agent 1 is silent"}],
    }  # fmt: skip
    monkeypatch.setattr(project, "status", lambda folder: found)
    assert main(["federate", "status", "anywhere"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "trial: 7 rounds, episode 1,200 of 5,000",
        "  round 7: agent 1 carried, away since round 5",
        "the server answers",
        "connected: north",
        "not connected: south",
        "job 12: FAILED: agent 1 is silent",
    ]


def test_a_ray_address_without_ray_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "--env", "river-swim", "--agents", "1", "--episodes", "2", "--out", "-"]
    assert main([*command, "--ray-address", "auto"]) == 2
    assert "--ray-address needs --transport ray" in capsys.readouterr().err
