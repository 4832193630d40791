"""`fedlsvi federate` and `fedlsvi verify`: what they refuse, and what a log must look like."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedlsvi.cli import main
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.remote.audit import Audit, in_logs
from fedlsvi.remote.flare import project
from fedlsvi.storage import files
from shell import refused

TOML = 'name = "trial"\nepisodes = 10\nhorizon = 3\ndim = 4\n'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of two uploads of 14 scalars each."""
    path = tmp_path / "sent.jsonl"
    audit = Audit(path)
    for step in (2, 1):
        facts = {"run": in_logs(7), "first": 0, "agents": 1, "digest": f"{step}"}
        audit.note("Upload", round=1, step=step, scalars=14, bytes=176, **facts)
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
    assert capsys.readouterr().out.startswith("chain of 2 messages intact; its uploads match")


def test_uploads_that_were_not_counted_are_named(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(log), "--ledger", ledger_file(tmp_path, 14)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("chain of 2 messages intact")
    assert said[-1].endswith(": round 1 (step 1)")


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
        (TOML + "horizn = 3\n", "a,b", "did you mean 'horizon'"),
        (TOML + "[settings]\ngamma = 0.5\n", "a,b", "of at least 1, got 0.5"),
        (TOML + '[retry]\nabsnt = "carry"\n', "a,b", "did you mean 'absent'"),
        (TOML + '[retry]\nabsent = "cary"\n', "a,b", "absent must be one of"),
        (TOML + "[retry]\ncarry = 0\n", "a,b", "carry"),
        (TOML + "[retry]\nattempts = 1.5\n", "a", "attempts"),
        (TOML + '[retry]\ndeadline = "long"\n', "a", "'long'"),
        (TOML.replace("dim = 4", ""), "a", "a federation has no dim: give dim = …"),
        (TOML.replace("trial", "a b"), "a", "name must be letters, digits, - and _"),
        (TOML.replace("trial", "../evil"), "a", "got '../evil'"),
        (TOML.replace("horizon = 3", "horizon = 0"), "a", "horizon must be an integer of at least"),
        (TOML.replace("dim = 4", 'dim = "4"'), "a", "dim must be an integer of at least 1"),
        (TOML + "seed = -1\n", "a", "seed"),
        (TOML + 'one_hot = "yes"\n', "a", "one_hot must be true or false, got 'yes'"),
        (TOML + "settings = 3\n", "a", "settings must be a table, got 3: write [settings]"),
        (TOML + "[settings]\ngama = 2\n", "a", "unknown setting 'gama': did you mean 'gamma'"),
        (TOML + "[settings]\nn_agents = 2\n", "a", "each site sets its own number of agents"),
        (TOML + 'features = "own"\n', "a", "features must be a table with a name, got 'own'"),
        (TOML + '[features]\nname = "rfb"\n', "a", "unknown features 'rfb': did you mean 'rbf'"),
        (TOML, "", "needs at least one site"),
        (TOML, "a,../evil", "the name of a site must be letters, digits"),
        (TOML, "a,localhost", "'localhost' is the name of both the server and a site"),
        (TOML, "a --port 99999", "port must be from 1 to 65535, got 99999"),
        (TOML, "a --host fl_example.org", "host must be a name such as fl.example.org"),
    ],
)
def test_a_wrong_federation_is_refused_and_nothing_written(
    toml: str, sites: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "federation.toml"
    file.write_text(toml)
    out = tmp_path / "project"
    names, *options = sites.split(" ")
    command = ["federate", "init", str(file), "--sites", names, "--out", str(out), *options]
    assert main(command) == 2
    assert sentence in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("command", "code", "named"),
    [
        ("federate init f.toml --sites a,a --out new", "duplicate-site", "'a,a'"),
        ("federate init f.toml --sites a --out f.toml", None, "f.toml"),
        ("federate start nowhere", None, "nowhere"),
        ("federate start nowhere --here", None, "nowhere"),
        ("federate status nowhere", None, "nowhere"),
        ("federate stop nowhere", None, "nowhere"),
        ("federate abort nowhere", None, "nowhere"),
        ("federate renew nowhere --out new", None, "nowhere"),
        ("federate status mine", None, "federation.toml has no [parties]"),
        ("federate demo --episodes 0", "usage", "'--episodes': 0"),
        ("resume mine", None, "federation.toml has no [parties]"),
        ("verify log --agents 0:1", "needs-ledger", "'0:1'"),
        ("verify log --ledger ledger.json --agents 0,2", "bad-agents", "'0,2'"),
        ("verify log --ledger ledger.json --agents x", "bad-agents", "'x'"),
        ("verify log --ledger ledger.json --agents 0:2", "bad-agents", "0:1"),
        ("verify log --ledger none.json", None, "none.json"),
    ],
)
def test_a_wrong_call_is_refused_in_a_sentence(
    command: str, code: str | None, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine").mkdir()
    for path in ("f.toml", "mine/federation.toml"):
        Path(path).write_text(TOML)
    ledger_file(Path(), 28)
    message = refused(capsys, *command.split())
    assert code in (None, message.code)
    assert named in message


def test_status_says_who_is_away_and_why_a_job_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {
        "name": "trial", "rounds": 7, "episodes": 1200, "of": 5000, "sites": ["north", "south"],
        "notes": ["round 7: agent 1 carried, away since round 5"], "processes": {},
        "server": "answers", "connected": ["north"], "live": None, "waits": "",
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
