"""A signed file from a site: frames on disk, and for which study they are.

    FLSMAIL1 | bytes of the head | head | frames, each behind its length | signature of all of it

The head is JSON: what kind of file it is, the site, the whole study, the version of this package
and, with secure sums, the membership. Frames are those of `remote.codec`, so they are checked like
what arrives over a network. The signature is Ed25519, by the key that the study has for the site.
Nothing in a file can execute.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

from fedlsvi import __version__
from fedlsvi.checks import plural
from fedlsvi.errors import DamagedFile, InvalidInput, WrongVersion
from fedlsvi.privacy.masks import crypto
from fedlsvi.remote.codec import MOST_FRAMES, longest_reply
from fedlsvi.remote.mail.study import Study, difference
from fedlsvi.storage import files
from fedlsvi.storage.schema import LONGEST, Shape, check_shape, parse_json

MAGIC = b"FLSMAIL1"
_LENGTH = struct.Struct("<Q")
_LABEL = b"fedlsvi file of a study by mail, 1"
SIGNATURE_BYTES = 64

KEYS, CONTRIBUTION = "keys", "contribution"
"""Kinds of files, and how their names end."""

_SHAPE: Shape = {
    "kind": re.compile(f"{KEYS}|{CONTRIBUTION}"),
    "site": str,
    "study": dict,
    "columns": [str],
    "digest": re.compile("[0-9a-f]{64}"),
    "version": str,
    "membership": re.compile("([0-9a-f]{64})?"),
    "about": {str: int},
}


@dataclass(frozen=True)
class Letter:
    """What a site sends.

    Attributes:
        kind: `KEYS` or `CONTRIBUTION`.
        site: Its name.
        study: The table of the study it was written for.
        columns: The columns of the study's bins in their order.
        digest: The study's digest.
        version: Of this package.
        membership: Of secure sums: whose keys the masks belong to, as 64 digits; "" elsewhere.
        about: What the site says of its records, as numbers.
        frames: What it answers.
    """

    kind: str
    site: str
    study: dict[str, Any]
    columns: list[str]
    digest: str
    version: str
    membership: str
    about: dict[str, int]
    frames: tuple[bytes, ...]

    @classmethod
    def of(
        cls, study: Study, kind: str, site: str, frames: Sequence[bytes],
        about: Mapping[str, int], membership: str = "",
    ) -> Letter:  # fmt: skip
        """A file of this study and version."""
        return cls(
            kind, site, study.table(), list(study.bins or ()), study.digest, __version__,
            membership, dict(about), tuple(frames),
        )  # fmt: skip

    def seal(self, private: bytes) -> bytes:
        """The bytes of the file, signed."""
        head = {key: value for key, value in vars(self).items() if key != "frames"}
        text = json.dumps(head, sort_keys=True).encode()
        parts = [MAGIC, _LENGTH.pack(len(text)), text]
        for frame in self.frames:
            parts += [_LENGTH.pack(len(frame)), frame]
        content = b"".join(parts)
        key = crypto().ed25519.Ed25519PrivateKey.from_private_bytes(private)
        signature: bytes = key.sign(_LABEL + sha256(content).digest())
        return content + signature


@dataclass(frozen=True)
class Sealed:
    """A file as it arrived: what it says, where it is, and the hash of its bytes.

    Attributes:
        path: The file.
        letter: What it says. Nothing is verified before `check`.
        sha256: Of the whole file.
        signature: By the site's key, of all that is before it.
    """

    path: Path
    letter: Letter
    sha256: str
    signature: bytes
    _content: bytes

    @classmethod
    def read(cls, path: str | Path, study: Study) -> Sealed:
        """Take a file apart that should be of this study, which bounds how long it can be.

        Raises:
            InvalidInput: It is no such file.
            WrongVersion: It has another format.
            DamagedFile: It was cut or altered.
        """
        where = Path(path)
        most = LONGEST + MOST_FRAMES * longest_reply(study.layout, 1)
        data = files.read_at_most(where, most)
        if data[:7] != MAGIC[:7]:
            raise InvalidInput(
                f"{where} is not a file that `fedlsvi contribute` wrote: ask the site for it again",
                code="not-a-letter",
            )
        if data[:8] != MAGIC:
            raise WrongVersion(
                f"{where} has another format: use the version of fedlsvi that wrote it",
                code="other-version",
            )
        content, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
        pieces = list(_pieces(where, content))
        table: Any = parse_json(where, pieces[0])
        check_shape(where, table, _SHAPE)
        letter = Letter(frames=tuple(pieces[1:]), **table)
        return cls(where, letter, sha256(data).hexdigest(), signature, content)

    def check(self, study: Study, kind: str) -> None:
        """Refuse what is not a file of this study, from this site, as it was signed."""
        letter = self.letter
        if letter.kind != kind:
            raise InvalidInput(
                f"{self.path} is a file of {_what(letter.kind)}, not of {_what(kind)}: give "
                f"files that end in .{kind}",
                code="other-kind",
            )
        if letter.version != __version__:
            raise WrongVersion(
                f"{self.path} was written by fedlsvi {letter.version}, and this is {__version__}: "
                "all sites need the same version, because the last bits may differ",
                code="other-version",
            )
        if letter.site not in study.sites:
            raise InvalidInput(
                f"{self.path} is of {letter.site!r}, which is not a site of the study: its sites "
                f"are {', '.join(study.names)}",
                code="unknown-site",
            )
        key = bytes.fromhex(study.keys[letter.site])
        public = crypto().ed25519.Ed25519PublicKey.from_public_bytes(key)
        try:
            public.verify(self.signature, _LABEL + sha256(self._content).digest())
        except Exception:  # the library's InvalidSignature, which is imported with it
            raise DamagedFile(
                f"{self.path} is not as {letter.site} signed it: it was altered, or signed with "
                "another key than the study has; ask the site for it again",
                code="altered",
            ) from None
        if letter.digest != study.digest:
            raise InvalidInput(
                f"{self.path} of {letter.site} is of another study: {self._differs(study)}. All "
                "sites need the same study.toml, to the letter",
                code="other-study",
            )

    def _differs(self, study: Study) -> str:
        here, there = study.table(), self.letter.study
        if (found := difference(here, there)) is not None:
            return found
        if self.letter.columns != list(study.bins or ()):
            return f"bins are in the order {', '.join(self.letter.columns)} there"
        return "its digest is another"


def of_all_sites(study: Study, sealed: Sequence[Sealed], kind: str) -> list[Letter]:
    """The letters of all sites, checked, in the order of their agents.

    Raises:
        InvalidInput: One is missing, or there twice.
    """
    by_site: dict[str, Sealed] = {}
    for one in sealed:
        one.check(study, kind)
        other = by_site.setdefault(one.letter.site, one)
        if other is not one:
            raise InvalidInput(
                f"{other.path} and {one.path} are both of {one.letter.site}: give one file per "
                "site",
                code="site-twice",
            )
    missing = [name for name in study.names if name not in by_site]
    if missing:
        raise InvalidInput(
            f"{plural(len(missing), 'site')} of {len(study.names)} sent no .{kind} file: "
            f"{', '.join(missing)}",
            code="sites-missing",
        )
    return [by_site[name].letter for name in study.names]


def _what(kind: str) -> str:
    return "keys" if kind == KEYS else "sums"


def _pieces(path: Path, content: bytes) -> list[bytes]:
    """The head and the frames."""
    found, at = [], len(MAGIC)
    while at < len(content):
        if at + _LENGTH.size > len(content):
            _cut(path)
        (size,) = _LENGTH.unpack_from(content, at)
        at += _LENGTH.size
        if size > len(content) - at:
            _cut(path)
        found.append(content[at : at + size])
        at += size
    if not found:
        _cut(path)
    return found


def _cut(path: Path) -> NoReturn:
    raise DamagedFile(
        f"{path} is incomplete or was altered: ask the site for it again", code="altered"
    )
