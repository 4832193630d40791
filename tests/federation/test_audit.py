"""The log of what left a site: its chain, and that nothing but declared statistics leaves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from canary import PATTERN, Marked

import problems
from fedlsvi import FedLSVI
from fedlsvi.errors import DamagedFile
from fedlsvi.federation.audit import Audit, lines, verify
from fedlsvi.federation.journal import Journal
from fedlsvi.learner import drive
from fedlsvi.transports.station import Station
from fedlsvi.transports.wired import run_name
from transports_over_frames import over_frames


def run_with_audits(folder: Path) -> Any:
    """A session of three sites with logs; what they sent is kept beside."""
    learner = FedLSVI(n_agents=3, gamma=8.0)
    session = learner.prepare(problems.continuous().envs, 60, 1, transport=over_frames(3))
    transport: Any = session.transport
    for c, handler in enumerate(transport.handlers):
        handler.outbox = Audit(folder / f"{c}.jsonl", durable=False)
    return session


def test_totals_are_those_of_the_ledger(tmp_path: Path) -> None:
    session = run_with_audits(tmp_path)
    drive(session, [])
    for c in range(3):
        counted = int(session.transport.ledger.by_agent["up_stats"][c])
        assert verify(tmp_path / f"{c}.jsonl", counted).scalars["Upload"] == counted
    with pytest.raises(DamagedFile, match="ledger"):
        verify(tmp_path / "0.jsonl", counted + 1)


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
        with pytest.raises(DamagedFile, match=f"line {at}"):
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


def test_states_never_leave(tmp_path: Path) -> None:
    """Every state of this world carries a recognisable pattern of bytes, which is found in the
    journal, where it belongs, and in nothing that is sent, nor in the log of what was sent."""
    learner = FedLSVI(n_agents=2, gamma=8.0)
    plan = learner.prepare(Marked(3, 5), 60, 1).plan
    sent: list[bytes] = []

    class Listening(Audit):
        def sent(self, frame: bytes) -> None:
            sent.append(frame)
            super().sent(frame)

    def make() -> Station:
        journal = Journal(tmp_path / "journal", durable=False)
        audit = Listening(tmp_path / "sent.jsonl", durable=False)
        run = run_name(plan.parameters, plan.seed)
        return Station(lambda: plan.cohort(0, 2), plan.layout, run, journal, audit)

    from fedlsvi.session import Session
    from fedlsvi.transports.local import Local

    transport = Local(plan.parameters, [make], run_name(plan.parameters, plan.seed))
    session = Session(plan, transport=transport)
    for _ in session.rounds():
        pass
    transport.keep(60)
    session.close()
    assert len(sent) > 50
    assert not any(PATTERN in frame for frame in sent)
    assert PATTERN not in (tmp_path / "sent.jsonl").read_bytes()
    journal = b"".join(path.read_bytes() for path in (tmp_path / "journal").iterdir())
    assert journal.count(PATTERN) >= 60 * 2 * 3
    assert os.path.getsize(tmp_path / "sent.jsonl") > 0
