"""The key with which a site signs its files; it is made at the site and stays there.

fedlsvi/.secrets/mail.json in the site's kit, for its owner alone
"""

from __future__ import annotations

import re
from pathlib import Path

from fedlsvi.errors import InvalidInput
from fedlsvi.privacy.masks import crypto
from fedlsvi.remote.mail.study import grouped
from fedlsvi.remote.site import HOME, SECRETS
from fedlsvi.storage import files
from fedlsvi.storage.schema import Shape, suspect

KEY = "mail.json"
_SHAPE: Shape = {"private": re.compile("[0-9a-f]{64}")}


class SiteKeyPair:
    """A key pair of Ed25519.

    Args:
        kit: The site's folder.
        make: Whether to make a key where there is none.

    Attributes:
        private: The private key.
        public: The public key, as 64 digits.
    """

    def __init__(self, kit: Path, make: bool = False) -> None:
        path = files.inside(kit, HOME, SECRETS, KEY)
        ed25519 = crypto().ed25519
        if files.exists(path):
            table = files.read_json(path, _SHAPE)
            with suspect(path):
                self.private = bytes.fromhex(table["private"])
        elif make:
            for folder in (path.parent.parent, path.parent):
                files.make_private(folder)
            self.private = ed25519.Ed25519PrivateKey.generate().private_bytes_raw()
            files.write_json(path, {"private": self.private.hex()}, private=True)
        else:
            raise InvalidInput(
                f"{kit} has no key: make one with `fedlsvi study key`, in the folder that the site "
                "keeps for its studies, and give the public one to the organiser",
                code="no-key",
            )
        key = ed25519.Ed25519PrivateKey.from_private_bytes(self.private)
        self.public: str = key.public_key().public_bytes_raw().hex()

    @property
    def fingerprint(self) -> str:
        """The public key, as people read it to each other."""
        return grouped(self.public)
