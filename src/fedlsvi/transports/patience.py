"""How long a server waits for its agents, and what it does then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedlsvi.errors import InvalidSetting

Refused = Literal["refuse", "exclude"]
Absent = Literal["wait", "fail", "carry", "exclude"]


@dataclass(frozen=True)
class Patience:
    """How long the server waits, and what it does then.

    deadline   seconds for one exchange
    attempts   how often it asks the same again
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
        if not self.deadline > 0.0:
            raise InvalidSetting(f"deadline must be above 0 seconds, got {self.deadline!r}")
        if self.attempts < 1:
            raise InvalidSetting(f"attempts must be at least 1, got {self.attempts!r}")
        if self.carry < 1:
            raise InvalidSetting(f"carry must be at least 1 round, got {self.carry!r}")
        for name, known in (("refused", ("refuse", "exclude")),
                            ("absent", ("wait", "fail", "carry", "exclude"))):  # fmt: skip
            if getattr(self, name) not in known:
                raise InvalidSetting(f"{name} must be one of {known}, got {getattr(self, name)!r}")
