"""How long a server waits for its agents, and what it does then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedlsvi.errors import InvalidSetting

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
"""Seconds from one attempt to the next, where the answers to it came before the deadline: at first,
and at most."""

LONGEST_DEADLINE = 1e6
"""Seconds that every engine can count; twelve days."""

Refused = Literal["refuse", "exclude"]
Absent = Literal["wait", "fail", "carry", "exclude"]


@dataclass(frozen=True)
class Patience:
    """How long the server waits, and what it does then.

    deadline   seconds for one exchange
    attempts   how often it asks the same again; an error that comes at once is not asked about at
               once again, but after a pause that doubles
    refused    after a message that fails the checks: "refuse" stops the run, "exclude" goes on
               without that cohort
    absent     after silence or an error at the agent: "wait" asks on and on, "fail" stops the run,
               "carry" closes rounds without that cohort until it answers again, "exclude" goes on
               without it
    carry      for how many rounds a cohort is carried; then it is excluded
    """

    deadline: float = 60.0
    attempts: int = 2
    refused: Refused = "refuse"
    absent: Absent = "fail"
    carry: int = 50

    def __post_init__(self) -> None:
        seconds = self.deadline
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0.0:
            raise InvalidSetting(f"deadline must be above 0 seconds, got {seconds!r}")
        if seconds > LONGEST_DEADLINE:
            raise InvalidSetting(
                f"deadline must be at most {LONGEST_DEADLINE:g} seconds, got {seconds!r}: "
                'absent = "wait" waits for as long as it takes'
            )
        for name, least in (("attempts", "at least 1"), ("carry", "at least 1 round")):
            number = getattr(self, name)
            if type(number) is not int or number < 1:
                raise InvalidSetting(f"{name} must be {least}, and an integer, got {number!r}")
        for name, known in (("refused", ("refuse", "exclude")),
                            ("absent", ("wait", "fail", "carry", "exclude"))):  # fmt: skip
            if getattr(self, name) not in known:
                raise InvalidSetting(f"{name} must be one of {known}, got {getattr(self, name)!r}")

    def in_words(self) -> str:
        """How long was waited for an answer that did not come."""
        if self.attempts == 1:
            return f"within {self.deadline:g} s"
        return f"in {self.attempts} attempts of up to {self.deadline:g} s"

    def pause(self, attempt: int) -> float:
        """Seconds from the start of an attempt to that of the next, at least."""
        longest = min(self.deadline, LONGEST_PAUSE)
        return min(longest, FIRST_PAUSE * 2.0 ** min(attempt - 1, 30))
