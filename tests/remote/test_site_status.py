"""`fedlsvi site status KIT`: the site's own view of its jobs."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from fedlsvi import json_log
from fedlsvi.cli import main
from fedlsvi.protocol.messages import Stop
from fedlsvi.remote import audit, site_status
from fedlsvi.remote.account import Account, Booking
from fedlsvi.remote.audit import Audit, in_logs
from fedlsvi.remote.codec import Address, encode
from fedlsvi.remote.site_status import ACTIVITY, LOG, Activity


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    kit = tmp_path / "north"
    (kit / "local").mkdir(parents=True)
    (kit / "local" / "fedlsvi.toml").write_text('agents = 2\n[env]\nname = "river-swim"\n')
    return kit


def take_part(kit: Path) -> Path:
    """A job of which two messages left, and in which three requests were refused, one twice."""
    folder = kit / "fedlsvi" / "wards"
    folder.mkdir(parents=True)
    Activity(folder, "job-1").asked(encode(Stop(12), Address(7, 1, 1, 3, 0, 2)))
    audit = Audit(folder / "sent.jsonl")
    for step in (2, 1):
        facts = {"run": in_logs(7), "first": 0, "agents": 2, "digest": f"{step}"}
        audit.note("Upload", round=1, step=step, scalars=14, bytes=1500, **facts)
    audit.close()
    handler = json_log.write_to(folder / LOG)
    log = logging.getLogger("fedlsvi.trial")
    for caller in ("south", "west", "south"):
        log.warning("handle from %s was refused", caller, extra={"code": "caller-not-server"})
    log.info("this is no refusal")
    json_log.stop(handler)
    Account(kit / "fedlsvi").book(Booking("wards", "f" * 16, (0, 2), "episode", 1, 1.0, 1e-6))
    return folder


def test_a_kit_that_has_taken_part(kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    take_part(kit)
    assert main(["site", "status", str(kit), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (run,) = found["runs"]
    assert (run["name"], run["bytes"], run["messages"]) == ("wards", 3000, {"Upload": 2})
    assert run["scalars"] == {"Upload": 28}
    assert [run["request"][key] for key in ("job", "kind", "round")] == ["job-1", "Stop", 3]
    assert [(said["code"], said["times"]) for said in run["refused"]] == [
        ("caller-not-server", 1), ("caller-not-server", 2),
    ]  # fmt: skip
    assert found["epsilon"]["spent"] == pytest.approx(1.0)
    assert main(["site", "status", str(kit / "fedlsvi")]) == 0
    said = capsys.readouterr().out
    for part in ("wards: round 3", "2 messages, 3 kB", "2 times: handle from south", "ε = 1"):
        assert part in said


def test_who_looks_again_reads_only_what_has_come_since(
    kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Across the files of the log, and after the log was begun again. What is shown is always what
    somebody sees who looks for the first time."""
    monkeypatch.setattr(audit, "ROTATE_BYTES", 700)
    folder, site, hashed = take_part(kit), site_status.Site(kit), list[int]()
    with monkeypatch.context() as patch:
        before = audit._hash
        patch.setattr(audit, "_hash", lambda line: hashed.append(line["n"]) or before(line))
        assert site.status() == site_status.status(kit)
        hashed.clear()
        site.status()
        assert hashed == []
    for number in range(3, 9):
        log = Audit(folder / "sent.jsonl")
        facts = {"run": in_logs(7), "first": 0, "agents": 2, "digest": f"{number}"}
        log.note("Upload", round=number, step=1, scalars=14, bytes=1500, **facts)
        log.close()
        found = site.status()
        assert found == site_status.status(kit)
        assert found["runs"][0].messages == {"Upload": number}
    assert len(audit.rotated(folder / "sent.jsonl")) > 1
    whole = (folder / "sent.jsonl").read_bytes()
    (folder / "sent.jsonl").write_bytes(whole.replace(b'"scalars": 14', b'"scalars": 13'))
    (folder / "sent.jsonl").open("ab").write(b"{}\n")
    assert [site.status()["runs"][0].log_intact for _ in range(2)] == [False, False]
    for file in folder.glob("sent*.jsonl"):
        file.unlink()
    log = Audit(folder / "sent.jsonl")
    log.note("Upload", run=in_logs(7), round=1, step=1, scalars=14, bytes=9, first=0, agents=2)
    log.close()
    (run,) = site.status()["runs"]
    assert (run.messages, run.bytes, run.log_intact) == ({"Upload": 1}, 9, True)


def test_a_kit_that_has_not_taken_part(kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["site", "status", str(kit)]) == 0
    assert "not taken part" in capsys.readouterr().out
    assert main(["site", "status", str(kit.parent)]) == 2


def test_damaged_files_are_said_or_left_out(kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = take_part(kit)
    (folder / ACTIVITY).write_text('{"job": 3}')
    sent = folder / "sent.jsonl"
    sent.write_text(sent.read_text().replace('"scalars": 14', '"scalars": 13', 1))
    (folder / LOG).write_bytes(b"\xff\n[1]\n{}\n")
    (run,) = site_status.status(kit)["runs"]
    assert (run.request, run.refused, run.log_intact) == (None, [], False)
    assert main(["site", "status", str(kit)]) == 0
    assert "damaged" in capsys.readouterr().out


def test_a_full_disk_does_not_stop_a_site(kit: Path) -> None:
    """Neither does a frame that is none."""
    activity = Activity(kit / "nowhere", "job-1")
    activity.asked(encode(Stop(12), Address(7, 1, 1, 3, 0, 2)))
    activity.asked(b"nothing")
