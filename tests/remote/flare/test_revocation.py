"""Certificates that were revoked: server and sites refuse them, and nobody can take a list back."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from parties import FEDERATION, SITES

from expecting import refused
from fedlsvi.errors import InvalidInput, MessageRefused, TransportError
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.flare import job as flare
from fedlsvi.remote.flare import project as projects
from fedlsvi.remote.flare import revocation, site_keys
from fedlsvi.remote.flare.demo import free_port
from fedlsvi.remote.flare.provision import init
from fedlsvi.remote.flare.revocation import Revoked
from fedlsvi.remote.flare.signing import Signer, Verifier
from fedlsvi.remote.flare.site_certificate import SiteCertificate, SiteVerifier
from patience import PATIENCE
from repeats import only_ci

JOB = Federation("wards", episodes=40, horizon=20, dim=12, one_hot=True)
HOST = "fl.example.org"
CONTENT = b"a key of secure sums"


@pytest.fixture(scope="module")
def provisioned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("organiser") / "project"
    return init(folder, JOB, {"north": {}, "south": {}, "west": {}}, host=HOST)


@pytest.fixture
def project(provisioned: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(provisioned, tmp_path / "project", symlinks=True))


def seen_by(project: Path, name: str, offered: Any) -> Revoked:
    """What a party of the project refuses after a job with this list."""
    kit = project / "kits" / name
    return Revoked.of(kit / "startup", kit / "fedlsvi", offered)


def of(project: Path, name: str, revoked: Revoked | None = None) -> SiteCertificate:
    return SiteCertificate(project / "kits" / name / "startup", JOB.name, revoked=revoked)


def test_sites_refuse_the_key_of_a_site_that_was_revoked(project: Path) -> None:
    proof = of(project, "north").sign(CONTENT)
    revocation.revoke(project, "north")
    south = of(project, "south", seen_by(project, "south", revocation.listed(project)))
    with refused(MessageRefused, "foreign-key", "revoked"):
        south.verify(0, CONTENT, proof)
    assert south.verify(0, CONTENT, of(project, "west").sign(CONTENT)) == "west"


def test_sites_refuse_a_server_that_was_revoked(project: Path) -> None:
    startup = project / "kits" / HOST / "startup"
    proof = Signer(startup, JOB.name, "7").sign("hello", "south", b"")
    revocation.revoke(project, HOST)
    about = (project / "kits" / "south" / "startup", JOB.name, "7", "south")
    Verifier(*about, seen_by(project, "south", None)).check("hello", b"", proof)
    later = Verifier(*about, seen_by(project, "south", revocation.listed(project)))
    with refused(MessageRefused, "certificate-revoked"):
        later.check("hello", b"", proof)


def test_a_list_grows_and_cannot_be_taken_back(project: Path) -> None:
    """A job with an older list, or without one, changes nothing; a new key is another one."""
    revocation.revoke(project, "north")
    first = revocation.listed(project)
    gone = [of(project, name).sign(CONTENT) for name in ("north", "west")]
    revocation.revoke(project, "west")
    seen_by(project, "south", revocation.listed(project))
    for offered in (first, None, revocation.listed(project)):
        south = of(project, "south", seen_by(project, "south", offered))
        for proof in gone:
            with refused(MessageRefused, "foreign-key", "revoked"):
                south.verify(0, CONTENT, proof)
    wanted, _ = site_keys.request("north", project.with_name("mine"))
    site_keys.sign(project, wanted)
    site_keys.accept(project.with_name("mine"), project / "kits" / "north")
    assert south.verify(0, CONTENT, of(project, "north").sign(CONTENT)) == "north"


def foreign(project: Path) -> str:
    """A list of somebody who uses the authority's name."""
    root = x509.load_pem_x509_certificate(
        (project / "kits" / "south" / "startup" / "rootCA.pem").read_bytes()
    )
    now = datetime.now(UTC)
    made = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(root.subject)
        .last_update(now)
        .next_update(now + timedelta(days=1))
        .add_extension(x509.CRLNumber(99), critical=False)
    )
    key = rsa.generate_private_key(65537, 2048)
    return made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def test_a_list_that_the_authority_has_not_signed_is_refused(project: Path) -> None:
    revocation.revoke(project, "north")
    text = revocation.listed(project)
    assert text is not None
    for bad in (foreign(project), "", "nonsense", text[:-60], 3, [text], text * 2_000):
        with refused(MessageRefused, "bad-revocations"):
            seen_by(project, "south", bad)
        assert not (project / "kits" / "south" / "fedlsvi").exists()
    with refused(InvalidInput, "unknown-site"):
        revocation.revoke(project, "east")


def test_a_later_list_without_a_certificate_is_refused(project: Path) -> None:
    """It was refused while the process ran, and valid again after a restart."""
    revocation.revoke(project, "north")
    north = seen_by(project, "south", revocation.listed(project))
    state = project / "provisioned" / JOB.name / "state" / "cert.json"
    kept = json.loads(state.read_text())
    root: Any = load_pem_private_key(kept["root_pri_key"].encode(), None)
    authority = x509.load_pem_x509_certificate(kept["root_cert"].encode())
    now = datetime.now(UTC)
    empty = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.subject)
        .last_update(now)
        .next_update(now + timedelta(days=9))
        .add_extension(x509.CRLNumber(9), critical=False)
        .sign(root, hashes.SHA256())
    )
    with refused(MessageRefused, "bad-revocations"):
        seen_by(project, "south", empty.public_bytes(Encoding.PEM).decode())
    own = x509.load_pem_x509_certificate(
        (project / "kits" / "north" / "startup" / "client.crt").read_bytes()
    )
    assert own in north
    assert own in seen_by(project, "south", None)  # after a restart


def test_the_server_refuses_a_site_that_was_revoked(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor can a site show the certificate of another, or one that it showed in another job."""
    engine = SimpleNamespace(fl_ctx=SimpleNamespace(get_job_id=lambda: "7"))
    monkeypatch.setattr(flare, "collab", engine)
    revocation.revoke(project, "north")
    startup = project / "kits" / HOST / "startup"
    revoked = seen_by(project, HOST, revocation.listed(project))
    known = SiteVerifier.of_server(startup, JOB.name, revoked)

    def greet(name: str, proof: Any) -> int:
        site = SimpleNamespace(name=name, hello=lambda: {"agents": 2, "proof": proof})
        asked = type("Site", (), {"__call__": lambda self, **options: site, "name": name})()
        return flare._greet(asked, 1000, [], known)

    mine = of(project, "south").sign(flare._present())
    assert greet("south", mine) == 2
    engine.fl_ctx.get_job_id = lambda: "8"
    for name, proof in (
        ("north", of(project, "north").sign(flare._present())),
        ("north", of(project, "south").sign(flare._present())),
        ("south", mine),
        ("south", None),
        ("south", b"\xff\xff"),
    ):
        with refused(TransportError, "site-revoked", name):
            greet(name, proof)


@only_ci
@pytest.mark.filterwarnings("ignore")  # FLARE's threads use what its libraries call deprecated
def test_a_job_with_a_site_that_was_revoked_ends_and_names_it(tmp_path: Path) -> None:
    world = {"agents": 1, "env": {"name": "random-linear", "horizon": 5, "dim": 8}}
    folder = projects.init(
        tmp_path / "project", FEDERATION, dict.fromkeys(SITES, world), port=free_port()
    )
    revocation.revoke(folder, SITES[0])
    try:
        projects.launch(folder)
        number = projects.start(folder, PATIENCE)
        ended = projects.wait(folder, number, PATIENCE)
        found = projects.outcome(folder, number, ended)
    finally:
        projects.stop(folder, kill=True)
        projects.clean(folder)
    assert ended != projects.COMPLETED
    assert SITES[0] in found["reason"]
    assert "revoked" in found["reason"]
