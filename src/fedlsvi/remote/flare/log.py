"""What the administrator of a federation hears of a job, perhaps on another machine.

FLARE's words for its state, and the server's lines in FLARE's log of the job, each behind a mark.
Lines are written here and read here; reading needs no FLARE.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from typing import Any

from fedlsvi.protocol.records import RoundRecord

REASON = "this run ends: "
ROUND = "this run has done round "
NOTE = "out of the ordinary in this run: "
WAITS = "this run waits: "
NOBODY = "for nobody any more"
COMPLETE = "this run is complete"
PAUSED = "this run is paused"
MARKS = (REASON, ROUND, NOTE, WAITS, COMPLETE, PAUSED)
"""What stands before the reason of a failure, the number of a round, something out of the ordinary,
who is waited for; and what a run says that has come to its end, or to a pause."""

ASK_STATUS, ASK_PAUSE = "fedlsvi.status", "fedlsvi.pause"
"""What an administrator can ask of a job that runs."""

WAITING = ("SUBMITTED", "APPROVED")
"""It has not begun."""

RUNNING = ("DISPATCHED", "RUNNING")
"""It has begun; a server that is started again leaves this of the jobs that it was running."""

ENDED = ("FINISHED", "FAILED")
"""The words that the state of a job begins with which has ended."""

COMPLETED = "FINISHED:COMPLETED"
"""It has ended well."""

DIED = "FAILED:SERVER_ENDED"
"""Our word for a job that was running when its server ended; FLARE says that it still runs."""

LONGEST_LINE = 500
"""Of what a site says, how much the server repeats."""

log = logging.getLogger(__name__)


def line(text: object) -> str:
    """What a site said, for the middle of a line: it writes no line of its own into the server's
    log, and none that has a mark."""
    found = "".join(c if c.isprintable() else " " for c in str(text))
    found = " ".join(found.split())
    for mark in MARKS:
        found = found.replace(mark, "… ")
    return found[:LONGEST_LINE]


def without_calls() -> None:
    """Keep FLARE from writing two lines about each call: it shows no more than the last of a log,
    and others would be lost among them."""
    logging.getLogger("nvflare.collab").setLevel(logging.WARNING)


def tell(record: RoundRecord) -> None:
    """A round is done."""
    tell_notes(record.notes)
    tell_round(record.k, record.last)


def tell_round(k: int, t: int) -> None:
    """So far the run has come."""
    log.info("%s%d, at episode %d", ROUND, k, t)


def tell_notes(notes: Iterable[str]) -> None:
    """Something was out of the ordinary."""
    for note in notes:
        log.warning("%s%s", NOTE, line(note))


def tell_waiting(sentence: str) -> None:
    """Somebody is waited for; nobody any more, where the sentence is empty."""
    log.warning("%s%s", WAITS, line(sentence) or NOBODY)


def tell_reason(why: str) -> None:
    """The run cannot go on."""
    log.error("%s%s", REASON, why)


def tell_complete() -> None:
    """The run has come to its end, whatever becomes of the job."""
    log.info(COMPLETE)


def tell_paused() -> None:
    """The run stands still after a round until the job is started again."""
    log.info(PAUSED)


def progress_in(rows: Sequence[str]) -> dict[str, Any]:
    """Rounds and episodes, None where no row has them, all notes, and who is waited for."""
    last = re.match(r"(\d+), at episode (\d+)", after(ROUND, rows))
    rounds, episodes = map(int, last.groups()) if last else (None, None)
    notes = [row.partition(NOTE)[2] for row in rows if NOTE in row]
    ended = any(mark in row for row in rows for mark in (REASON, COMPLETE, PAUSED))
    waits = "" if ended else after(WAITS, rows).strip()
    waits = "" if waits == NOBODY else waits
    return {"rounds": rounds, "episodes": episodes, "notes": notes, "waits": waits}


def after(mark: str, rows: Sequence[str]) -> str:
    """What follows the mark in the last row that has it."""
    return next((row.partition(mark)[2] for row in reversed(rows) if mark in row), "")
