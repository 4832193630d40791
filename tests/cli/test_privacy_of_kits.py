"""`fedlsvi privacy KIT` shows what private jobs may spend of a site's data together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedlsvi import cli
from fedlsvi.remote.account import Account, Booking, booking_of


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "fedlsvi.toml").write_text(
        '[env]\nname = "river-swim"\n[require]\ntotal_epsilon = 3.0\ndelta = 1e-6\n'
    )
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["privacy", *arguments]) == 0
    return capsys.readouterr().out


def test_a_kit_without_private_jobs(kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no job" in shown(capsys, str(kit))


def test_the_account_of_a_kit(kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kit / "fedlsvi").mkdir()
    for name in ("wards", "clinics"):
        Account(kit / "fedlsvi").book(Booking(name, "f" * 16, (0, 1), "episode", 1, 1.0, 1e-6))
    text = shown(capsys, str(kit))
    assert "wards" in text
    assert "clinics" in text
    assert "3 is the limit" in text
    table = json.loads(shown(capsys, str(kit), "--format", "json"))
    assert 1.0 < table["spent"] < 2.0
    assert [row["federation"] for row in table["bookings"]] == ["wards", "clinics"]


def test_jobs_without_noise_are_listed(kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kit / "fedlsvi").mkdir()
    Account(kit / "fedlsvi").book(booking_of("wards", 7, (0, 1), None))
    text = shown(capsys, str(kit))
    assert "wards" in text
    assert "∞" in text
    table = json.loads(shown(capsys, str(kit), "--format", "json"))
    assert (table["spent"], table["without_noise"]) == (0.0, 1)
    assert table["bookings"][0]["epsilon"] is None
    assert cli.main(["site", "status", str(kit)]) == 0
    assert "without noise" in capsys.readouterr().out
