"""How long a server waits for its agents, how often it asks, and what it does then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from fedlsvi.checks import choice, integer, number
from fedlsvi.errors import InvalidSetting

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
"""Seconds between two attempts when an error came back before the deadline: the pause doubles from
the first of these to the second."""

LONGEST_DEADLINE = 1e6
"""Seconds that every engine can count; twelve days."""

Refused = Literal["refuse", "exclude"]
Absent = Literal["wait", "fail", "carry", "exclude"]
Suspicious = Literal["note", "exclude", "fail"]


@dataclass(frozen=True)
class RetryPolicy:
    """How long the server waits for an answer, and what it does when none comes.

    Attributes:
        deadline: Seconds for one exchange.
        attempts: How often the same request is sent. An error that comes back before the deadline
            is retried after a pause that doubles.
        refused: After a message that fails the checks: "refuse" stops the run, "exclude" continues
            without that cohort.
        absent: After silence or an error at the agent: "wait" retries indefinitely, "fail" stops
            the run, "carry" closes rounds without that cohort until it answers again, "exclude"
            continues without it.
        carry: For how many rounds a cohort is carried before it is excluded.
        suspicious: When the data of a cohort contradict those of all others (`suspicion`): "note"
            says so in the record of the round, "exclude" continues without it, "fail" stops.
    """

    deadline: float = 60.0
    attempts: int = 2
    refused: Refused = "refuse"
    absent: Absent = "fail"
    carry: int = 50
    suspicious: Suspicious = "note"

    def __post_init__(self) -> None:
        number("deadline", self.deadline, 0.0, "in seconds", strict=True)
        if self.deadline > LONGEST_DEADLINE:
            raise InvalidSetting(
                f"deadline must be at most {LONGEST_DEADLINE:g} seconds, got {self.deadline!r}: "
                'use absent = "wait" to wait indefinitely',
                code="bad-deadline",
            )
        integer("attempts", self.attempts, 1)
        integer("carry", self.carry, 1, "a number of rounds")
        choice("refused", self.refused, get_args(Refused))
        choice("absent", self.absent, get_args(Absent))
        choice("suspicious", self.suspicious, get_args(Suspicious))

    def refuse_absence(self, what: str) -> None:
        """Refuse a policy that goes on without a site, for what needs all of them in every round:
        a masked sum without one is noise, and in one trip agents keep no history to return with.

        Args:
            what: The setting that needs it.
        """
        if self.suspicious != "note":
            raise InvalidSetting(
                f"with {what}, sites cannot be compared with each other, so "
                f'suspicious="{self.suspicious}" has no effect: use suspicious="note"',
                code="bad-suspicious",
            )
        if self.absent not in ("wait", "fail") or self.refused != "refuse":
            raise InvalidSetting(
                f'{what} needs every site in every round, but absent="{self.absent}" and '
                f'refused="{self.refused}": use absent="wait" or "fail", and refused="refuse"',
                code="bad-absent",
            )

    def refuse_carrying(self) -> None:
        """Refuse to go on without a site where runs begin with logs: one that was away in the round
        of the logs could not be asked for it later."""
        if self.absent == "carry":
            raise InvalidSetting(
                'logs are read in the first round, but with absent="carry" a site may be missing '
                'then: use absent="wait", "fail" or "exclude"',
                code="bad-absent",
            )

    def waited(self) -> str:
        """How long the server waited for an answer that did not come, for an error message."""
        if self.attempts == 1:
            return f"within {self.deadline:g} s"
        return f"in {self.attempts} attempts of up to {self.deadline:g} s"

    def pause(self, attempt: int) -> float:
        """Shortest time in seconds from the start of this attempt (1, 2, …) to the next one."""
        longest = min(self.deadline, LONGEST_PAUSE)
        return min(longest, FIRST_PAUSE * 2.0 ** min(attempt - 1, 30))
