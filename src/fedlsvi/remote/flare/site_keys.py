"""Keys that a site makes itself, so that nobody else ever has them.

    client.key        the site's private key; made at the site, it stays there
    NAME.request      the public key, signed by the private one (PKCS #10): for the organiser

The organiser signs the request with the authority of the project and puts the certificate into the
site's kit, in place of key and certificate that NVIDIA FLARE made for it. The site joins its key
with the kit. The authority can still give a certificate in the site's name to somebody else; so
people compare fingerprints over another channel, and a site that lists those of the others under
[peers] of its settings accepts no other keys in secure sums (`SiteCertificate`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from fedlsvi.errors import FolderExists, InvalidInput
from fedlsvi.remote.federation import LETTERS, NAME
from fedlsvi.storage import files

KEY, CERTIFICATE, REQUEST = "client.key", "client.crt", ".request"
KEY_BITS = 3072
FEWEST_BITS = 2048
_PEM = serialization.Encoding.PEM


def fingerprint(key: Any) -> str:
    """SHA-256 of a public key, in groups that people can read to each other."""
    der = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    digest = hashes.Hash(hashes.SHA256())
    digest.update(der)
    text = digest.finalize().hex()
    return " ".join(text[i : i + 4] for i in range(0, len(text), 4))


def request(name: str, folder: str | Path) -> tuple[Path, str]:
    """Make a key and the request for its certificate; the request's path, and the fingerprint."""
    if not NAME.fullmatch(name):
        raise InvalidInput(f"the name of a site must be {LETTERS}, got {name!r}", code="bad-site")
    where = Path(folder)
    files.make_private(where)
    path, wanted = files.inside(where, KEY), files.inside(where, name + REQUEST)
    if path.exists() or wanted.exists():
        raise FolderExists(f"{where} has a key already: choose another folder for a new one")
    key = rsa.generate_private_key(65537, KEY_BITS)
    private = key.private_bytes(
        _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write_private(path, private)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signed = x509.CertificateSigningRequestBuilder().subject_name(subject)
    files.write(wanted, signed.sign(key, hashes.SHA256()).public_bytes(_PEM))
    return wanted, fingerprint(key.public_key())


def sign(project: str | Path, request_file: str | Path) -> tuple[str, str]:
    """Give a site's own key a certificate, and forget the key that was made for it here; the site's
    name and the fingerprint."""
    path = Path(request_file)
    try:
        wanted = x509.load_pem_x509_csr(files.read(path))
        good = wanted.is_signature_valid
        key = wanted.public_key()
        names = wanted.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InvalidInput(
            f"{path} is not a request made by `fedlsvi federate join` ({error})", code="bad-request"
        ) from None
    strong = isinstance(key, rsa.RSAPublicKey) and key.key_size >= FEWEST_BITS
    if not good or not strong or len(names) != 1:
        raise InvalidInput(
            f"{path} is not signed by the key in it, or the key is no RSA key of at least "
            f"{FEWEST_BITS} bits: ask the site for another request",
            code="bad-request",
        )
    name = str(names[0].value)
    kits = files.inside(Path(project), "kits")
    startup = files.inside(kits, name, "startup") if NAME.fullmatch(name) else kits / "-"
    if not (startup / "fed_client.json").is_file():
        raise InvalidInput(
            f"{path} is of {name!r}, which is not a site of {project}", code="unknown-site"
        )
    state = files.inside(Path(project), "provisioned", only_folder(project), "state", "cert.json")
    kept = json.loads(files.read(state))
    authority = x509.load_pem_x509_certificate(kept["root_cert"].encode())
    root = serialization.load_pem_private_key(kept["root_pri_key"].encode(), None)
    before = x509.load_pem_x509_certificate(files.read(files.inside(startup, CERTIFICATE)))
    certificate = _certificate(before, key, authority, root).public_bytes(_PEM)
    files.write(files.inside(startup, CERTIFICATE), certificate)
    files.inside(startup, KEY).unlink(missing_ok=True)
    kept[name] = {"cert": certificate.decode(), "pri_key": ""}
    files.write(state, json.dumps(kept).encode())
    return name, fingerprint(key)


def accept(folder: str | Path, kit: str | Path) -> tuple[str, str]:
    """Join a site's own key with its kit; the fingerprints of the site and of the authority."""
    key = _private(files.inside(Path(folder), KEY))
    startup = files.inside(Path(kit), "startup")
    try:
        certificate = x509.load_pem_x509_certificate(files.read(startup / CERTIFICATE))
        authority = x509.load_pem_x509_certificate(files.read(startup / "rootCA.pem"))
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise InvalidInput(
            f"{startup} holds no certificate of its authority ({error}): ask the organiser for the "
            "kit again",
            code="no-kit",
        ) from None
    own = fingerprint(key.public_key())
    if fingerprint(certificate.public_key()) != own:
        raise InvalidInput(
            f"the certificate in {startup} is for another key than the one in {folder}: the "
            "organiser has not signed this site's request, or has signed another",
            code="other-key",
        )
    target = files.inside(startup, KEY)
    if target.exists():
        target.unlink()
    _write_private(target, files.read(files.inside(Path(folder), KEY)))
    return own, fingerprint(authority.public_key())


def fingerprints(project: str | Path) -> dict[str, tuple[str, bool]]:
    """For each site of a project the fingerprint of its key, and whether the key was made there."""
    state = files.inside(Path(project), "provisioned", only_folder(project), "state", "cert.json")
    kept = json.loads(files.read(state))
    found = {}
    for name in sorted(kept):
        if (Path(project) / "kits" / name / "startup" / "fed_client.json").is_file():
            certificate = x509.load_pem_x509_certificate(kept[name]["cert"].encode())
            found[name] = fingerprint(certificate.public_key()), not kept[name]["pri_key"]
    return found


def normal(peers: Mapping[str, str]) -> dict[str, str]:
    """Fingerprints as `fingerprint` writes them, however people have copied them."""
    plain = {name: "".join(text.lower().replace(":", " ").split()) for name, text in peers.items()}
    return {name: " ".join(t[i : i + 4] for i in range(0, len(t), 4)) for name, t in plain.items()}


def _certificate(
    before: x509.Certificate, key: Any, authority: x509.Certificate, root: Any
) -> x509.Certificate:
    """The same certificate as before, for another key."""
    now = datetime.now(UTC).replace(microsecond=0)
    made = (
        x509.CertificateBuilder()
        .subject_name(before.subject)
        .issuer_name(authority.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(max(before.not_valid_before_utc, now))
        .not_valid_after(before.not_valid_after_utc)
    )
    for extension in before.extensions:
        value: Any = extension.value
        if isinstance(value, x509.SubjectKeyIdentifier):
            value = x509.SubjectKeyIdentifier.from_public_key(key)
        made = made.add_extension(value, extension.critical)
    return made.sign(root, hashes.SHA256())


def only_folder(project: str | Path) -> str:
    """The name under which FLARE keeps its state."""
    folders = sorted((Path(project) / "provisioned").glob("*/state/cert.json"))
    if len(folders) != 1:
        raise InvalidInput(
            f"{project} has no key of its authority: signing needs the organiser's project folder",
            code="no-authority",
        )
    return folders[0].parents[1].name


def _private(path: Path) -> rsa.RSAPrivateKey:
    try:
        key = serialization.load_pem_private_key(files.read(path), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InvalidInput(f"{path} is not a private key ({error})", code="no-key") from None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise InvalidInput(f"{path} is not an RSA key", code="no-key")
    return key


def _write_private(path: Path, data: bytes) -> None:
    """A new file that only its owner reads."""
    fd = files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        os.fchmod(fd, 0o600)
        files.write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
