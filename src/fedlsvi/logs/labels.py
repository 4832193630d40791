"""What tables say in words where a learner needs numbers: ids, actions, yes and no, dates.

Ids of episodes may be of any kind that can be told apart, and are numbered in the order in which
they appear. Actions have a name each, and the order of the names is their numbers. Dates and times
say in which order the rows of an episode come (`order`), and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

import numpy as np

from fedlsvi.logs.invalid_record import InvalidRecord

YES, NO = ("yes", "y", "true", "t"), ("no", "n", "false", "f")
FLAGS = dict.fromkeys((*YES, "1"), 1.0) | dict.fromkeys((*NO, "0"), 0.0)


def is_missing(value: Any) -> bool:
    """None, NaN, and what pandas has in their place."""
    unknown = type(value).__name__ in ("NAType", "NaTType") or value is None
    return unknown or (isinstance(value, float) and value != value)


def missing(name: str, row: int) -> InvalidRecord:
    """The error for a cell that is empty."""
    return InvalidRecord(f"{name} is missing: fill it in, or leave the episode out",
                         code="missing-value", row=row)  # fmt: skip


def is_text(column: np.ndarray) -> bool:
    """Whether a column has words in it."""
    return column.dtype.kind in "UT" or (
        column.dtype == object and any(isinstance(value, str) for value in column.flat)
    )


def is_labelled(column: np.ndarray) -> bool:
    """Whether a column has something else than numbers in it: words, dates, objects."""
    if column.dtype != object:
        return column.dtype.kind not in "biuf"
    known = (int, float, np.number)
    return not all(isinstance(value, known) or is_missing(value) for value in column.flat)


def labels(name: str, column: np.ndarray, first: int) -> list[Any]:
    """The values of a column of ids, none of which is missing."""
    found: list[Any] = column.tolist()
    for i, value in enumerate(found):
        if is_missing(value):
            raise missing(name, first + i)
    return found


def flags(name: str, column: np.ndarray, first: int) -> np.ndarray:
    """Words for yes and no as 1 and 0; numbers among them stay."""
    found = np.empty(len(column))
    for i, value in enumerate(column.tolist()):
        if is_missing(value):
            raise missing(name, first + i)
        number = FLAGS.get(value.strip().lower()) if isinstance(value, str) else float(value)
        if number is None:
            raise InvalidRecord(f"{name} is {value!r}: give a number, or yes and no",
                                code="not-a-number", row=first + i)  # fmt: skip
        found[i] = number
    return found


def moments(name: str, column: np.ndarray, first: int) -> np.ndarray:
    """Dates and times in microseconds, int64 (n,)."""
    if column.dtype.kind == "M":
        bad = np.flatnonzero(np.isnat(column))
        if len(bad):
            raise missing(name, first + int(bad[0]))
        return column.astype("M8[us]").astype(np.int64)
    found = np.empty(len(column), np.int64)
    for i, value in enumerate(column.tolist()):
        if is_missing(value):
            raise missing(name, first + i)
        try:
            moment = datetime.fromisoformat(value) if isinstance(value, str) else value
            if not isinstance(moment, date):
                raise ValueError
            if isinstance(moment, datetime) and moment.tzinfo is not None:
                moment = moment.astimezone(UTC).replace(tzinfo=None)
            found[i] = np.datetime64(moment, "us").astype(np.int64)
        except (ValueError, OverflowError):
            raise InvalidRecord(
                f"{name} is {value!r}: give whole numbers from 0 or 1, or dates and times such as "
                "2024-05-01 10:30",
                code="not-a-number",
                row=first + i,
            ) from None
    return found


def named_actions(column: np.ndarray, names: Sequence[str], first: int) -> np.ndarray:
    """The places of actions among their names, int64 (n,)."""
    places = {name: a for a, name in enumerate(names)}
    found = np.empty(len(column), np.int64)
    for i, value in enumerate(labels("action", column, first)):
        place = places.get(str(value))
        if place is None:
            raise InvalidRecord(
                f"action is {value!r}, but the actions are {', '.join(names)}",
                code="action-outside",
                row=first + i,
                hint="correct the row, or give action_names=[…] with all actions",
                shell_hint="correct the row, or give --actions NAME,NAME,… with all actions",
            )
        found[i] = place
    return found


class EpisodeIds:
    """Numbers for the ids of episodes, in the order in which an agent's appear."""

    def __init__(self) -> None:
        self.names: list[Any] = []
        self._numbers: dict[tuple[Any, Any], int] = {}

    def numbers(self, column: np.ndarray, agents: np.ndarray | None, first: int) -> np.ndarray:
        """The numbers (n,) of some rows."""
        ids = labels("episode", column, first)
        whose = [None] * len(ids) if agents is None else agents.tolist()
        found = np.empty(len(ids), np.int64)
        for i, key in enumerate(zip(whose, ids, strict=True)):
            try:
                number = self._numbers.get(key)
            except TypeError:
                raise InvalidRecord(
                    f"episode is {ids[i]!r}: give a number or a text", code="bad-id", row=first + i
                ) from None
            if number is None:
                number = self._numbers[key] = len(self.names)
                self.names.append(ids[i])
            found[i] = number
        return found
