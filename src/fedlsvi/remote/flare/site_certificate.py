"""A site's identity on NVIDIA FLARE: the certificate in its kit, checked against its authority.

For secure sums the server passes the public keys of sites on to one another. So that it cannot put
its own in their place, each site signs its key with the RSA key of its kit (`startup/client.key`)
and sends its certificate along; the others check both against the authority in their own kits
(`startup/rootCA.pem`). The server's own certificate and those of administrators do not count.

    length | certificate | RSA signature
"""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from fedlsvi.remote.flare.signing import no_kit
from fedlsvi.remote.identity import not_the_sites

_LENGTH = struct.Struct("<H")
_LABEL = b"fedlsvi key of a site, 1\0"
_PSS = padding.PSS(padding.MGF1(hashes.SHA256()), hashes.SHA256.digest_size)


class SiteCertificate:
    """What a site of a federation signs with, and verifies others by (`SiteIdentity`).

    Args:
        startup: The folder `startup` of the site's kit.
        federation: The federation's name: a signature is for no other.
    """

    def __init__(self, startup: Path, federation: str) -> None:
        self._label = _LABEL + federation.encode() + b"\0"
        try:
            key = serialization.load_pem_private_key((startup / "client.key").read_bytes(), None)
            own = x509.load_pem_x509_certificate((startup / "client.crt").read_bytes())
            self._authority = x509.load_pem_x509_certificate((startup / "rootCA.pem").read_bytes())
            kit = json.loads((startup / "fed_client.json").read_bytes())
            self._server = str(kit["servers"][0]["identity"])
        except (OSError, ValueError, TypeError, LookupError, UnsupportedAlgorithm) as error:
            no_kit(startup, error)
        if not isinstance(key, rsa.RSAPrivateKey):
            no_kit(startup, TypeError("client.key is not an RSA key"))
        self._key, self._certificate = key, own.public_bytes(serialization.Encoding.DER)

    def sign(self, content: bytes) -> bytes:
        """The certificate, and a signature of this content."""
        signature = self._key.sign(self._label + content, _PSS, hashes.SHA256())
        return _LENGTH.pack(len(self._certificate)) + self._certificate + signature

    def verify(self, first: int, content: bytes, proof: bytes) -> str:
        """The name in the certificate of the site that signed this content."""
        try:
            end = _LENGTH.size + _LENGTH.unpack_from(proof)[0]
            certificate = x509.load_der_x509_certificate(proof[_LENGTH.size : end])
            certificate.verify_directly_issued_by(self._authority)
            key = certificate.public_key()
            if not isinstance(key, rsa.RSAPublicKey):
                not_the_sites(first, "its certificate has the wrong type of key")
            key.verify(proof[end:], self._label + content, _PSS, hashes.SHA256())
        except InvalidSignature:
            not_the_sites(first, "the signature is wrong, or comes from another authority")
        except (ValueError, TypeError, struct.error, UnsupportedAlgorithm) as error:
            not_the_sites(first, f"its certificate cannot be read ({error})")
        now = datetime.now(UTC)
        if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
            not_the_sites(first, f"it was valid until {certificate.not_valid_after_utc.date()}")
        names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        roles = certificate.subject.get_attributes_for_oid(x509.NameOID.UNSTRUCTURED_NAME)
        if roles or len(names) != 1 or names[0].value == self._server:
            whose = certificate.subject.rfc4514_string()
            not_the_sites(first, f"its certificate belongs to {whose!r}, which is not a site")
        return str(names[0].value)
