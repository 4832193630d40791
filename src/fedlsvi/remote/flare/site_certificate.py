"""A site's identity on NVIDIA FLARE: the certificate in its kit, checked against its authority.

For secure sums the server passes the public keys of sites on to one another. So that it cannot put
its own in their place, each site signs its key with the RSA key of its kit (`startup/client.key`)
and sends its certificate along; the others check both against the authority in their own kits
(`startup/rootCA.pem`). The server's own certificate and those of administrators do not count.

    length | certificate | RSA signature
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from fedlsvi.config import FEWEST_SITES
from fedlsvi.remote.flare.revocation import Revoked
from fedlsvi.remote.flare.signing import no_kit
from fedlsvi.remote.flare.site_keys import fingerprint, normal
from fedlsvi.remote.identity import not_the_sites

log = logging.getLogger(__name__)

_LENGTH = struct.Struct("<H")
_LABEL = b"fedlsvi key of a site, 1\0"
_PSS = padding.PSS(padding.MGF1(hashes.SHA256()), hashes.SHA256.digest_size)


class SiteVerifier:
    """Checks that sites are who they say they are.

    Args:
        authority: The certificate of the authority.
        server: The server's name, whose certificate is no site's.
        federation: The federation's name: a signature is for no other.
        revoked: Certificates that count no more; None is none.
    """

    def __init__(
        self, authority: x509.Certificate, server: str, federation: str,
        revoked: Revoked | None = None,
    ) -> None:  # fmt: skip
        self._authority, self._server, self._revoked = authority, server, revoked
        self.label = _LABEL + federation.encode() + b"\0"

    @classmethod
    def of_server(cls, startup: Path, federation: str, revoked: Revoked) -> SiteVerifier:
        """With what the server's kit has."""
        own = x509.load_pem_x509_certificate((startup / "server.crt").read_bytes())
        root = x509.load_pem_x509_certificate((startup / "rootCA.pem").read_bytes())
        name = own.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value
        return cls(root, str(name), federation, revoked)

    def verify(self, first: int, content: bytes, proof: bytes) -> tuple[str, rsa.RSAPublicKey]:
        """The name in the certificate of the site that signed this content, and its key.

        Args:
            first: The site's first agent, for the error.
            content: What is signed.
            proof: What `SiteCertificate.sign` gave.
        """
        try:
            end = _LENGTH.size + _LENGTH.unpack_from(proof)[0]
            certificate = x509.load_der_x509_certificate(proof[_LENGTH.size : end])
            certificate.verify_directly_issued_by(self._authority)
            key = certificate.public_key()
            if not isinstance(key, rsa.RSAPublicKey):
                not_the_sites(first, "its certificate has the wrong type of key")
            key.verify(proof[end:], self.label + content, _PSS, hashes.SHA256())
        except InvalidSignature:
            not_the_sites(first, "the signature is wrong, or comes from another authority")
        except (ValueError, TypeError, struct.error, UnsupportedAlgorithm) as error:
            not_the_sites(first, f"its certificate cannot be read ({error})")
        now = datetime.now(UTC)
        if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
            not_the_sites(first, f"it was valid until {certificate.not_valid_after_utc.date()}")
        if self._revoked is not None and certificate in self._revoked:
            not_the_sites(first, "its certificate was revoked")
        names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        roles = certificate.subject.get_attributes_for_oid(x509.NameOID.UNSTRUCTURED_NAME)
        if roles or len(names) != 1 or names[0].value == self._server:
            whose = certificate.subject.rfc4514_string()
            not_the_sites(first, f"its certificate belongs to {whose!r}, which is not a site")
        return str(names[0].value), key


class SiteCertificate:
    """What a site of a federation signs with, and verifies others by (`SiteIdentity`).

    Args:
        startup: The folder `startup` of the site's kit.
        federation: The federation's name: a signature is for no other.
        peers: Name and fingerprint of the other sites' keys, as people have compared them; with
            any, only these sites are accepted, whatever the authority has signed.
        revoked: Certificates that count no more; None is none.
        fewest: How many sites must take part.
        admit: Called with the names of all sites before the first sum; may refuse them.
    """

    def __init__(
        self, startup: Path, federation: str, peers: Mapping[str, str] | None = None,
        revoked: Revoked | None = None, fewest: int = FEWEST_SITES,
        admit: Callable[[Sequence[str]], None] | None = None,
    ) -> None:  # fmt: skip
        self._peers, self.fewest, self._admit = normal(peers or {}), fewest, admit
        try:
            key = serialization.load_pem_private_key((startup / "client.key").read_bytes(), None)
            own = x509.load_pem_x509_certificate((startup / "client.crt").read_bytes())
            authority = x509.load_pem_x509_certificate((startup / "rootCA.pem").read_bytes())
            kit = json.loads((startup / "fed_client.json").read_bytes())
            server = str(kit["servers"][0]["identity"])
        except (OSError, ValueError, TypeError, LookupError, UnsupportedAlgorithm) as error:
            no_kit(startup, error)
        if not isinstance(key, rsa.RSAPrivateKey):
            no_kit(startup, TypeError("client.key is not an RSA key"))
        self._verifier = SiteVerifier(authority, server, federation, revoked)
        self._key, self._certificate = key, own.public_bytes(serialization.Encoding.DER)

    def sign(self, content: bytes) -> bytes:
        """The certificate, and a signature of this content."""
        signature = self._key.sign(self._verifier.label + content, _PSS, hashes.SHA256())
        return _LENGTH.pack(len(self._certificate)) + self._certificate + signature

    def verify(self, first: int, content: bytes, proof: bytes) -> str:
        """The name in the certificate of the site that signed this content."""
        name, key = self._verifier.verify(first, content, proof)
        pinned = self._peers.get(name)
        if self._peers and key != self._key.public_key():
            if pinned is None:
                not_the_sites(first, f"{name} is not listed under [peers] of this site's settings")
            if fingerprint(key) != pinned:
                not_the_sites(first, f"the key of {name} is not the one listed under [peers]")
        if not self._peers and key != self._key.public_key():
            log.warning(
                "nobody has compared the key of %s: who signs certificates could have made it. "
                "List the keys of all sites under [peers]", name,
                extra={"code": "peer-not-pinned"},
            )  # fmt: skip
        return name

    def admit(self, names: Sequence[str]) -> None:
        """As the site's account of its data allows it."""
        if self._admit is not None:
            self._admit(names)
