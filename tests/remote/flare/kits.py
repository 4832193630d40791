"""Kits as FLARE provisions them, as far as signatures need them, and sites without an engine."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fedlsvi.config import Parameters
from fedlsvi.protocol.messages import Start
from fedlsvi.protocol.passes import connect
from fedlsvi.protocol.transport import InProcess

SERVER, JOB = "fl.example.org", "job-1"


@cache
def key(name: str) -> rsa.RSAPrivateKey:
    """One key for each name: they take a while to make."""
    return rsa.generate_private_key(65537, 2048)


def certificate(
    subject: str, authority: str = "authority", days: tuple[int, int] = (-1, 360), role: str = ""
) -> x509.Certificate:
    """The certificate that an authority gives to somebody, or to itself."""
    names = [x509.NameAttribute(x509.NameOID.COMMON_NAME, subject)]
    names += [x509.NameAttribute(x509.NameOID.UNSTRUCTURED_NAME, role)] if role else []
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "trial")])
    own = issuer if subject == authority else x509.Name(names)
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        issuer, own, key(subject).public_key(), x509.random_serial_number(),
        now + timedelta(days=days[0]), now + timedelta(days=days[1]),
    )  # fmt: skip
    return builder.sign(key(authority), hashes.SHA256())


def server_kit(folder: Path, subject: str = SERVER, own: x509.Certificate | None = None) -> Path:
    """The startup folder of somebody who signs as the server would."""
    folder.mkdir(parents=True, exist_ok=True)
    pem = (own or certificate(subject)).public_bytes(Encoding.PEM)
    (folder / "server.crt").write_bytes(pem)
    kinds = Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
    (folder / "server.key").write_bytes(key(subject).private_bytes(*kinds))
    return folder


def site_kit(folder: Path, subject: str = "south", own: x509.Certificate | None = None) -> Path:
    """The startup folder of a site, or of somebody who signs as one would."""
    folder.mkdir(parents=True, exist_ok=True)
    pem = (own or certificate(subject)).public_bytes(Encoding.PEM)
    (folder / "client.crt").write_bytes(pem)
    kinds = Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
    (folder / "client.key").write_bytes(key(subject).private_bytes(*kinds))
    root = certificate("authority", "authority").public_bytes(Encoding.PEM)
    (folder / "rootCA.pem").write_bytes(root)
    (folder / "fed_client.json").write_text(json.dumps({"servers": [{"identity": SERVER}]}))
    return folder


def first_start(p: Parameters) -> Start:
    """What the server of a run sends first."""
    return connect(p, InProcess([], p.trigger, p.overshoot)).server.parameters()


def engine(kit: Path, site: str = "south", caller: str = "server", job: str = JOB) -> Any:
    """What FLARE tells a site about itself and about a call."""
    workspace = SimpleNamespace(
        get_root_dir=lambda: kit,
        get_site_config_dir=lambda: kit,
        get_startup_kit_dir=lambda: site_kit(kit / "startup"),
    )
    context = SimpleNamespace(get_job_id=lambda: job)
    server = SimpleNamespace(signal=lambda frame: None)
    return SimpleNamespace(
        workspace=workspace, caller=caller, site_name=site, fl_ctx=context,
        server=lambda **options: server,
    )  # fmt: skip
