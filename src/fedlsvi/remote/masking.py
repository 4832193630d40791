"""A site's side of secure sums: its key, the membership it agreed to, and each stream used once.

    masks.json     the site's private key and the sites that it agreed to, for this run
    masks.log      for every stream that was used: membership, round, step, hash of what it hid

Both are in the site's journal and never leave it. A site that restarts has the same key, so it
masks the same content with the same stream: the bytes that it sends again are the bytes that it
sent. It never hides a second content behind a stream, whoever asks: a server that would play a
round again with another model gets a refusal, and the site's log says so. A server that begins at
episode 0 gets new keys.

The site accepts one membership for each key of its own. It must cover all agents of the run, have
at least three sites, and every key in it must be signed by its site.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.config import FEWEST_SITES, Parameters
from fedlsvi.errors import MessageRefused
from fedlsvi.protocol.aggregation import FixedPointSums
from fedlsvi.protocol.masks import MaskStreams, membership_id, new_private_key, public_key
from fedlsvi.protocol.messages import Increments, MaskedUpload, Member, Roster, SiteKey, Upload
from fedlsvi.protocol.transport import layout
from fedlsvi.remote.identity import SiteIdentity
from fedlsvi.storage import files
from fedlsvi.storage.schema import Shape, suspect

KEYS, STREAMS = "masks.json", "masks.log"
RECORD = struct.Struct("<32sQI32s")  # membership, round, step, SHA-256 of the content
_SIGNED = struct.Struct("<Qqq32s")
_LABEL = b"fedlsvi key of a site for secure sums, 1"
_SHAPE: Shape = {"run": str, "private": str, "members": [list]}

Stream = tuple[bytes, int, int]
"""Membership, round and step: what a stream belongs to."""


def signed_content(run: int, first: int, agents: int, public: bytes) -> bytes:
    """What a site signs: its key, for these agents of this run and for nothing else."""
    return _LABEL + _SIGNED.pack(run, first, agents, public)


class Masking:
    """The keys and masks of one site.

    Args:
        parameters: The numbers that were agreed on.
        run: The run's number.
        agents: The site's first agent, and how many it has.
        identity: Signs this site's key and verifies those of others.
        folder: The journal's; None keeps everything in memory.
        durable: Whether a used stream is known after a power failure too.
    """

    def __init__(
        self,
        parameters: Parameters,
        run: int,
        agents: tuple[int, int],
        identity: SiteIdentity,
        folder: Path | None = None,
        durable: bool = True,
    ) -> None:
        self.parameters, self.run, self.agents = parameters, run, agents
        self.identity, self.folder, self.durable = identity, folder, durable
        self._sums = FixedPointSums(layout(parameters), parameters.scale_bits)
        self._private = b""
        self._members: tuple[tuple[int, int, bytes], ...] = ()
        self._used: dict[Stream, bytes] = {}
        self._streams: MaskStreams | None = None
        self._load()

    def begin(self) -> None:
        """A server begins at episode 0: new keys, and whichever streams were used are behind."""
        self._private, self._members, self._streams = b"", (), None
        if self.folder is not None:
            files.inside(self.folder, KEYS).unlink(missing_ok=True)
            self._used = used_streams(self.folder)

    def offer(self) -> SiteKey:
        """This site's public key, the same until a server begins again."""
        if not self._private:
            self._private = new_private_key()
            self._save()
        public = public_key(self._private)
        return SiteKey(public, self.identity.sign(signed_content(self.run, *self.agents, public)))

    def agree(self, roster: Roster) -> None:
        """Take part with these sites, if they are all the sites of this run and really they.

        Raises:
            MessageRefused: They are not, or this site has agreed to others.
        """
        listed = tuple((m.first, m.agents, m.public) for m in roster.members)
        if self._members:  # whose keys were verified then
            if listed != self._members:
                _refuse("other-membership", "this site has agreed to other sites or other keys")
            self._derive()
            return
        self._check_cover(roster)
        own = (*self.agents, public_key(self._private)) if self._private else None
        if own not in listed:
            _refuse("own-key-missing", "the key listed for this site is not its key")
        names = [
            self.identity.verify(
                m.first, signed_content(self.run, m.first, m.agents, m.public), m.proof
            )
            for m in roster.members
        ]
        if len(set(names)) < len(names) or len({m.public for m in roster.members}) < len(names):
            _refuse("site-twice", "one site stands for two")
        self._members = listed
        self._save()
        self._derive()

    def _check_cover(self, roster: Roster) -> None:
        """Every agent of the run belongs to one of at least three sites."""
        if len(roster.members) < FEWEST_SITES:
            _refuse(
                "too-few-sites",
                f"{plural(len(roster.members), 'site')} listed, but secure sums need "
                f"{FEWEST_SITES}",
            )
        following = 0
        for member in roster.members:
            if member.first != following or member.agents < 1:
                _refuse("sites-missing", f"no site is listed for agent {following}")
            following += member.agents
        if following != self.parameters.n_agents:
            _refuse("sites-missing", f"no site is listed for agent {following}")

    @property
    def sites(self) -> int:
        """How many sites were agreed on."""
        return len(self._members)

    def mask(
        self,
        round_: int,
        upload: Upload | Increments,
        blur: Callable[[np.ndarray, int], np.ndarray] | None = None,
    ) -> MaskedUpload:
        """The sum over the site's agents, behind the masks of this round and step; increments of
        all steps at once have the masks of step 1.

        Args:
            round_: The round.
            upload: What the site's agents send.
            blur: In a private run: adds the site's noise to its sum, given how many sites there
                are.

        Raises:
            MessageRefused: No membership was agreed, or this stream has hidden something else.
        """
        if self._streams is None:
            _refuse("no-membership", "no sites were agreed on, so nothing can be masked")
        words, h = self._sums.words(upload), upload.h if isinstance(upload, Upload) else 1
        if blur is not None:
            words = blur(words, self.sites)
        self._use((self._streams.membership, round_, h), sha256(words.data).digest())
        return MaskedUpload(h, self._streams.masked(words, round_, h))

    def _use(self, stream: Stream, content: bytes) -> None:
        """Write down what a stream is about to hide; one that hid something else is refused."""
        known = self._used.get(stream)
        if known is None:
            if self.folder is not None:
                record = RECORD.pack(*stream, content)
                append_record(files.inside(self.folder, STREAMS), record, self.durable)
            self._used[stream] = content
        elif known != content:
            _, round_, step = stream
            _refuse(
                "mask-used",
                f"the mask of round {round_}, step {step} was already used for other statistics, "
                "and using it twice would reveal their difference, so nothing is sent. The server "
                "is repeating this round with a different model or end",
            )

    def _derive(self) -> None:
        members = [Member(*member, b"") for member in self._members]
        if self._streams is None or self._streams.membership != membership_id(self.run, members):
            self._streams = MaskStreams(self._private, self.agents[0], self.run, members)

    def _save(self) -> None:
        if self.folder is not None:
            members = [[first, agents, public.hex()] for first, agents, public in self._members]
            files.write_json(
                files.inside(self.folder, KEYS),
                {"run": f"{self.run:016x}", "private": self._private.hex(), "members": members},
            )

    def _load(self) -> None:
        """As it was before a restart; keys of another run are of no use."""
        if self.folder is None:
            return
        self._used = used_streams(self.folder)
        path = files.inside(self.folder, KEYS)
        if not files.exists(path):
            return
        table = files.read_json(path, _SHAPE)
        with suspect(path):
            if int(table["run"], 16) != self.run:
                return
            self._private = bytes.fromhex(table["private"])
            self._members = tuple(
                (int(first), int(agents), bytes.fromhex(public))
                for first, agents, public in table["members"]
            )
            if self._members:
                self._derive()


def used_streams(folder: Path) -> dict[Stream, bytes]:
    """Every stream that a journal says was used, and the hash of what it hid. A record that a kill
    left unfinished is cut off: nothing was sent behind it."""
    path = files.inside(folder, STREAMS)
    data = files.read(path) if files.exists(path) else b""
    whole = len(data) - len(data) % RECORD.size
    if whole < len(data):
        files.cut(path, whole)
    found: dict[Stream, bytes] = {}
    for membership, round_, step, content in RECORD.iter_unpack(data[:whole]):
        found[membership, round_, step] = content
    return found


def append_record(path: Path, record: bytes, durable: bool) -> None:
    """Write a record at the end of a file."""
    try:
        fd = files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            files.write_all(fd, record)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise files.cannot("write", path, error) from error


def _refuse(code: str, why: str) -> NoReturn:
    raise MessageRefused(why, code=code) from None
