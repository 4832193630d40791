"""Requests that only the server of a federation can have made.

FLARE lets every party of a job call every other one. So that a site answers nobody but the server,
whatever the engine lets through, the server signs each request, and a site checks the signature
against the authority in its own kit (`startup/rootCA.pem`). What is signed names the purpose, the
federation, the job and the site: a signature is of no use for anything else. A request that is
delivered twice is recognised by its number (`Endpoint`).

The RSA key of the server's kit would take a noticeable part of an exchange (`benchmarks/signing`).
So it signs once for each job, an Ed25519 key that exists in the server's process only; that key
signs the requests. Each carries both:

    length | credential: length, certificate, public key, RSA signature | Ed25519 signature
"""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedlsvi.errors import InvalidInput, MessageRefused
from fedlsvi.remote.flare.revocation import Revoked

_LABEL = b"fedlsvi request of the server, 1"
_LENGTH = struct.Struct("<Q")
_PREFIX = struct.Struct("<H")
_KEY_BYTES = 32
_PSS = padding.PSS(padding.MGF1(hashes.SHA256()), hashes.SHA256.digest_size)

LONGEST_PROOF = 16_384
"""Bytes of a certificate and the signatures; kits of FLARE need about 1,200."""


def _signed(purpose: str, federation: str, job: str, site: str, content: bytes) -> bytes:
    """The bytes that are signed; each part is preceded by its length."""
    parts = (_LABEL, purpose.encode(), federation.encode(), job.encode(), site.encode(), content)
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


class Signer:
    """Signs the server's requests.

    Args:
        startup: The folder `startup` of the server's kit.
        federation: The federation's name.
        job: FLARE's number of the job.
    """

    def __init__(self, startup: Path, federation: str, job: str) -> None:
        self.federation, self.job = federation, job
        try:
            key = serialization.load_pem_private_key((startup / "server.key").read_bytes(), None)
            certificate = _certificate(startup / "server.crt")
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
            no_kit(startup, error)
        if not isinstance(key, rsa.RSAPrivateKey):
            no_kit(startup, TypeError("server.key is not an RSA key"))
        self._key = Ed25519PrivateKey.generate()
        public = self._key.public_key().public_bytes_raw()
        vouched = key.sign(_signed("key", federation, job, "", public), _PSS, hashes.SHA256())
        der = certificate.public_bytes(serialization.Encoding.DER)
        credential = _PREFIX.pack(len(der)) + der + public + vouched
        self._credential = _PREFIX.pack(len(credential)) + credential

    def sign(self, purpose: str, site: str, content: bytes) -> bytes:
        """The proof that the server makes this request to this site."""
        signed = _signed(purpose, self.federation, self.job, site, content)
        return self._credential + self._key.sign(signed)


class Verifier:
    """Checks at a site that a request is the server's.

    Args:
        startup: The folder `startup` of the site's kit: its authority, and the server's name.
        federation: The federation's name.
        job: FLARE's number of the job.
        site: The site's name.
        revoked: Certificates that count no more; None is none.
    """

    def __init__(
        self, startup: Path, federation: str, job: str, site: str, revoked: Revoked | None = None
    ) -> None:
        self.federation, self.job, self.site = federation, job, site
        self._revoked = revoked
        self._known: tuple[bytes, Ed25519PublicKey, datetime] | None = None
        try:
            self._authority = _certificate(startup / "rootCA.pem")
            kit = json.loads((startup / "fed_client.json").read_bytes())
            self.server = str(kit["servers"][0]["identity"])
        except (OSError, ValueError, TypeError, LookupError, UnsupportedAlgorithm) as error:
            no_kit(startup, error)

    def check(self, purpose: str, content: bytes, proof: bytes) -> None:
        """Refuse a request that the server did not sign for this purpose, job and site.

        Raises:
            MessageRefused: It is not the server's.
        """
        if not isinstance(content, bytes) or not isinstance(proof, bytes) or not proof:
            _refuse("unsigned", "it carries no signature")
        if not _PREFIX.size < len(proof) <= LONGEST_PROOF:
            _refuse("unsigned", f"a signature cannot have {len(proof)} bytes")
        credential, signature = _cut(proof)
        try:
            key = self._key_of_job(credential)
            key.verify(signature, _signed(purpose, self.federation, self.job, self.site, content))
        except InvalidSignature:
            _refuse("bad-signature", "the server signed something else, or nothing")
        except (ValueError, TypeError, struct.error, UnsupportedAlgorithm) as error:
            _refuse("unsigned", f"its certificate cannot be read ({error})")

    def _key_of_job(self, credential: bytes) -> Ed25519PublicKey:
        """The key for which the server vouches; the last one that was checked is remembered."""
        now = datetime.now(UTC)
        if self._known is not None and self._known[0] == credential and now <= self._known[2]:
            return self._known[1]
        der, rest = _cut(credential)
        public, vouched = rest[:_KEY_BYTES], rest[_KEY_BYTES:]
        certificate = x509.load_der_x509_certificate(der)
        signed = _signed("key", self.federation, self.job, "", public)
        self._key_of_server(certificate, now).verify(vouched, signed, _PSS, hashes.SHA256())
        key = Ed25519PublicKey.from_public_bytes(public)
        until = min(certificate.not_valid_after_utc, self._authority.not_valid_after_utc)
        self._known = credential, key, until
        return key

    def _key_of_server(self, certificate: x509.Certificate, now: datetime) -> rsa.RSAPublicKey:
        """The key of a certificate that the authority gave to the server."""
        try:
            certificate.verify_directly_issued_by(self._authority)
        except (InvalidSignature, ValueError, TypeError):
            _refuse("foreign-authority", "its certificate comes from another authority")
        names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        roles = certificate.subject.get_attributes_for_oid(x509.NameOID.UNSTRUCTURED_NAME)
        if roles or [name.value for name in names] != [self.server]:
            whose = certificate.subject.rfc4514_string()
            _refuse("not-the-server", f"its certificate belongs to {whose!r}, not {self.server!r}")
        for one in (certificate, self._authority):
            if not one.not_valid_before_utc <= now <= one.not_valid_after_utc:
                ended = one.not_valid_after_utc.date()
                _refuse("certificate-expired", f"its certificate was valid until {ended}")
        if self._revoked is not None and certificate in self._revoked:
            _refuse("certificate-revoked", "its certificate was revoked")
        key = certificate.public_key()
        if not isinstance(key, rsa.RSAPublicKey):
            _refuse("not-the-server", "its certificate has the wrong type of key")
        return key


def _cut(data: bytes) -> tuple[bytes, bytes]:
    """What a length precedes, and the rest."""
    end = _PREFIX.size + _PREFIX.unpack_from(data)[0]
    return data[_PREFIX.size : end], data[end:]


def _certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def _refuse(code: str, why: str) -> NoReturn:
    raise MessageRefused(f"a request does not come from the server: {why}", code=code) from None


def no_kit(startup: Path, error: Exception) -> NoReturn:
    """Refuse a folder that lacks the keys of a party."""
    raise InvalidInput(
        f"{startup} is not part of a kit written by `fedlsvi federate init` ({error})",
        code="no-kit",
        hint="start this party with startup/start.sh of its kit",
    ) from None
