"""Certificates that no longer count although they have not ended: a list that the authority signs.

    revoked.crl    in the project; the job carries it, and every party keeps the latest one that
                   it has seen, in `fedlsvi/` of its kit

It is an X.509 revocation list, so other tools can read it. A list only grows, and its number with
it: a job that comes with an older one, or with none, changes nothing at a party that has seen a
later one, and a later one that lacks a certificate is refused. Sites refuse a server on it, and
keys of sites on it in secure sums; the server refuses a job in which such a site takes part.
FLARE's own connections do not know the list: who holds a revoked key can still reach its port,
until `fedlsvi federate renew` makes another authority.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization

from fedlsvi.errors import InvalidInput, MessageRefused
from fedlsvi.remote.flare.site_keys import CERTIFICATE, only_folder
from fedlsvi.storage import files

LIST = "revoked.crl"
LONGEST = 1_000_000
"""Characters of a list, some ten thousand certificates."""
DAYS = 3650
_PEM = serialization.Encoding.PEM


class Revoked:
    """The certificates that a party refuses.

    Args:
        authority: The certificate of the authority in its kit.
        folder: Where it keeps the latest list that it has seen.
        offered: The list of a job, as text.

    Raises:
        MessageRefused: The authority has not signed the list of the job.
    """

    def __init__(self, authority: x509.Certificate, folder: Path, offered: Any = None) -> None:
        self._serials: frozenset[int] = frozenset()
        path, number = folder / LIST, -1
        if folder.is_dir() and files.exists(files.inside(folder, LIST)):
            number, self._serials = _read(files.read(path), authority)
        if offered is None:
            return
        if not isinstance(offered, str) or len(offered) > LONGEST:
            _refuse("it is no text, or too long")
        later, serials = _read(offered.encode(), authority)
        if later > number:
            if not self._serials <= serials:
                _refuse("it lacks certificates that an earlier list of the authority revoked")
            self._serials = serials
            files.make_private(folder)
            files.write(path, offered.encode())

    @classmethod
    def of(cls, startup: Path, folder: Path, offered: Any = None) -> Revoked:
        """Of the party whose folder `startup` this is."""
        root = x509.load_pem_x509_certificate((startup / "rootCA.pem").read_bytes())
        return cls(root, folder, offered)

    def __contains__(self, certificate: x509.Certificate) -> bool:
        """Whether this certificate counts no more."""
        return certificate.serial_number in self._serials


def revoke(project: str | Path, name: str) -> Path:
    """Put the certificate that a party has now on the list of a project; the list's path. The next
    job tells all parties.

    Args:
        project: The folder that `fedlsvi federate init` wrote, with the key of the authority.
        name: Of a site, or of the server.
    """
    where = Path(project)
    state = files.inside(where, "provisioned", only_folder(where), "state", "cert.json")
    kept = json.loads(files.read(state))
    if name not in kept or "cert" not in kept[name]:
        raise InvalidInput(f"{name!r} is no party of {project}", code="unknown-site")
    authority = x509.load_pem_x509_certificate(kept["root_cert"].encode())
    root: Any = serialization.load_pem_private_key(kept["root_pri_key"].encode(), None)
    certificates = [x509.load_pem_x509_certificate(kept[name]["cert"].encode())]
    kit = files.inside(where, "kits", name, "startup", CERTIFICATE)
    if files.exists(kit):  # FLARE's state and the kit may have different ones after a signature
        certificates.append(x509.load_pem_x509_certificate(files.read(kit)))
    path, now = files.inside(where, LIST), datetime.now(UTC).replace(microsecond=0)
    number, serials = _read(files.read(path), authority) if files.exists(path) else (0, frozenset())
    made = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.subject)
        .last_update(now)
        .next_update(now + timedelta(days=DAYS))
        .add_extension(x509.CRLNumber(number + 1), critical=False)
    )
    for serial in sorted(serials | {certificate.serial_number for certificate in certificates}):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
        made = made.add_revoked_certificate(entry.build())
    files.write(path, made.sign(root, hashes.SHA256()).public_bytes(_PEM))
    return path


def listed(project: str | Path) -> str | None:
    """The list of a project, as a job carries it; None where nothing was revoked."""
    path = files.inside(Path(project), LIST)
    return files.read(path).decode("ascii") if files.exists(path) else None


def _read(pem: bytes, authority: x509.Certificate) -> tuple[int, frozenset[int]]:
    """The number of a list and what is on it."""
    try:
        made = x509.load_pem_x509_crl(pem)
        key: Any = authority.public_key()
        if made.issuer != authority.subject or not made.is_signature_valid(key):
            _refuse("the authority in this party's kit has not signed it")
        number = made.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
        return number, frozenset(entry.serial_number for entry in made)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.ExtensionNotFound) as error:
        _refuse(f"it cannot be read ({error})")


def _refuse(why: str) -> NoReturn:
    raise MessageRefused(
        f"the list of revoked certificates is refused: {why}", code="bad-revocations"
    ) from None
