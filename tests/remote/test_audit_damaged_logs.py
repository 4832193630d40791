"""Logs that are odd though their chain may be whole: each is refused in a sentence, or said."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi.cli import main
from fedlsvi.errors import DamagedFile, InvalidInput
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.protocol.messages import Signal, Upload
from fedlsvi.remote.audit import GENESIS, Audit, in_logs, lines, verify
from fedlsvi.remote.codec import Address, Failure, encode
from fedlsvi.storage import files

H, D = 2, 3
EACH = 2 * D
"""Scalars of an upload."""


def upload(k: int, h: int, value: float = 1.0) -> Upload:
    return Upload(h, np.full((1, D), value * k), np.full((1, D), float(h)))


def sent(path: Path, first: int = 0, run: int = 7, rounds: int = 2) -> Path:
    """The log of agent `first` after this many rounds."""
    audit = Audit(path, durable=False)
    audit.note("Hello", scalars=1, bytes=8)
    for k in range(1, rounds + 1):
        for h in range(H, 0, -1):
            audit.sent(encode(upload(k, h), Address(run, 1, 1, k, first, 1)))
    audit.close()
    return path


def chain(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write a log with these lines, whose chain is whole."""
    before, text = GENESIS, ""
    for row in rows:
        line = {key: value for key, value in row.items() if key != "hash"} | {"before": before}
        before = hashlib.sha256(json.dumps(line, sort_keys=True).encode()).hexdigest()
        text += json.dumps(line | {"hash": before}) + "\n"
    path.write_text(text)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(row) for row in path.read_text().splitlines()]


def ledger_file(
    path: Path, agents: int = 2, uploads: int = 2 * H * EACH, run: object = None
) -> str:
    ledger = Ledger(agents)
    ledger.each("up_stats", uploads)
    files.write_json(path, ledger.to_dict() | ({} if run is None else {"run": run}))
    return str(path)


def test_a_log_is_of_its_agents_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two sites that sent as much: neither log passes for the other's."""
    log, ledger = sent(tmp_path / "log", first=1), ledger_file(tmp_path / "ledger.json")
    assert verify(log, 2 * H * EACH, (1, 2)).origins == [(f"{7:016x}", 1, 2)]
    with refused(InvalidInput, "log-of-other-agents", "1:2", "0:1"):
        verify(log, 2 * H * EACH, (0, 1))
    command = ["verify", str(log), "--ledger", ledger, "--agents"]
    assert main([*command, "1:2"]) == 0
    assert "uploads of agents 1:2 of run 0000000000000007" in capsys.readouterr().out
    assert main([*command, "0:1"]) == 2
    assert "1:2" in capsys.readouterr().err


def test_a_ledger_is_compared_with_the_uploads_of_its_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A federation that is begun anew goes on in the same log."""
    log = sent(tmp_path / "log", run=7, rounds=3)
    sent(log, run=8)
    seven, eight = in_logs(7), in_logs(8)
    assert verify(log, 3 * H * EACH, (0, 1), seven).uncounted == []
    found = verify(log, 2 * H * EACH, (0, 1), eight)
    assert (found.uncounted, found.again) == ([], 0)
    assert found.scalars["Upload"] == 5 * H * EACH
    with refused(InvalidInput, "log-of-other-agents", "0:1", "1:2"):
        verify(log, 2 * H * EACH, (1, 2), eight)
    sent(log, run=9, first=1)
    assert verify(log, 2 * H * EACH, (0, 1), eight).uncounted == []
    never = in_logs(11)
    with refused(DamagedFile, "log-incomplete", "24", "36"):
        verify(log, 3 * H * EACH, (0, 1), eight)
    runs = f"{seven} and {eight} and {in_logs(9)}"
    with refused(InvalidInput, "log-of-another-run", runs, never):
        verify(log, 2 * H * EACH, (0, 1), never)
    for run, code in ((eight, 0), (never, 2), ("eight", 2)):
        ledger = ledger_file(tmp_path / "ledger.json", run=run)
        assert main(["verify", str(log), "--ledger", ledger, "--agents", "0:1"]) == code
    assert "ledger.json is not a ledger" in capsys.readouterr().err


def test_half_a_line_at_the_end_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A kill leaves it, wherever in the line; the site takes it away when it starts again."""
    log = sent(tmp_path / "log")
    whole, counted = log.read_bytes(), H * EACH + EACH
    assert not verify(log).unfinished
    last = len(whole.splitlines(keepends=True)[-1])
    for cut in (1, 2, last // 2, last - 1):
        log.write_bytes(whole[:-cut])
        found = verify(log, counted)
        assert found.unfinished
        assert found.scalars["Upload"] == counted
        assert [line["n"] for line in lines(log)] == [1, 2, 3, 4]
    assert main(["verify", str(log)]) == 0
    assert "truncated" in capsys.readouterr().out
    with refused(DamagedFile, "log-incomplete", "round 2, step 1"):
        verify(log, counted + EACH)
    Audit(log, durable=False).close()
    assert not verify(log).unfinished


def test_a_log_may_begin_with_round_0(tmp_path: Path) -> None:
    """Where a run begins with what agents recorded before; of such a run nothing may be missing."""
    log = sent(tmp_path / "log")
    rows = [row | {"round": row["round"] - 1} if "round" in row else row for row in rows_of(log)]
    chain(log, rows)
    assert verify(log, 2 * H * EACH).uncounted == []
    first = next(i for i, row in enumerate(rows) if row.get("round") == 0)
    chain(log, rows[:first] + [row | {"n": row["n"] - 1} for row in rows[first + 1 :]])
    with refused(DamagedFile, "log-incomplete"):
        verify(log, 2 * H * EACH)


@pytest.mark.parametrize(
    ("change", "field"),
    [({"kind": None}, "kind"), ({"kind": "\x1b[2J"}, "kind"), ({"kind": ["Upload"]}, "kind"),
     ({"round": None}, "round"), ({"round": -1}, "round"), ({"round": "1"}, "round"),
     ({"step": 0}, "step"), ({"step": None}, "step"), ({"step": 1.5}, "step"),
     ({"digest": None}, "digest"), ({"digest": 3}, "digest"), ({"scalars": None}, "scalars"),
     ({"scalars": 0}, "scalars"), ({"scalars": True}, "scalars"), ({"bytes": -1}, "bytes"),
     ({"bytes": "8"}, "bytes"), ({"first": -1}, "first"), ({"agents": 0}, "agents"),
     ({"agents": None}, "agents"), ({"run": None}, "run"), ({"run": "\x1b[2J"}, "run")],
)  # fmt: skip
def test_a_chained_line_that_no_site_writes_is_refused(
    change: dict[str, Any], field: str, tmp_path: Path
) -> None:
    log = sent(tmp_path / "log")
    rows = rows_of(log)
    chain(log, rows)
    verify(log, 2 * H * EACH)
    rows[3] |= change
    rows[3] = {key: value for key, value in rows[3].items() if value is not None}
    chain(log, rows)
    with refused(DamagedFile, f"bad-{field}", "line 4"):
        verify(log, 2 * H * EACH)


@pytest.mark.parametrize("row", ["[" * 100_000, "3", '"n"', "null", "9" * 5000])
def test_a_line_that_is_no_line_breaks_the_chain(row: str, tmp_path: Path) -> None:
    log = sent(tmp_path / "log")
    log.write_text(log.read_text() + row + "\n")
    with refused(DamagedFile, "log-altered", "line 6"):
        verify(log)


def test_each_line_is_numbered(tmp_path: Path) -> None:
    """Every hash is right, and one number is not."""
    log = sent(tmp_path / "log")
    rows = rows_of(log)
    rows[2]["n"] = 4
    chain(log, rows)
    with refused(DamagedFile, "log-altered", "line 3"):
        verify(log)


def test_each_line_names_the_one_before(tmp_path: Path) -> None:
    """A line is replaced, with a hash of its own that is right; the next one names another."""
    log = sent(tmp_path / "log")
    rows = rows_of(log)
    body = {key: value for key, value in rows[1].items() if key != "hash"} | {"scalars": 5}
    own = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    rows[1] = body | {"hash": own}
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with refused(DamagedFile, "log-altered", "line 3"):
        verify(log)


def test_an_upload_with_other_content_is_another(tmp_path: Path) -> None:
    """The same round and step once more: sent again, or replaced."""
    log = sent(tmp_path / "log")
    audit = Audit(log, durable=False)
    address = Address(7, 2, 1, 2, 0, 1)
    audit.sent(encode(upload(2, 1), address))
    audit.sent(encode(upload(2, 1, value=9.0), address))
    audit.close()
    found = verify(log, 2 * H * EACH)
    assert (found.again, found.uncounted) == (1, [(2, 1)])
    assert found.scalars["Upload"] == (2 * H + 1) * EACH


def test_a_signal_counts_two_scalars_for_each_agent(tmp_path: Path) -> None:
    """As in the ledger; its counter goes with each. Silence and errors are free."""
    audit = Audit(tmp_path / "log", durable=False)
    address = Address(7, 1, 1, 1, 0, 3)
    audit.sent(encode(Signal(4, np.array([0, 2]), np.array([1, 1])), address))
    audit.sent(encode(Signal.silence(), address))
    audit.sent(encode(Failure("ValueError"), address))
    audit.close()
    assert verify(tmp_path / "log").scalars == {"Signal": 4, "Failure": 0}


@pytest.mark.parametrize("durable", [True, False])
def test_a_line_is_on_disk_before_its_message_leaves(
    durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, synced = tmp_path / "log", []
    audit = Audit(log, durable)
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(log.read_text().count("\n")))
    audit.note("Hello", scalars=1)
    audit.note("Hello", scalars=1)
    audit.close()
    assert synced == ([1, 2] if durable else [])


def test_another_file_is_no_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is sealed, and something else."""
    log = sent(tmp_path / "log")
    for content in ({"epoch": 3}, {"n_agents": "2"}, {"n_agents": 1, "every": 3, "single": {}}):
        files.write_json(tmp_path / "other.json", content)
        assert main(["verify", str(log), "--ledger", str(tmp_path / "other.json")]) == 2
        assert "other.json is not a ledger" in capsys.readouterr().err


def test_a_ledger_that_counts_without_end_is_refused_at_once(tmp_path: Path) -> None:
    with refused(DamagedFile, "log-incomplete", "round 3, step 2"):
        verify(sent(tmp_path / "log"), EACH * 10**15)
