"""The axes of a run, and a few rows in which every lawful pair of their values occurs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One value of each axis."""

    source: str = "table"
    stationary: bool = False
    diversity: bool = False
    masks: bool = False
    own: bool = False
    exchange: str = "stepwise"
    aggregation: str = "float"
    private: bool = False
    away: bool = False
    head: str = "online"
    transport: str = "inprocess"

    def __str__(self) -> str:
        flags = ("stationary", "diversity", "masks", "own", "private", "away")
        names = (self.source, self.exchange, self.aggregation, self.head, self.transport)
        return "-".join([*names, *(flag for flag in flags if getattr(self, flag))])


AXES: dict[str, tuple[Any, ...]] = {
    "source": ("table", "continuous", "numbered", "vectors", "log", "log-beside-players"),
    "stationary": (False, True),
    "diversity": (False, True),
    "masks": (False, True),
    "own": (False, True),
    "exchange": ("stepwise", "one-trip"),
    "aggregation": ("float", "exact", "secure"),
    "private": (False, True),
    "away": (False, True),
    "head": ("online", "exploit", "pevi", "evaluation"),
    "transport": ("inprocess", "frames", "silence"),
}
"""numbered and vectors are black boxes that are stepped, by what they show; own: agents have
coefficients of their own, for features that are always zero (`test_own_features` has others);
silence is a site that falls silent over frames for a while (`absent="carry"`)."""

Pair = tuple[tuple[str, Any], ...]
"""Two axes with a value each, or more of them."""


def every_row() -> list[Row]:
    """All of them, those closest to the default first."""
    rows = [Row(*values) for values in product(*AXES.values())]
    return sorted(rows, key=lambda row: sum(a != b for a, b in zip(row, Row(), strict=True)))


def pairs(row: Row, size: int = 2) -> list[Pair]:
    """The pairs of values in a row, or what else has this size."""
    return list(combinations(row._asdict().items(), size))


def covering(rows: Sequence[Row], size: int = 2) -> list[Row]:
    """Few of these rows with all their pairs, or what else has this size: again and again the first
    of those that bring the most new ones. No draw, so that a failure can be found again."""
    left = {row: set(pairs(row, size)) for row in rows}
    missing, chosen = set[Pair]().union(*left.values()), []
    while missing:
        best = max(left, key=lambda row: len(left[row] & missing))
        chosen.append(best)
        missing -= left[best]
    return chosen


def apart(
    rows: Sequence[Row], lawful: Sequence[Row], obstacles: Callable[[Row], int]
) -> dict[Pair, Row]:
    """The pairs that no lawful row has, each with a row that has it: the one with the fewest
    obstacles besides, then the closest to the default."""
    possible = {pair for row in lawful for pair in pairs(row)}
    missing: dict[Pair, Row] = {}
    for row in sorted(rows, key=obstacles):
        for pair in pairs(row):
            if pair not in possible:
                missing.setdefault(pair, row)
    return missing
