"""The files of a journal: what it takes for its own, and what survives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expecting import refused
from fedlsvi.errors import DamagedFile, StoreError, TransportError, WrongVersion
from fedlsvi.remote.journal import Journal, Snapshot
from fedlsvi.storage import files


def snapshot(t: int) -> Snapshot:
    return Snapshot(t, {"u": np.full(3, float(t))}, {"last": [1, t, 1]})


@pytest.mark.parametrize("durable", [True, False])
def test_a_request_survives_the_loss_of_power_where_that_was_asked_for(
    durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log itself goes to the disk before `append` returns."""
    journal, synced = Journal(tmp_path, durable), list[str]()
    journal.newest()
    fsync = os.fsync

    def noted(fd: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    journal.append(b"request")
    assert synced == ["000000000.log"] * durable
    journal.close()


def test_going_back_forgets_the_requests_since(tmp_path: Path) -> None:
    journal = Journal(tmp_path, durable=False)
    journal.append(b"begin")
    journal.keep(snapshot(4))
    journal.append(b"later")
    assert journal.newest()[1] == [b"later"]
    journal.back_to(4)
    assert journal.newest()[1] == []
    journal.append(b"again")
    journal.back_to(0)
    assert journal.newest() == (None, [])
    journal.close()


def test_requests_of_a_time_that_was_undone_do_not_come_back(tmp_path: Path) -> None:
    """A kill came after the manifest of episode 4 was removed, and before its log was; then a
    snapshot is made there once more."""
    journal = Journal(tmp_path, durable=False)
    journal.keep(snapshot(4))
    journal.append(b"undone")
    (tmp_path / "000000004.json").unlink()
    journal.close()
    journal = Journal(tmp_path, durable=False)
    journal.newest()
    journal.keep(snapshot(4))
    assert journal.newest()[1] == []
    journal.close()


def test_only_the_newest_log_may_end_in_the_middle_of_a_request(tmp_path: Path) -> None:
    """A kill can cut nothing else short: an older one that ends so was damaged, and stays as it
    is."""
    journal = Journal(tmp_path, durable=False)
    journal.keep(snapshot(4))
    journal.append(b"request")
    journal.append(b"keep")
    journal.keep(snapshot(8))
    (tmp_path / "000000008.json").write_bytes(b"damaged")
    older = tmp_path / "000000004.log"
    assert journal.newest()[1] == [b"request", b"keep"]
    older.write_bytes(older.read_bytes()[:-2])
    before = older.read_bytes()
    with refused(DamagedFile, "journal-altered", "000000004.log"):
        journal.newest()
    assert older.read_bytes() == before
    journal.close()


def test_another_format_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path, durable=False)
    journal.keep(snapshot(4))
    path = tmp_path / "000000004.json"
    manifest = files.read_json(path, {str: Any})
    files.write_json(path, manifest | {"format": manifest["format"] - 1})
    with refused(WrongVersion, "wrong-format", str(path)):
        journal.newest()
    with refused(WrongVersion, "wrong-format", str(path)):
        journal.back_to(4)
    journal.close()


def test_what_others_put_into_the_folder_stays(tmp_path: Path) -> None:
    """The journal removes what it could have written itself, and takes nothing else for its own."""
    foreign = {"letter.txt", "2024-report.json", "12.json", "000000004.json.bak", ".notes.tmp"}
    own = {".000000003.json.tmp", "000000001-000000003.safetensors", "000000003.log"}
    for name in foreign | own:
        (tmp_path / name).write_text("?")
    journal = Journal(tmp_path, durable=False)
    assert journal.newest() == (None, [])
    for t in (4, 8, 12):
        journal.keep(snapshot(t))
    journal.back_to(8)
    journal.close()
    left = {path.name for path in tmp_path.iterdir()}
    kept = {f"000000008.{kind}" for kind in ("json", "safetensors", "log")}
    undone = {"000000012.json.undone", "000000012.safetensors"}
    assert left == foreign | kept | undone | {".lock"}


def test_what_a_server_went_back_behind_can_be_had_again(tmp_path: Path) -> None:
    """Until the new history is as long: then it is replaced."""
    journal = Journal(tmp_path / "journal", durable=False)
    for t in (4, 8):
        journal.keep(snapshot(t))
    journal.back_to(4)
    journal.keep(snapshot(6))
    journal.close()
    journal = Journal(tmp_path / "journal", durable=False)
    assert snapshot_at(journal, 6).t == 6
    again = journal.back_to(8)
    assert again is not None
    assert again.arrays["u"].tolist() == [8.0] * 3
    assert snapshot_at(journal, 8).t == 8
    journal.back_to(6)
    journal.keep(snapshot(8))
    assert not list((tmp_path / "journal").glob("*.undone"))
    with refused(TransportError, "no-snapshot", "4", "[6, 8]"):
        journal.back_to(4)
    journal.close()


def snapshot_at(journal: Journal, t: int) -> Snapshot:
    found, _ = journal.newest()
    assert found is not None
    assert found.t == t
    return found


def test_starts_that_go_back_again_and_again_keep_the_latest(tmp_path: Path) -> None:
    """And no more than as many as a restarted server may ask for."""
    journal = Journal(tmp_path / "journal", durable=False)
    for t in (4, 20):
        journal.keep(snapshot(t))
    for t in range(5, 15):
        journal.back_to(4)
        journal.keep(snapshot(t))
    journal.back_to(4)
    undone = {path.name for path in (tmp_path / "journal").glob("*.undone")}
    assert undone == {"000000014.json.undone", "000000020.json.undone"}
    assert journal.back_to(20) is not None
    journal.close()


def test_a_start_at_0_puts_the_journal_aside(tmp_path: Path) -> None:
    """Again and again, and each stays a journal; this one is still held against other processes."""
    folder = tmp_path / "journal"
    journal = Journal(folder, durable=False)
    for n in (1, 2):
        for t in (4, 8):
            journal.keep(snapshot(n * t))
        journal.append(b"request")
        journal.back_to(0)
        assert journal.newest() == (None, [])
        old = Journal(tmp_path / f"journal.{n}", durable=False)
        assert (snapshot_at(old, 8 * n).t, old.newest()[1]) == (8 * n, [b"request"])
        old.close()
    journal.back_to(0)
    assert not (tmp_path / "journal.3").exists()  # there was nothing to lose
    with refused(TransportError, "in-use", str(folder)):
        Journal(folder, durable=False)
    with refused(TransportError, "no-snapshot", str(tmp_path / "journal.1")):
        journal.back_to(4)
    assert not folder.stat().st_mode & 0o077
    journal.close()


NAMES = (".lock", "000000004.json", "000000004.safetensors", "000000004.log", "000000000.log")


@pytest.mark.parametrize("name", NAMES)
def test_a_link_in_a_journal_is_refused(tmp_path: Path, name: str) -> None:
    """Nothing outside the folder is read, cut, filled or removed."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    journal = Journal(tmp_path / "journal", durable=False)
    journal.append(b"begin")
    if name != "000000000.log":
        journal.keep(snapshot(4))
        journal.append(b"later")
    journal.close()
    (tmp_path / "journal" / name).unlink()
    (tmp_path / "journal" / name).symlink_to(outside)
    with refused(StoreError, "linked-file", name):
        Journal(tmp_path / "journal", durable=False).newest()
    assert outside.read_bytes() == b"precious"


@pytest.mark.parametrize(
    "change",
    [
        {"t": 5},
        {"t": -1},
        {"state": 3},
        {"state": {"bytes": -1, "sha256": "0" * 64}},
        {"history": [{"name": "../x.safetensors", "first": 0, "stamp": {}}]},
        {"history": "x"},
        {"plain": []},
        {"more": 1},
    ],
)
def test_a_resealed_manifest_is_checked(tmp_path: Path, change: dict[str, Any]) -> None:
    journal = Journal(tmp_path, durable=False)
    journal.keep(snapshot(4))
    journal.close()
    (tmp_path / "000000000.log").unlink(missing_ok=True)  # nothing to fall back to
    path = tmp_path / "000000004.json"
    files.write_json(path, files.read_json(path, {str: Any}) | change)
    journal = Journal(tmp_path, durable=False)
    with pytest.raises(DamagedFile):
        journal.newest()
    path.write_bytes(b"[" * 100_000)
    with pytest.raises(DamagedFile):
        journal.newest()
    journal.close()
