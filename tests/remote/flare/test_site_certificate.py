"""Whose key it is, by the certificates of kits: the server and strangers cannot pass off theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from kits import SERVER, certificate, site_kit

from expecting import refused
from fedlsvi.errors import InvalidInput, MessageRefused
from fedlsvi.remote.flare.site_certificate import SiteCertificate

CONTENT = b"a key"


def signed(folder: Path, subject: str = "north", own: x509.Certificate | None = None) -> bytes:
    """What somebody with this certificate signs."""
    return SiteCertificate(site_kit(folder / subject, subject, own), "trial").sign(CONTENT)


def test_a_site_of_the_federation_is_named(tmp_path: Path) -> None:
    south = SiteCertificate(site_kit(tmp_path / "south"), "trial")
    assert south.verify(3, CONTENT, signed(tmp_path)) == "north"
    assert south.verify(0, CONTENT, south.sign(CONTENT)) == "south"


@pytest.mark.parametrize(
    ("subject", "own"),
    [
        (SERVER, {}),  # the server itself
        ("north", {"role": "project_admin"}),
        ("north", {"authority": "stranger"}),
        ("north", {"days": (-9, -1)}),
        ("north", {"days": (1, 9)}),
    ],
)
def test_others_are_no_sites(tmp_path: Path, subject: str, own: dict[str, str]) -> None:
    south = SiteCertificate(site_kit(tmp_path / "south"), "trial")
    proof = signed(tmp_path, subject, certificate(subject, **own))  # type: ignore[arg-type]
    with refused(MessageRefused, "foreign-key", "3"):
        south.verify(3, CONTENT, proof)


def test_a_signature_is_for_one_content_and_one_federation(tmp_path: Path) -> None:
    south = SiteCertificate(site_kit(tmp_path / "south"), "trial")
    other = SiteCertificate(site_kit(tmp_path / "south"), "another")
    proof = signed(tmp_path)
    for verifier, content in ((south, b"another key"), (other, CONTENT)):
        with refused(MessageRefused, "foreign-key"):
            verifier.verify(3, content, proof)


@pytest.mark.parametrize("cut", [0, 1, 5, 900, -1])
def test_damaged_proofs_are_refused(tmp_path: Path, cut: int) -> None:
    south = SiteCertificate(site_kit(tmp_path / "south"), "trial")
    with refused(MessageRefused, "foreign-key"):
        south.verify(3, CONTENT, signed(tmp_path)[:cut])


def test_a_kit_without_a_key_is_refused(tmp_path: Path) -> None:
    kit = site_kit(tmp_path / "south")
    (kit / "client.key").unlink()
    with refused(InvalidInput, "no-kit"):
        SiteCertificate(kit, "trial")
