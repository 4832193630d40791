"""How long a server waits for its agents, how often it asks, and what it does then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from fedlsvi.checks import choice, integer, number
from fedlsvi.errors import InvalidSetting
from fedlsvi.incompatible import refuse

if TYPE_CHECKING:
    from fedlsvi.config import Parameters

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

    def check(self, p: Parameters) -> None:
        """Refuse what these numbers do not allow where sites are absent."""
        refuse(
            p, data=p.logged > 0, absent=self.absent, refused=self.refused,
            suspicious=self.suspicious,
        )  # fmt: skip

    def waited(self) -> str:
        """How long the server waited for an answer that did not come, for an error message."""
        if self.attempts == 1:
            return f"within {self.deadline:g} s"
        return f"in {self.attempts} attempts of up to {self.deadline:g} s"

    def pause(self, attempt: int) -> float:
        """Shortest time in seconds from the start of this attempt (1, 2, …) to the next one."""
        longest = min(self.deadline, LONGEST_PAUSE)
        return min(longest, FIRST_PAUSE * 2.0 ** min(attempt - 1, 30))
