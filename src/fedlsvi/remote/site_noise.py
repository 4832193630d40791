"""A site's noise in a private run: its secret, written down before it is used.

    noise-RUN.json   the site's secret of one run, from the operating system's entropy, for its
                     owner alone; empty when the run has ended

It never leaves the site. A site that restarts has the same secret, so it adds the same noise to the
same sums: what it sends again are the bytes that it sent. That the noise of a round is never added
to a second content is up to `remote.release_log`.

The secret is made when its run is booked (`remote.account`). So account and secrets know of each
other: where one of the two was lost, or restored from before, new noise for the same data would
spend a budget twice, or unseen, and is refused.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from fedlsvi.errors import DamagedFile
from fedlsvi.privacy.noise import NOISE_KIND, new_noise_key
from fedlsvi.remote.account import Account, Booking
from fedlsvi.remote.lost_bookings import refuse_lost
from fedlsvi.remote.release_log import RELEASES, records
from fedlsvi.storage import files
from fedlsvi.storage.schema import Shape, suspect

log = logging.getLogger(__name__)

_SHAPE: Shape = {"secret": re.compile("([0-9a-f]{64})?"), "kind": re.compile(NOISE_KIND)}


class NoiseSecret:
    """The secret of one site's noise.

    Args:
        run: The run's number.
        folder: Where the secret is kept; None keeps it in memory.
        used: Whether uploads of this run may have left.

    Attributes:
        key: The secret; empty when the run has ended.
    """

    def __init__(self, run: int, folder: Path | None = None, used: bool = False) -> None:
        self.run, self.folder = run, folder
        self.key = self._secret(used)

    def end(self) -> None:
        """The run has ended: nobody needs the secret again, and whoever had it could take the noise
        away from what was sent."""
        self.key = b""
        if self.folder is not None:
            self._write(self._path(self.folder), "")

    def _path(self, folder: Path) -> Path:
        return _secret_of(self.run, folder)

    def _secret(self, used: bool) -> bytes:
        """As it was before a restart, or a new one that is written down first; empty after the
        end."""
        if self.folder is None:
            return new_noise_key()
        path = self._path(self.folder)
        if files.exists(path):
            table = files.read_json(path, _SHAPE)
            with suspect(path):
                return bytes.fromhex(table["secret"])
        if used:
            raise DamagedFile(
                f"{path} is missing, but sums may have left with its noise, and new noise would "
                "spend the budget twice: put it back if it is still there, and never from a "
                "backup; else give the run another seed",
                code="noise-lost",
            )
        key = new_noise_key()
        files.make_private(self.folder)
        self._write(path, key.hex())
        return key

    @staticmethod
    def _write(path: Path, secret: str) -> None:
        files.write_json(path, {"secret": secret, "kind": NOISE_KIND}, private=True)


def book(account: Account, booking: Booking, secrets: Path, **limit: Any) -> None:
    """Write down what a private run may spend, and make the secret of its noise, before anything is
    computed; `limit` as in `Account.book`.

    Args:
        account: Of the site's data.
        booking: The run's.
        secrets: Where the run's secrets are kept, beside those of other runs.

    Raises:
        MessageRefused: The budget of these data does not allow it.
        DamagedFile: The secret is gone, or bookings are.
    """
    for known in sorted(secrets.parent.glob(f"*/{RELEASES}")):
        _refuse_forgotten(account, known)
    try:
        refuse_lost(account)
    except DamagedFile as error:
        if limit:
            raise
        log.warning("this run goes on without a limit: %s", error, extra={"code": error.code})
    account.refuse_beyond(booking, **limit)
    files.make_private(secrets.parent)
    NoiseSecret(int(booking.run, 16), secrets, account.holds(booking))
    account.book(booking, **limit)


def _refuse_forgotten(account: Account, known: Path) -> None:
    """Refuse an account that has no booking of a private run whose sums have left."""
    runs = {run for (run, *_), *_ in records(files.read(known))}
    booked = {booking.run for booking in account.bookings}
    for run in sorted(runs):
        if f"{run:016x}" not in booked and files.exists(_secret_of(run, known.parent)):
            raise DamagedFile(
                f"{account.path} has no booking of run {run:x}, of which sums with noise have "
                f"left ({known}): it is older than they are, or was removed. Put it back if it is "
                "still there, and never from a backup; else these data have spent more than "
                "anybody can say, and no private run may use them",
                code="bookings-lost",
            )


def _secret_of(run: int, folder: Path) -> Path:
    return files.inside(folder, f"noise-{run:016x}.json")
