"""A site's part in a study: what it demands, what it spends, and the files that it writes.

    fedlsvi/.secrets/STUDY/           the key of its masks, its noise, what has left
    fedlsvi/STUDY/sent.jsonl          the log of what left (`fedlsvi verify`)
    fedlsvi/account.jsonl             what its data have been used for (`fedlsvi privacy`)

These are in the site's kit, a folder like that of a site on FLARE: `local/fedlsvi.toml` may demand
protections there and list the keys of the other sites (`[peers]`), without which whoever writes
study.toml could put keys of their own in. The account is the same for studies and federations. A
private study is booked before anything leaves. Secrets stay until `end`, so that the same records
give the same bytes again; other records are refused then, because two sums behind one mask, or with
one noise, would give their difference away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

from fedlsvi.checks import plural
from fedlsvi.core.blas import one_blas_thread
from fedlsvi.errors import InvalidInput, MessageRefused
from fedlsvi.logs.sources import Columns
from fedlsvi.privacy.masks import membership_id
from fedlsvi.protocol.messages import (
    SCALAR_BYTES,
    KeyRequest,
    Member,
    Reply,
    Roster,
    SiteKey,
)
from fedlsvi.remote.account import Account, Booking, Together, booking_of
from fedlsvi.remote.audit import Audit
from fedlsvi.remote.codec import Address, encode
from fedlsvi.remote.identity import RunIdentity
from fedlsvi.remote.journal import Journal
from fedlsvi.remote.lost_bookings import refuse_lost
from fedlsvi.remote.mail.letter import CONTRIBUTION, KEYS, Letter, Sealed, of_all_sites
from fedlsvi.remote.mail.records import Records
from fedlsvi.remote.mail.requests import ROUND, requests, start_of
from fedlsvi.remote.mail.site_key import SiteKeyPair
from fedlsvi.remote.mail.study import Study
from fedlsvi.remote.mail.transport import answers
from fedlsvi.remote.site import HOME, RECORDS, SECRETS, SETTINGS
from fedlsvi.remote.site_noise import NoiseSecret, book
from fedlsvi.remote.site_privacy import SitePrivacy
from fedlsvi.remote.site_settings import demands
from fedlsvi.storage import files


class Books(NamedTuple):
    """What a site keeps of one study, which no other process has meanwhile."""

    privacy: SitePrivacy
    audit: Audit


class MailSite:
    """One site of a study.

    Args:
        study: The study.
        kit: The site's folder, with its key.

    Attributes:
        site: Its name, which the study has for its key.
        first: The number of its agent.
    """

    def __init__(self, study: Study, kit: str | Path = ".") -> None:
        self.study, self.kit = study, Path(kit)
        self.pair = SiteKeyPair(self.kit)
        named = [name for name, key in study.keys.items() if key == self.pair.public]
        if not named:
            raise InvalidInput(
                f"the study has no site with the key of {self.kit}: tell the organiser its public "
                f"key, {self.pair.fingerprint}",
                code="not-in-study",
            )
        self.site = named[0]
        self.first = study.names.index(self.site)
        self.require, peers = demands(self.kit / "local" / SETTINGS)
        job = study.federation
        if missing := self.require.missing(
            job.settings, job.ends_are_public, len(study.sites), job.floor
        ):
            raise InvalidInput(missing, code="protection-missing")
        if study.secure and peers:
            self._check_peers(peers)

    def _check_peers(self, peers: Mapping[str, str]) -> None:
        """Refuse masks for other keys than people have compared."""
        for name, key in self.study.keys.items():
            if name != self.site and "".join(peers.get(name, "").lower().split()) != key:
                raise InvalidInput(
                    f"the key of {name} in the study is not the one listed under [peers] of "
                    f"local/{SETTINGS}: whoever has that key could undo the masks. Compare it with "
                    f"{name} on the phone",
                    code="foreign-key",
                )

    def keys(self) -> bytes:
        """The file of keys, which all sites need before they contribute."""
        if not self.study.secure:
            raise InvalidInput(
                "only secure sums need keys, and this study has "
                f'aggregation = "{self.study.parameters.aggregation}": leave --keys out',
                code="no-keys-needed",
            )
        with self._books() as books:
            frame = self._sent(books, self._key(books))
        return Letter.of(self.study, KEYS, self.site, [frame], {}).seal(self.pair.private)

    def roster(self, sealed: Sequence[Sealed]) -> Roster:
        """Whose keys they are, from the files of all sites; empty without secure sums."""
        if not self.study.secure:
            return Roster(())
        return roster_of(self.study, of_all_sites(self.study, sealed, KEYS), [SiteKey])

    def read(self, data: Any, columns: Columns | None = None, layout: Any = None) -> Records:
        """The site's records, checked: see `Records.read`."""
        return Records.read(self.study, self.first, data, columns, layout)

    @property
    def booking(self) -> Booking | None:
        """What a private study may spend of the site's data."""
        budget = self.study.privacy
        if budget is None:
            return None
        return booking_of(self.study.called, self.study.run, (self.first, 1), budget)

    def before(self) -> list[str]:
        """Studies and federations for which sums have left this kit before. Where records are in
        two of them, the difference of the sums shows what is in one only."""
        home = files.inside(self.kit, HOME)
        return [path.parent.name for path in sorted(home.glob("[!.]*/sent.jsonl"))
                if path.parent.name != self.study.called]  # fmt: skip

    def spent(self) -> tuple[float, float]:
        """ε of the site's data at the study's δ: before the study, and with it."""
        booking = self.booking
        if booking is None:
            return 0.0, 0.0
        account = Account(files.inside(self.kit, HOME))
        more = [] if account.holds(booking) else [booking]
        delta, episodes = booking.delta, self.require.protected
        return account.spent(delta, (), episodes), account.spent(delta, more, episodes)

    def leaving(self, records: Records) -> dict[str, Any]:
        """What will leave, for a person to decide."""
        p, (before, after), scalars = self.study.parameters, self.spent(), records.scalars
        budget = self.study.privacy or {"unit": "episode", "epsilon": None, "delta": None}
        whom = "one episode"
        if budget["unit"] == "user":
            whom = f"one patient with up to {plural(budget['episodes_per_user'], 'episode')}"
        sums = {"secure": "masked, so that only the sum over all sites can be read",
                "exact": "whole numbers, as they are", "float": "as they are"}  # fmt: skip
        return {
            "site": self.site, "study": self.study.called, "episodes": records.episodes,
            "fewest": records.fewest, "scalars": scalars, "bytes": SCALAR_BYTES * scalars,
            "sums": sums[p.aggregation], "epsilon": budget["epsilon"], "delta": budget["delta"],
            "unit": whom, "epsilon_before": before, "epsilon_after": after,
            "studies_before": self.before(),
        }  # fmt: skip

    def contribute(self, records: Records, roster: Roster) -> bytes:
        """The file of sums. Whatever it spends is booked first.

        Args:
            records: What `read` gave.
            roster: Whose keys the masks belong to; empty without secure sums.

        Raises:
            MessageRefused: The budget of these data does not allow it, or other records were summed
                up for this study before.
        """
        home, booking = files.inside(self.kit, HOME), self.booking
        files.make_private(home)
        if booking is not None:
            secrets = files.inside(home, SECRETS, self.study.called)
            book(Account(home), booking, secrets, **self.require.limit)
        else:
            plain = booking_of(self.study.called, self.study.run, (self.first, 1), None)
            account, floor = Account(home), self.study.parameters.min_round
            if self.study.secure or floor > 1:
                refuse_lost(account)
                names = tuple(self.study.names) if self.study.secure else ()
                there = {"recorded episodes": records.episodes}
                counted = self.study.counted if self.study.open else self.study.counted | there
                now = Together(self.study.called, RECORDS, names, counted)
                account.take_part(now, self.require)
            account.book(plain)
        membership = ""
        with self._books() as books, one_blas_thread():
            replies = [self._sums(books, records, roster)]
            if roster.members:
                membership = membership_id(self.study.run, roster.members).hex()
                replies.append(self._key(books))
            frames = [self._sent(books, reply) for reply in replies]
        about = {"episodes": records.episodes}
        letter = Letter.of(self.study, CONTRIBUTION, self.site, frames, about, membership)
        return letter.seal(self.pair.private)

    def _sums(self, books: Books, records: Records, roster: Roster) -> Reply:
        """What the site answers to the one `Stop` of the study."""
        if not self.study.hidden:
            return records.upload
        cohort, reply = records.cohort(), cast("Reply", None)
        keys = (roster,) if roster.members else ()
        try:
            for message in (start_of(self.study), *keys, *requests(self.study)):
                reply = books.privacy.answer(cohort, ROUND, message, None)
        except MessageRefused as error:
            if error.code != "answered-before":
                raise
            raise MessageRefused(
                f"{self.site} has contributed to this study before, with other records or other "
                "sites. A second sum would give away how they differ, so nothing is written: give "
                "the same records, or agree on another study (another seed makes it one)",
                code="answered-before",
            ) from None
        return reply

    def end(self) -> None:
        """The study has been merged: delete what hid this site's sums."""
        with self._books() as books:
            books.privacy.end()

    def _key(self, books: Books) -> Reply:
        nobody = cast(Any, None)  # the agents are not asked
        return books.privacy.answer(nobody, ROUND, KeyRequest(), None)

    def _sent(self, books: Books, reply: Reply) -> bytes:
        """The frame of a reply, written down before it leaves."""
        frame = encode(reply, Address(self.study.run, 1, 1, ROUND, self.first, 1))
        books.audit.sent(frame)
        return frame

    @contextmanager
    def _books(self) -> Iterator[Books]:
        study, home = self.study, files.inside(self.kit, HOME)
        folder = files.inside(home, study.called)
        for part in (home, files.inside(home, SECRETS), folder):
            files.make_private(part)
        with ExitStack() as open_files:
            secrets = files.inside(home, SECRETS, study.called)
            journal = Journal(files.inside(folder, "journal"), secrets=secrets)
            open_files.callback(journal.close)
            audit = Audit(files.inside(folder, "sent.jsonl"))
            open_files.callback(audit.close)
            if self.booking is not None:  # where it was booked, no new secret is made
                NoiseSecret(study.run, journal.secrets, Account(home).holds(self.booking))
            roll = {study.names.index(name): bytes.fromhex(k) for name, k in study.keys.items()}
            identity = RunIdentity(self.pair.private, roll)
            about = (study.run, (self.first, 1), identity, journal)
            agreed = bytes.fromhex(study.digest)
            yield Books(SitePrivacy(study.parameters, *about, agreed), audit)


def roster_of(study: Study, letters: Sequence[Letter], kinds: Sequence[type] = ()) -> Roster:
    """Whose keys are in the files of all sites.

    Args:
        study: The study.
        letters: Checked, in the order of agents.
        kinds: See `answers`.
    """
    keys = [answers(study, m, letter, kinds)[SiteKey] for m, letter in enumerate(letters)]
    members = [
        Member(*cut, key.public, key.proof)
        for cut, key in zip(study.cuts, keys, strict=True)
        if isinstance(key, SiteKey)
    ]
    return Roster(tuple(members))
