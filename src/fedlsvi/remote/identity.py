"""Who a site is to the other sites: it signs its keys, and verifies theirs.

The server passes keys on between sites, so a site must not take its word for whose they are. On
NVIDIA FLARE the certificates of the kits say it (`remote.flare.site_certificate`). Elsewhere a key
pair of Ed25519 is made for each site and run by whoever starts the run, and every site is given the
public keys of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from fedlsvi.config import FEWEST_SITES
from fedlsvi.errors import MessageRefused
from fedlsvi.privacy.masks import crypto


class SiteIdentity(Protocol):
    """What a site signs with, and what it verifies others by.

    Attributes:
        fewest: How many sites must take part, for this one.
    """

    @property
    def fewest(self) -> int: ...

    def sign(self, content: bytes) -> bytes:
        """The proof that this content is this site's."""
        ...

    def verify(self, first: int, content: bytes, proof: bytes) -> str:
        """The name of the site, whose agents begin with this one, that made this content.

        Raises:
            MessageRefused: No site of this federation did.
        """
        ...

    def admit(self, names: Sequence[str]) -> None:
        """Take part in secure sums of these sites, this one included.

        Raises:
            MessageRefused: This site does not.
        """
        ...


def not_the_sites(first: int, why: str) -> NoReturn:
    """Refuse a key."""
    raise MessageRefused(
        f"the key of agents from {first} on is not signed by their site: {why}", code="foreign-key"
    ) from None


@dataclass(frozen=True)
class RunIdentity:
    """A key pair that was made for one site and one run.

    Attributes:
        private: The site's own key of Ed25519.
        roll: First agent → public key, of all sites.
        fewest: How many sites must take part.
    """

    private: bytes = field(repr=False)
    roll: Mapping[int, bytes]
    fewest: int = FEWEST_SITES

    def sign(self, content: bytes) -> bytes:
        """A signature of 64 bytes."""
        key = crypto().ed25519.Ed25519PrivateKey.from_private_bytes(self.private)
        signature: bytes = key.sign(content)
        return signature

    def verify(self, first: int, content: bytes, proof: bytes) -> str:
        """Check it with the key that this site was given."""
        if first not in self.roll:
            not_the_sites(first, "no site begins there")
        key = crypto().ed25519.Ed25519PublicKey.from_public_bytes(self.roll[first])
        try:
            key.verify(proof, content)
        except Exception:  # the library's InvalidSignature, which is imported with it
            not_the_sites(first, "the signature is wrong")
        return f"agents from {first} on"

    def admit(self, names: Sequence[str]) -> None:
        """All sites of a run have one owner, or are those of a study that people have agreed on."""


def run_identities(firsts: Sequence[int]) -> list[RunIdentity]:
    """New key pairs for sites whose agents begin with these."""
    keys = [crypto().ed25519.Ed25519PrivateKey.generate() for _ in firsts]
    roll = {
        first: key.public_key().public_bytes_raw() for first, key in zip(firsts, keys, strict=True)
    }
    return [RunIdentity(key.private_bytes_raw(), roll) for key in keys]
