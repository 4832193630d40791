"""What a site's account may lack after the loss of a disk: then nobody can say what is spent.

    fedlsvi/account.lost    a restore found no account or no secrets here; the account that it put
                            back may lack what was booked after the backup

A federation whose sums have left, but of which nothing is booked, says the same. Runs under a limit
(`[require] total_epsilon`), and sums without noise that other sites or a floor are to hide, are
refused then, until a person states what is lost; other private runs go on with a warning. A whole
copy of `fedlsvi/`, or a snapshot of the machine, put back in its place, cannot be noticed from
within.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fedlsvi.checks import number
from fedlsvi.errors import DamagedFile, FedLSVIError
from fedlsvi.remote import audit
from fedlsvi.remote.account import STATED, Account, Booking
from fedlsvi.storage import files

LOST = "account.lost"


def mark(home: Path) -> None:
    """Bookings may be missing here."""
    files.write(files.inside(home, LOST), b"see fedlsvi federate account\n", private=True)


def unbooked(account: Account) -> list[str]:
    """Federations and studies whose sums have left, but of which nothing is booked."""
    booked = {booking.federation for booking in account.bookings}
    logs = sorted(account.path.parent.glob("[!.]*/sent.jsonl"))
    return [log.parent.name for log in logs if log.parent.name not in booked and _sums_left(log)]


def is_marked(account: Account) -> bool:
    """Whether a restore has found that bookings may be missing."""
    return files.exists(files.inside(account.path.parent, LOST))


def refuse_lost(account: Account) -> None:
    """Refuse a run that depends on what was booked where the account may lack bookings.

    Raises:
        DamagedFile: It may.
    """
    names = unbooked(account)
    if not names and not is_marked(account):
        return
    what = f"nothing of {', '.join(names)}" if names else "nothing after the backup it is from"
    raise DamagedFile(
        f"{account.path} says {what}, though sums may have left, so nobody can say what these data "
        "have spent, and with whom they were summed up. Put the account back if it is still there, "
        "or state what is missing: fedlsvi federate account KIT --spent EPSILON --delta DELTA",
        code="bookings-lost",
    )


def state(home: Path, epsilon: float, delta: float) -> Account:
    """A person says what these data have spent beyond what is booked: at most so much in all."""
    number("spent", epsilon, 0.0, "ε that is not booked, 0 if there is none")
    number("delta", delta, 0.0, "δ of that ε", strict=True)
    account = Account(home)
    names = unbooked(account) or [LOST]
    for i, name in enumerate(names):  # of which one has all of it
        nobody, spent = (0, 0), epsilon if i == 0 else 0.0
        account.book(Booking(name, STATED, nobody, "episode", 1, float(spent), float(delta)))
    with suppress(FileNotFoundError):
        files.inside(home, LOST).unlink()
    return account


def _sums_left(log: Path) -> bool:
    """Whether an upload is in a log of what left; a damaged one does not say no."""
    try:
        return any(line["kind"] in audit.UPLOADS for line in audit.lines(log))
    except FedLSVIError:
        return True
