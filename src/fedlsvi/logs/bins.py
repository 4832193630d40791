"""Numbers of a record as a state: each column is cut into bins, and a state is one bin of each.

    edges e_1 < … < e_n    bin 0 is x < e_1, bin i is e_i ≤ x < e_{i+1}, bin n is x ≥ e_n

A state is the bins of all columns as one number, in the order of the columns, the last one fastest.
Sites that learn together need the same edges, whatever their own records look like.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from fedlsvi.checks import is_number
from fedlsvi.errors import InvalidSetting
from fedlsvi.logs.invalid_record import InvalidRecord
from fedlsvi.logs.rows import Rows
from fedlsvi.logs.sources import ActionNames, Source


@dataclass(frozen=True)
class Bins:
    """The bins of some columns.

    Attributes:
        edges: Column → where its bins begin, rising.
    """

    edges: Mapping[str, Sequence[float]]

    def __post_init__(self) -> None:
        if not isinstance(self.edges, Mapping) or not self.edges:
            raise InvalidSetting(
                f"bins is {self.edges!r}: write a table of columns, each with the edges of its "
                "bins, such as lactate = [2.0, 4.0]",
                code="bad-bins",
            )
        for column, edges in self.edges.items():
            listed = isinstance(edges, list | tuple) and len(edges) > 0
            if not listed or not all(is_number(e) and math.isfinite(e) for e in edges):
                raise InvalidSetting(
                    f"bins.{column} is {edges!r}: give a list of finite numbers", code="bad-bins"
                )
            if any(b <= a for a, b in pairwise(edges)):
                raise InvalidSetting(
                    f"bins.{column} is {list(edges)}: give edges that rise", code="bad-bins"
                )

    @property
    def columns(self) -> list[str]:
        """Their names in order."""
        return list(self.edges)

    @property
    def n_states(self) -> int:
        """How many states there are."""
        return math.prod(len(edges) + 1 for edges in self.edges.values())

    def states(self, values: np.ndarray) -> np.ndarray:
        """(n,) the states of (n, columns) numbers."""
        place = np.zeros(len(values), np.int64)
        for column, edges in zip(values.T, self.edges.values(), strict=True):
            place = place * (len(edges) + 1) + np.searchsorted(edges, column, side="right")
        return place


class BinnedSource:
    """A log whose observations are numbers, with states in their place.

    Args:
        source: The log; its observations have the columns of the bins.
        bins: The bins.
    """

    def __init__(self, source: Source, bins: Bins) -> None:
        self.source, self.bins = source, bins

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.source.name

    @property
    def action_names(self) -> Sequence[str] | None:
        """See `Source`."""
        return self.source.action_names

    @action_names.setter
    def action_names(self, names: Sequence[str] | None) -> None:
        self.source.action_names = names

    def names_in_log(self) -> ActionNames | None:
        """See `Source`."""
        return self.source.names_in_log()

    def blocks(self) -> Iterator[Rows]:
        """All rows in their order, with states."""
        for rows in self.source.blocks():
            following = None if rows.following is None else self._states(rows, rows.following)
            yield replace(rows, state=self._states(rows, rows.state), following=following)

    def _states(self, rows: Rows, seen: np.ndarray) -> np.ndarray:
        values = seen.reshape(len(seen), -1).astype(np.float64)
        if values.shape[1] != len(self.bins.edges):
            raise InvalidRecord(
                f"observations have {values.shape[1]} numbers, but there are bins for "
                f"{', '.join(self.bins.columns)}: name the columns in this order",
                code="bad-width",
                row=rows.first,
            )
        return self.bins.states(values)

    def spec(self) -> dict[str, Any] | None:
        """Nothing: a file alone does not make it again."""
        return None
