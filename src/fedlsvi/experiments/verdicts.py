"""What the data say about a claim: one verdict per check, and one for the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fedlsvi.report.intervals import Interval
from fedlsvi.report.plotting import Panel


class Verdict(StrEnum):
    """The three things that data of a given size can say."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "inconclusive at this size"


def below(value: Interval, limit: float) -> Verdict:
    """Whether a quantity is at most `limit`: its whole interval must be on one side."""
    if value.high <= limit:
        return Verdict.HOLDS
    return Verdict.FAILS if value.low > limit else Verdict.OPEN


def above(value: Interval, limit: float) -> Verdict:
    """Whether a quantity is at least `limit`."""
    return below(Interval(-value.mid, -value.high, -value.low), -limit)


def always(flags: Sequence[bool]) -> Verdict:
    """A bound that must never be broken: one exception is enough; without data it is open."""
    if not flags:
        return Verdict.OPEN
    return Verdict.HOLDS if all(flags) else Verdict.FAILS


@dataclass(frozen=True)
class Check:
    """One sentence that can be true or false, what was measured, and what that says.

    Attributes:
        counts: False for an informational check, which does not decide the claim.
    """

    claim: str
    measured: str
    verdict: Verdict
    counts: bool = True


def overall(checks: Sequence[Check]) -> Verdict:
    """The claim holds if every check that counts does; it fails if one of them fails."""
    found = [check.verdict for check in checks if check.counts]
    if Verdict.FAILS in found:
        return Verdict.FAILS
    return Verdict.OPEN if Verdict.OPEN in found or not found else Verdict.HOLDS


@dataclass(frozen=True)
class Finding:
    """The result of a study: a verdict, a table and a figure.

    Attributes:
        scope: What the verdict is limited to, if anything, shown wherever the verdict is.
    """

    title: str
    claim: str
    setup: str
    checks: list[Check]
    header: list[str]
    rows: list[list[str]]
    panels: list[Panel]
    notes: list[str] = field(default_factory=list)
    scope: str = ""

    @property
    def verdict(self) -> Verdict:
        """Of the claim as a whole."""
        return overall(self.checks)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)
