"""Rows in the order of their episodes and steps, whatever their order in the log.

A table from a database has its rows in any order, and may have times in place of steps. Where every
row says which episode and step it is of, there is one order, and it is taken; where two rows are of
the same step, nobody knows which comes first, and the log is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedlsvi.errors import warn
from fedlsvi.logs import sources
from fedlsvi.logs.rows import InvalidRecord, Rows
from fedlsvi.logs.sources import ActionNames, Source
from fedlsvi.logs.survey import Survey, survey
from fedlsvi.logs.transitions import DATED, Limits

DISORDER = ("episode-disorder", "step-disorder", "step-missing", "row-after-end", "next-differs")
"""Errors that a log may have only because its rows are not sorted."""

MOST_ROWS = 1 << 24
"""Rows that are sorted here: all of them are in memory then."""


class OrderedSource:
    """Another source, sorted by agent, episode and step; times become steps 1, 2, …"""

    def __init__(self, source: Source) -> None:
        self.source, self.name = source, source.name
        self.action_names = source.action_names

    def names_in_log(self) -> ActionNames | None:
        return self.source.names_in_log()

    def spec(self) -> dict[str, Any] | None:
        return self.source.spec()

    def __getstate__(self) -> dict[str, Any]:
        """Without the rows, which are read again."""
        kept = ("source", "name", "action_names")
        return {name: getattr(self, name) for name in kept}

    def blocks(self) -> Iterator[Rows]:
        rows = self._rows
        for at in range(0, len(rows), sources.BLOCK):
            yield _taken(rows, slice(at, at + sources.BLOCK))

    @cached_property
    def moved(self) -> bool:
        """Whether some agent's rows were in another order."""
        rows = self._rows
        return any((np.diff(rows.numbers[own]) < 0).any() for own in _agents(rows))

    @cached_property
    def _rows(self) -> Rows:
        rows = _joined(self.source)
        whose = np.zeros(len(rows), np.int64)
        if rows.agent is not None:
            whose = np.unique(rows.agent, return_inverse=True)[1]
        order = np.lexsort((rows.step, rows.episode, whose))
        found = _taken(replace(rows, row=rows.numbers), order)
        return _counted(found, whose[order]) if found.dated else found


def ordered_survey(source: Source, limits: Limits) -> tuple[Source, Survey]:
    """What a log holds, and the log itself, sorted where it has to be; a warning says so."""
    try:
        return source, survey(source, limits)
    except InvalidRecord as error:
        if error.code not in (*DISORDER, DATED):
            raise
        ordered = OrderedSource(source)
        if not ordered.moved and error.code != DATED:
            raise
    found = survey(ordered, limits)
    if ordered.moved:
        warn(f"the rows of {source.name} are not sorted by episode and step: they are read in that "
             "order")  # fmt: skip
    return ordered, found


def _joined(source: Source) -> Rows:
    """All rows of a source."""
    parts: list[Rows] = []
    for rows in source.blocks():
        parts.append(rows)
        if sum(map(len, parts)) > MOST_ROWS:
            raise InvalidRecord(
                f"{source.name} is not sorted, and has more than {MOST_ROWS:,} rows: sort it by "
                "episode and step",
                code="episode-disorder",
            )
    first = next(rows for rows in parts if len(rows))
    for rows in parts:
        if len(rows) and rows.state.shape[1:] != first.state.shape[1:]:
            raise InvalidRecord(
                f"observation has shape {rows.state.shape[1:]}, but the first row's has "
                f"{first.state.shape[1:]}: use one shape in all rows",
                code="bad-width",
                row=rows.first,
            )
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(rows, name) for rows in parts if len(rows)])
        for name in _arrays(first)
    }
    return replace(first, **columns, ids=parts[-1].ids)


def _arrays(rows: Rows) -> list[str]:
    named = [field.name for field in fields(rows)]
    return [name for name in named if isinstance(getattr(rows, name), np.ndarray)]


def _taken(rows: Rows, chosen: Any) -> Rows:
    return replace(rows, **{name: getattr(rows, name)[chosen] for name in _arrays(rows)})


def _agents(rows: Rows) -> list[np.ndarray]:
    """Which rows are each agent's."""
    if rows.agent is None:
        return [np.ones(len(rows), bool)]
    return [rows.agent == agent for agent in np.unique(rows.agent)]


def _counted(rows: Rows, whose: np.ndarray) -> Rows:
    """Steps 1, 2, … of every episode, in the order of their times."""
    same = (np.diff(rows.episode) == 0) & (np.diff(whose) == 0)
    tied = np.flatnonzero(same & (np.diff(rows.step) == 0))
    if len(tied):
        i = int(tied[0])
        when = np.datetime64(int(rows.step[i]), "us")
        raise InvalidRecord(
            f"two rows of episode {rows.called(i)} have the time {when}, so their order is not "
            "known: remove one of them, or number the steps",
            code="step-doubled",
            row=int(rows.numbers[i + 1]),
        )
    place = np.arange(len(rows))
    begins = np.concatenate(([True], ~same))
    return replace(rows, step=place - np.maximum.accumulate(np.where(begins, place, 0)) + 1,
                   dated=False)  # fmt: skip
