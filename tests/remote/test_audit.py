"""The log of what left a site: its chain, and that nothing but declared statistics leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import problems
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.cli import main
from fedlsvi.errors import DamagedFile, StoreError
from fedlsvi.learner import drive
from fedlsvi.remote import audit as audit_module
from fedlsvi.remote.audit import Audit, lines, rotated, verify
from fedlsvi.remote.codec import run_id
from fedlsvi.remote.endpoint_factory import endpoint_factories, guard_for
from fedlsvi.remote.frame_transport import ThreadTransport
from fedlsvi.remote.retry_policy import RetryPolicy
from patience import PATIENCE
from transports_over_frames import over_frames


def run_with_audits(folder: Path) -> Any:
    """A session of three sites with logs; what they sent is kept beside."""
    learner = FedLSVI(n_agents=3, gamma=8.0, policy="explore")
    session = learner.prepare(problems.continuous().envs, 60, 1, transport=over_frames(3))
    transport: Any = session.player.transport
    for c, handler in enumerate(transport.handlers):
        handler.outbox = Audit(folder / f"{c}.jsonl", durable=False)
    return session


def test_totals_are_those_of_the_ledger(tmp_path: Path) -> None:
    session = run_with_audits(tmp_path)
    drive(session, [])
    for c in range(3):
        counted = int(session.player.transport.ledger.by_agent["up_stats"][c])
        assert verify(tmp_path / f"{c}.jsonl", counted).scalars["Upload"] == counted
    with refused(DamagedFile, "log-incomplete", str(counted + 1)):
        verify(tmp_path / "0.jsonl", counted + 1)


class Late(ThreadTransport):
    """Replies of cohort 1 come too late in some exchanges; nobody has to wait."""

    late = range(0)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.exchanges = 0
        self.clock = lambda: self.exchanges * self.retry.deadline

    def exchange(self, frames: Any, deadline: float) -> Iterator[tuple[int, bytes]]:
        self.exchanges += 1
        lost = self.exchanges in self.late
        # cohort 1 first, so that what it says without being waited for is heard
        for c, data in sorted(super().exchange(frames, deadline), key=lambda come: come[0] != 1):
            if c != 1 or not lost:
                yield c, data


def run_with_a_late_site(folder: Path, absent: Any, late: range) -> tuple[Path, int, list[str]]:
    """The log of site 1, what the server counted for it, and what the records say of it."""

    def transport(plan: Any) -> Late:
        made = endpoint_factories(plan, 3, folder / "journals", durable=False, threads=1)
        run = run_id(plan.parameters, plan.seed)
        retry = RetryPolicy(PATIENCE, 1, absent=absent)
        found = Late(plan.parameters, made, run, retry, guard_for(plan))
        site: Any = found.handlers[1]
        site.outbox = Audit(folder / "1.jsonl", durable=False)
        found.late = late
        return found

    own: dict[str, Any] = {"stationary": False, "policy": "explore"}  # uploads of one size
    learner = FedLSVI(n_agents=3, gamma=8.0, beta=0.5, lam=0.5, **own)
    session = learner.prepare(problems.one_hot().envs, 40, 1, transport=transport)
    drive(session, [])
    notes = [note for record in session.records for note in record.notes]
    return folder / "1.jsonl", int(session.player.transport.ledger.by_agent["up_stats"][1]), notes


def uploads_in(path: Path) -> list[dict[str, Any]]:
    return [line for line in lines(path) if line["kind"] == "Upload"]


@pytest.mark.parametrize("absent", ["carry", "exclude"])
@pytest.mark.parametrize("first", range(24, 32))
def test_the_log_of_a_late_site_is_accepted(absent: str, first: int, tmp_path: Path) -> None:
    """Whatever its reply was that came too late: what left and was not counted is named, and the
    rest is what the server counted."""
    log, counted, notes = run_with_a_late_site(tmp_path, absent, range(first, first + 3))
    assert any("agent 1" in note for note in notes)
    sent = verify(log, counted)
    # where steps share a Gram matrix, the upload of step H is longer than the others
    lengths = {(line["round"], line["step"]): line["scalars"] for line in uploads_in(log)}
    missed = sum(lengths[place] for place in sent.uncounted)
    assert sent.scalars["Upload"] - missed == counted


@pytest.mark.parametrize(("absent", "first"), [("carry", 28), ("exclude", 24)])
def test_a_site_that_never_comes_back_in_time(absent: str, first: int, tmp_path: Path) -> None:
    """Its last upload left and was not counted: it is named by round and step."""
    log, counted, _ = run_with_a_late_site(tmp_path, absent, range(first, 1000))
    last = uploads_in(log)[-1]
    assert verify(log, counted).uncounted == [(last["round"], last["step"])]


def test_lines_cut_off_the_end_show_where_the_server_counted_them(tmp_path: Path) -> None:
    """The chain alone cannot tell; nor can the ledger where what was cut off is no upload."""
    session = run_with_audits(tmp_path)
    drive(session, [])
    path, counted = (
        tmp_path / "0.jsonl",
        int(session.player.transport.ledger.by_agent["up_stats"][0]),
    )
    rows = path.read_text().splitlines()
    last = uploads_in(path)[-1]["n"]
    assert last < len(rows)
    path.write_text("\n".join(rows[:last]) + "\n")
    verify(path, counted)
    path.write_text("\n".join(rows[: last - 1]) + "\n")
    verify(path)
    with refused(DamagedFile, "log-incomplete", "step 1"):
        verify(path, counted)
    path.write_text("")
    with refused(DamagedFile, "log-empty", str(path)):
        verify(path)


def test_an_altered_log_is_noticed(tmp_path: Path) -> None:
    session = run_with_audits(tmp_path)
    drive(session, [])
    path = tmp_path / "0.jsonl"
    rows = path.read_text().splitlines()
    assert len(rows) > 10
    changed = json.loads(rows[4]) | {"scalars": 1}
    for bad, at in [
        ([*rows[:4], json.dumps(changed), *rows[5:]], 5),
        ([*rows[:4], *rows[5:]], 5),
        ([*rows[:4], rows[5], rows[4], *rows[6:]], 5),
        ([*rows[:6], "{}"], 7),
    ]:
        path.write_text("\n".join(bad) + "\n")
        with refused(DamagedFile, "log-altered", f"line {at}"):
            verify(path)


def test_a_log_continues_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "log"
    first = Audit(path)
    first.note("Hello", scalars=1)
    first.close()
    with path.open("ab") as file:
        file.write(b'{"n": 2, "kind": "Upl')  # a kill in the middle of a line
    again = Audit(path)
    again.note("Hello", scalars=1)
    again.close()
    assert [line["n"] for line in lines(path)] == [1, 2]


def test_a_full_disk_leaves_the_log_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a line is written, then there is no room: it is said, the half goes, and with room again
    the log goes on."""
    path, write = tmp_path / "log", os.write
    audit = Audit(path)
    audit.note("Hello", scalars=1)

    def full(fd: int, data: bytes) -> int:
        if len(data) < 50:
            raise OSError(28, "No space left on device")
        return write(fd, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", full)
    with refused(StoreError, "cannot-write", "No space left"):
        audit.note("Hello", scalars=1)
    monkeypatch.undo()
    audit.note("Hello", scalars=1)
    audit.close()
    assert [line["n"] for line in lines(path)] == [1, 2]


def test_two_threads_write_one_chain(tmp_path: Path) -> None:
    """A greeting is answered while a cohort explores: each line has its own number."""
    audit = Audit(tmp_path / "sent.jsonl", durable=False)

    def write() -> None:
        for _ in range(1000):
            audit.note("Hello", scalars=1, bytes=8)

    threads = [Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    audit.close()
    assert verify(tmp_path / "sent.jsonl").messages == 2000


def test_two_processes_do_not_write_one_log(tmp_path: Path) -> None:
    path = tmp_path / "sent.jsonl"
    audit = Audit(path, durable=False)
    with refused(StoreError, "in-use", str(path)):
        Audit(path, durable=False)
    audit.note("Hello", scalars=1)
    audit.close()
    Audit(path, durable=False).close()


@pytest.fixture
def long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of 50 lines in several files, written by two processes one after the other."""
    monkeypatch.setattr(audit_module, "ROTATE_BYTES", 2000)
    for _ in range(2):
        audit = Audit(tmp_path / "sent.jsonl", durable=False)
        for _ in range(25):
            audit.note("Hello", scalars=1, bytes=8)
        audit.close()
    assert len(rotated(tmp_path / "sent.jsonl")) > 3
    return tmp_path / "sent.jsonl"


def test_a_long_log_goes_on_in_another_file(long: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`verify` follows all of them, on the shell too."""
    parts = [*rotated(long), long]
    assert all(path.stat().st_size < 2500 for path in parts)
    assert [line["n"] for line in lines(long)] == list(range(1, 51))
    assert verify(long).messages == 50
    first, last = (parts[1].read_text().splitlines()[0], parts[0].read_text().splitlines()[-1])
    assert json.loads(first)["before"] == json.loads(last)["hash"]
    assert main(["verify", str(long)]) == 0
    assert "50" in capsys.readouterr().out


def test_a_log_is_continued_without_its_earlier_files(
    long: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the last one is read, however long the log is."""
    opened, rows = list[Path](), audit_module._rows
    monkeypatch.setattr(audit_module, "_rows", lambda path: opened.append(path) or rows(path))
    audit = Audit(long, durable=False)
    assert opened == [long]
    audit.note("Hello", scalars=1, bytes=8)
    audit.close()
    assert verify(long).messages == 51


@pytest.mark.parametrize("empty", [False, True])
def test_a_kill_in_the_middle_of_a_rotation(empty: bool, long: Path) -> None:
    """The old file has its new name, and the new one is not there yet or has no line."""
    long.rename(long.with_name(f"sent.{len(rotated(long)) + 1}.jsonl"))
    if empty:
        long.write_bytes(b"")
    assert verify(long).messages == 50
    audit = Audit(long, durable=False)
    audit.note("Hello", scalars=1, bytes=8)
    audit.close()
    assert verify(long).messages == 51


@pytest.mark.parametrize("part", [1, 2, 3])
def test_a_file_that_is_missing_or_altered_is_noticed(part: int, long: Path) -> None:
    """Wherever it is in the log; the error says which file and what to do."""
    path = long.with_name(f"sent.{part}.jsonl")
    before = path.read_bytes()
    path.write_bytes(before.replace(b'"scalars": 1', b'"scalars": 2', 1))
    with refused(DamagedFile, "log-altered", str(path), "evidence"):
        verify(long)
    path.write_bytes(before[: before.rstrip().rfind(b"\n") + 1])
    with refused(DamagedFile, "log-altered"):
        verify(long)
    path.unlink()
    with refused(DamagedFile, "log-altered"):
        verify(long)
    Audit(long, durable=False).close()  # it goes on: what is missing is for `verify`


def test_a_damaged_log_says_what_to_do(long: Path) -> None:
    long.write_bytes(long.read_bytes().replace(b'"scalars": 1', b'"scalars": 2', 1))
    with refused(DamagedFile, "log-altered", str(long), "evidence", "restart the site"):
        Audit(long, durable=False)
    long.unlink()
    for path in rotated(long):
        path.unlink()
    Audit(long, durable=False).close()  # as the sentence says; and nobody holds it
