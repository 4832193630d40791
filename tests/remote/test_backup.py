"""Backups of what parties keep, and what a restore leaves alone."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import problems
from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.cli import main
from fedlsvi.errors import DamagedFile, FolderExists, InvalidInput, MessageRefused, StoreError
from fedlsvi.protocol.messages import Keep, Stop, Upload
from fedlsvi.protocol.plan import make_plan
from fedlsvi.remote import backup
from fedlsvi.remote.account import ACCOUNT, Account, Booking
from fedlsvi.remote.audit import Audit
from fedlsvi.remote.codec import Address, encode
from fedlsvi.remote.endpoint import Endpoint
from fedlsvi.remote.journal import Journal
from fedlsvi.remote.lost_bookings import LOST
from fedlsvi.remote.site import SECRETS
from fedlsvi.remote.site_noise import book
from fedlsvi.storage import files
from site_endpoints import SITES, Sites, as_bytes, failed, refusals

NAMES = ("east", "north", "south")
ENDS = (20, 40, 60)


class Kits(Sites):
    """Three sites with secure sums, each in a kit; `world` is what they play."""

    def __init__(self, project: Path, world: int = 0) -> None:
        problem = problems.one_hot(seed=world)
        learner = FedLSVI(
            n_agents=SITES, aggregation="secure", stationary=False, gamma=60.0, beta=0.5, lam=0.5
        )
        made = make_plan(
            learner.settings, problem.envs, ENDS[-1], 3, features=problems.one_hot().features
        )
        super().__init__(made)
        for endpoint in self.endpoints:
            endpoint.close()
        self.kits = [project / "kits" / name for name in NAMES]
        for kit in self.kits:
            (kit / "startup").mkdir(parents=True, exist_ok=True)
        self.endpoints = [self.opened(c) for c in range(SITES)]

    def opened(self, c: int) -> Endpoint:
        home, make = self.kits[c] / "fedlsvi", self.factories[c]
        files.make_private(own := home / "trial" / "journal")
        journal = Journal(own, durable=False, secrets=home / SECRETS / "trial")
        return Endpoint(make.cohort, self.p, self.run, journal, identity=make.identity)

    def keep(self) -> None:
        assert self.all(Keep(self.t)) == [None] * SITES

    def resumed(self, other: Sites) -> None:
        """Where another server was, in a later epoch."""
        self.w, self.gram, self.round, self.t = other.w, other.gram, other.round, other.t
        self.turns = [(9, 0)] * SITES
        for c, kept in enumerate(other.factories):
            self.factories[c] = self.factories[c].__class__(
                self.plan, kept.lo, kept.hi, identity=kept.identity
            )


def state(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.is_file()}  # fmt: skip


def saved(project: Path) -> tuple[Kits, list[bytes]]:
    """A run of two rounds with a backup between them; the uploads of the second."""
    server = Kits(project)
    server.agreed()
    server.synchronise(ENDS[0])
    server.keep()
    before = Kits.__new__(Kits)
    before.__dict__ |= vars(server) | {"w": server.w.copy(), "gram": server.gram.copy()}
    server.close()
    backup.save(project, project / "backup")
    server.endpoints = [server.opened(c) for c in range(SITES)]
    server.turns = [(5, 0)] * SITES
    server.agreed(server.t)
    uploads = as_bytes(server.synchronise(ENDS[1]))
    server.close()
    return before, uploads


def test_a_restored_site_sends_the_same_bytes_again(tmp_path: Path) -> None:
    """Its masks are those that it used, and the record of what has left knows the later round."""
    before, uploads = saved(tmp_path)
    secrets = [state(tmp_path / "kits" / name / "fedlsvi" / SECRETS) for name in NAMES]
    done = backup.restore(tmp_path / "backup", tmp_path)
    assert (sorted(done.runs), done.without_secrets) == (list(NAMES), [])
    assert [state(tmp_path / "kits" / name / "fedlsvi" / SECRETS) for name in NAMES] == secrets
    server = Kits(tmp_path)
    server.resumed(before)
    server.agreed(server.t)
    assert as_bytes(server.synchronise(ENDS[1])) == uploads
    server.close()


def test_a_restored_site_that_sees_something_else_sends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A world that does not replay its episodes: masks would hide a second content."""
    before, _ = saved(tmp_path)
    backup.restore(tmp_path / "backup", tmp_path)
    server = Kits(tmp_path, world=1)
    server.resumed(before)
    server.run = before.run
    server.agreed(server.t)
    caplog.clear()
    assert failed(server.all(Stop(ENDS[1])))
    assert refusals(caplog) == {"answered-before"}
    server.close()


def test_a_site_that_has_lost_its_record_is_told_so_and_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, _ = saved(tmp_path)
    kit = tmp_path / "kits" / "north"
    shutil.rmtree(kit / "fedlsvi")
    assert main(["federate", "restore", str(tmp_path / "backup"), str(kit)]) == 0
    said = capsys.readouterr().out
    assert "north does not know what has left it" in said
    assert "south is not here" in said
    server = Kits.__new__(Kits)
    server.__dict__ |= vars(before)
    with refused(DamagedFile, "releases-lost"):
        server.opened(1)


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """The kit of a site with all that may lie there."""
    kit = tmp_path / "north"
    for name, text in {
        "startup/client.key": "key", "local/fedlsvi.toml": "agents = 2",
        "fedlsvi/.secrets/trial/masks.json": "mask", "fedlsvi/revoked.crl": "list",
        "fedlsvi/trial/sent.jsonl": "1\n",
        "fedlsvi/trial/journal/000000020.json": "snapshot",
        "fedlsvi/trial/journal/000000020.log": "requests", "fedlsvi/trial/activity.json": "{}",
    }.items():  # fmt: skip
        path = kit / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    Account(kit / "fedlsvi").book(FIRST)
    return kit


FIRST = Booking("trial", "0" * 16, (0, 2), "episode", 1, 7.0, 1e-6)
SECOND = replace(FIRST, federation="trial-2", epsilon=1.0)
LIMIT = {"total": 8.0, "delta": 1e-6}


def test_no_secret_is_in_a_backup_and_none_is_put_back(kit: Path, tmp_path: Path) -> None:
    made = backup.save(kit, tmp_path / "backup")
    assert made.kits == {"north": {"trial": [0, 20]}}
    assert set(state(tmp_path / "backup")) == {
        "manifest.json", "north/account.jsonl", "north/fedlsvi.toml", "north/runs/trial/sent.jsonl",
        "north/runs/trial/activity.json", "north/runs/trial/journal/000000020.json",
        "north/runs/trial/journal/000000020.log",
    }  # fmt: skip
    assert not any(path.stat().st_mode & 0o077 for path in (tmp_path / "backup").rglob("*"))
    run = kit / "fedlsvi" / "trial"
    (run / "sent.jsonl").write_text("1\n2\n")
    (run / "journal" / "000000040.json").write_text("later")
    (kit / "fedlsvi" / SECRETS / "trial" / "releases.log").write_text("later")
    done = backup.restore(tmp_path / "backup", kit)
    assert (run / "sent.jsonl").read_text() == "1\n2\n"
    assert not (run / "journal" / "000000040.json").exists()
    assert (kit / "fedlsvi" / SECRETS / "trial" / "releases.log").read_text() == "later"
    (aside,) = done.aside
    assert (aside / "journal" / "000000040.json").read_text() == "later"
    # and once more, as after a kill between the two renames
    shutil.rmtree(run)
    (kit / "fedlsvi" / ".restoring").mkdir()
    assert backup.restore(tmp_path / "backup", kit).aside == []
    assert (run / "sent.jsonl").read_text() == "1\n"


def booked(kit: Path, booking: Booking, **limit: float) -> None:
    home = kit / "fedlsvi"
    book(Account(home), booking, home / SECRETS / booking.federation, **limit)


@pytest.mark.parametrize("lost", ["all", "account", "secrets"])
def test_what_was_spent_is_not_forgotten_with_a_disk(
    lost: str, kit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """7 of 8 are spent, the disk is replaced and its backup put back: another 7 were accepted. The
    account comes back, and until a person says what was booked after the backup, no more is."""
    backup.save(kit, folder := tmp_path / "backup")
    home = kit / "fedlsvi"
    for gone in {"all": [home], "account": [home / ACCOUNT], "secrets": [home / SECRETS]}[lost]:
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    assert main(["federate", "restore", str(folder), str(kit)]) == 0
    assert "--spent" in capsys.readouterr().out
    assert Account(home).bookings == [FIRST]
    with refused(DamagedFile, "bookings-lost"):
        booked(kit, SECOND, **LIMIT)
    booked(kit, SECOND)  # where nobody has set a limit
    main(["federate", "account", str(kit), "--spent", "0.5", "--delta", "1e-6"])
    assert not (home / LOST).exists()
    assert [b.epsilon for b in Account(home).bookings] == [7.0, 1.0, 0.5]
    with refused(MessageRefused, "budget-spent"):
        booked(kit, replace(FIRST, federation="third"), **LIMIT)
    booked(kit, replace(FIRST, federation="fourth", epsilon=0.5), **LIMIT)


def test_the_longer_account_stays(kit: Path, tmp_path: Path) -> None:
    """Of two that begin alike; of two that do not, the one that is here, with a question."""
    home, folder = kit / "fedlsvi", tmp_path / "backup"
    backup.save(kit, folder)
    Account(home).book(SECOND)
    assert backup.restore(folder, kit).without_account == []
    assert Account(home).bookings == [FIRST, SECOND]
    (home / ACCOUNT).unlink()
    Account(home).book(SECOND)
    assert backup.restore(folder, kit).without_account == ["north"]
    assert Account(home).bookings == [SECOND]
    assert (home / LOST).exists()


def test_a_run_of_which_nothing_is_booked_is_noticed(kit: Path) -> None:
    """Its folder was put back by hand, and the account was not."""
    home = kit / "fedlsvi"
    (home / ACCOUNT).unlink()
    (home / "trial" / "sent.jsonl").unlink()
    log = Audit(home / "trial" / "sent.jsonl", durable=False)
    log.note("Hello", scalars=1, bytes=8)
    booked(kit, SECOND, **LIMIT)
    log.sent(encode(Upload(1, np.zeros((1, 1)), np.zeros((1, 1))), Address(1, 1, 1, 1, 0, 1)))
    log.close()
    with refused(DamagedFile, "bookings-lost"):
        booked(kit, replace(FIRST, federation="third"), **LIMIT)
    main(["federate", "account", str(kit), "--spent", "7", "--delta", "1e-6"])
    with refused(MessageRefused, "budget-spent"):
        booked(kit, replace(FIRST, federation="third"), **LIMIT)


@pytest.mark.parametrize("harm", ["altered", "missing", "manifest", "path", "link"])
def test_a_damaged_backup_replaces_nothing(harm: str, kit: Path, tmp_path: Path) -> None:
    backup.save(kit, folder := tmp_path / "backup")
    snapshot = folder / "north" / "runs" / "trial" / "journal" / "000000020.json"
    manifest = folder / "manifest.json"
    table = json.loads(manifest.read_text())
    if harm == "altered":
        snapshot.write_text("snapshoT")
    elif harm == "missing":
        snapshot.unlink()
    elif harm == "manifest":
        manifest.write_text(manifest.read_text().replace("north", "south"))
    elif harm == "path":
        of = table["kits"]["north"]["files"]
        of["../../../elsewhere"] = of.pop("fedlsvi.toml")
        table.pop("sha256")
        files.write_json(manifest, table)
    else:
        snapshot.rename(tmp_path / "elsewhere")
        snapshot.symlink_to(tmp_path / "elsewhere")
    before = state(kit)
    with pytest.raises((DamagedFile, StoreError)):
        backup.restore(folder, kit)
    assert state(kit) == before


def test_nothing_is_copied_or_replaced_while_a_job_runs(
    kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "PATIENCE_SECONDS", 0.0)
    backup.save(kit, tmp_path / "backup")
    journal = Journal(kit / "fedlsvi" / "other" / "journal")
    for action in (
        lambda: backup.save(kit, tmp_path / "second"),
        lambda: backup.restore(tmp_path / "backup", kit),
    ):
        with refused(StoreError, "in-use", "pause"):
            action()
    journal.release()
    assert not (tmp_path / "second").exists()


def test_places_that_are_none(kit: Path, tmp_path: Path) -> None:
    backup.save(kit, tmp_path / "backup")
    with refused(FolderExists, "folder-exists"):
        backup.save(kit, tmp_path / "backup")
    with refused(InvalidInput, "no-kit"):
        backup.save(tmp_path / "nowhere", tmp_path / "third")
    with refused(InvalidInput, "no-backup"):
        backup.restore(kit, kit)
    moved = kit.rename(tmp_path / "moved")
    assert backup.restore(tmp_path / "backup", moved).runs == {"north": ["trial"]}


def test_copies_of_different_times_are_told(tmp_path: Path) -> None:
    kits: dict[str, Any] = {"fl": {"trial": [40]}, "north": {"trial": [0, 20, 40]},
                            "south": {"trial": [0, 20, 30]}}  # fmt: skip
    (sentence,) = backup.Backup(tmp_path, "", kits, 0).misfits()
    assert "south" in sentence
    assert "40" in sentence


def test_what_nothing_needs_is_removed(kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Evidence stays; without --dry-run the folders go, and say what they held."""
    jobs = [kit / f"{n:08x}-0000-4000-8000-000000000000" for n in range(3)]
    for job in jobs:
        job.mkdir()
        (job / "log.txt").write_text("a line\n")
    aside = kit / "fedlsvi" / "trial" / "journal.1"
    replaced = kit / "fedlsvi" / ".replaced" / "trial.1"
    for folder in (aside, replaced):
        folder.mkdir(parents=True)
        (folder / "000000020.json").write_text("old")
    before = {key for key in state(kit) if not key.endswith(".lock")}
    assert main(["federate", "prune", str(kit), "--dry-run", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["removed"]) == 4
    assert {key for key in state(kit) if not key.endswith(".lock")} == before
    assert main(["federate", "prune", str(kit), "--keep", "1"]) == 0
    assert "removed" in capsys.readouterr().out
    gone = before - set(state(kit))
    assert len(gone) == 4
    assert not any(name in key for key in gone for name in ("sent", "secrets", "account", "20.log"))
