"""A site's side of secure sums: its key, and the membership that it agreed to.

    masks.json     the site's private key and the sites that it agreed to, for this run, for its
                   owner alone; deleted when the run has ended

It never leaves the site. A site that restarts has the same key, so it masks the same content with
the same stream: the bytes that it sends again are the bytes that it sent. That no stream hides a
second content is up to `remote.release_log`. A server that begins at episode 0 gets new keys.

The site accepts one membership for each key of its own. It must cover all agents of the run, have
at least three sites, and every key in it must be signed by its site. Keys are new where a server
begins again; that the sites are the same then is up to `remote.release_log` too: the sum with
another site in the place of one would reveal how the two differ.
"""

from __future__ import annotations

import json
import struct
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

from fedlsvi.checks import plural
from fedlsvi.config import FEWEST_SITES, Parameters
from fedlsvi.errors import MessageRefused
from fedlsvi.privacy.masks import MaskStreams, membership_id, new_private_key, public_key
from fedlsvi.protocol.messages import Member, Roster, SiteKey
from fedlsvi.remote.identity import SiteIdentity
from fedlsvi.storage import files
from fedlsvi.storage.schema import Shape, suspect

KEYS = "masks.json"
_SIGNED = struct.Struct("<Qqq32s")
_LABEL = b"fedlsvi key of a site for secure sums, 1"
_SHAPE: Shape = {"run": str, "private": str, "members": [list]}


def signed_content(run: int, first: int, agents: int, public: bytes) -> bytes:
    """What a site signs: its key, for these agents of this run and for nothing else."""
    return _LABEL + _SIGNED.pack(run, first, agents, public)


class Masking:
    """The keys of one site, and the masks that they make.

    Args:
        parameters: The numbers that were agreed on.
        run: The run's number.
        agents: The site's first agent, and how many it has.
        identity: Signs this site's key and verifies those of others.
        folder: Where the key is kept; None keeps it in memory.
    """

    def __init__(
        self,
        parameters: Parameters,
        run: int,
        agents: tuple[int, int],
        identity: SiteIdentity,
        folder: Path | None = None,
    ) -> None:
        self.parameters, self.run, self.agents = parameters, run, agents
        self.identity, self.folder = identity, folder
        self._private = b""
        self._members: tuple[tuple[int, int, bytes], ...] = ()
        self._names: tuple[str, ...] = ()
        self._streams: MaskStreams | None = None
        self._load()

    def begin(self) -> None:
        """A server begins at episode 0: new keys."""
        self._private, self._members, self._names, self._streams = b"", (), (), None
        if self.folder is not None:
            files.inside(self.folder, KEYS).unlink(missing_ok=True)

    def end(self) -> None:
        """The run has ended: nobody needs the key again, and whoever had it could take the masks
        away from what was sent."""
        self.begin()

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
        names = tuple(
            self.identity.verify(
                m.first, signed_content(self.run, m.first, m.agents, m.public), m.proof
            )
            for m in roster.members
        )
        if len(set(names)) < len(names) or len({m.public for m in roster.members}) < len(names):
            _refuse("site-twice", "one site stands for two")
        self.identity.admit(names)
        self._members, self._names = listed, names
        self._save()
        self._derive()

    def _check_cover(self, roster: Roster) -> None:
        """Every agent of the run belongs to one of enough sites."""
        fewest = max(FEWEST_SITES, self.identity.fewest)
        if len(roster.members) < fewest:
            _refuse(
                "too-few-sites",
                f"{plural(len(roster.members), 'site')} listed, but this site takes part in secure "
                f"sums of at least {fewest}",
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

    @property
    def who(self) -> bytes:
        """(32,) hash of the sites that were agreed on, whatever their keys."""
        cuts = [member[:2] for member in self._members]
        return sha256(json.dumps([cuts, self._names]).encode()).digest()

    @property
    def streams(self) -> MaskStreams | None:
        """This site's masks; None before a membership was agreed."""
        return self._streams

    def _derive(self) -> None:
        members = [Member(*member, b"") for member in self._members]
        if self._streams is None or self._streams.membership != membership_id(self.run, members):
            self._streams = MaskStreams(self._private, self.agents[0], self.run, members)

    def _save(self) -> None:
        if self.folder is not None:
            members = [
                [first, agents, public.hex(), name]
                for (first, agents, public), name in zip(self._members, self._names, strict=True)
            ]
            files.write_json(
                files.inside(self.folder, KEYS),
                {"run": f"{self.run:016x}", "private": self._private.hex(), "members": members},
                private=True,
            )

    def _load(self) -> None:
        """As it was before a restart; keys of another run are of no use."""
        if self.folder is None:
            return
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
                for first, agents, public, _ in table["members"]
            )
            self._names = tuple(str(name) for *_, name in table["members"])
            if self._members:
                self._derive()


def _refuse(code: str, why: str) -> NoReturn:
    raise MessageRefused(why, code=code) from None
