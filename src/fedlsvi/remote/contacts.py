"""When each cohort was last heard, how much it sent and received, and what of it was refused."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from fedlsvi.errors import FedLSVIError, MessageRefused

LONGEST_REASON = 200
"""Of a refusal's sentence, how much is kept."""


@dataclass
class Contact:
    """One cohort since this server process began.

    Attributes:
        heard: When its last answer came, as seconds since 1970; None if none came yet.
        round: The round of that answer.
        up, down: Bytes received from it and sent to it.
        refused: How many of its answers were refused, by code.
        refusal: The last refusal's sentence.
    """

    heard: float | None = None
    round: int = 0
    up: int = 0
    down: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    refusal: str = ""


class Contacts:
    """All cohorts; written by the thread that asks and read by any other."""

    def __init__(self, cohorts: int) -> None:
        self.cohorts = [Contact() for _ in range(cohorts)]

    def asked(self, frames: Mapping[int, bytes]) -> None:
        """These frames are sent."""
        for c, frame in frames.items():
            self.cohorts[c].down += len(frame)

    def heard(self, c: int, size: int, round_: int) -> None:
        """So many bytes have come, in this round."""
        contact = self.cohorts[c]
        contact.heard, contact.round = time.time(), round_
        contact.up += size

    def refused(self, c: int, error: FedLSVIError) -> None:
        """An answer of this cohort failed the checks."""
        if isinstance(error, MessageRefused):
            contact = self.cohorts[c]
            contact.refused[error.code] += 1
            contact.refusal = str(error)[:LONGEST_REASON]
