"""The error for a log that cannot be used."""

from __future__ import annotations

from typing import Any

from fedlsvi.errors import InvalidInput


class InvalidRecord(InvalidInput):
    """A log with a row that cannot be used.

    Attributes:
        row: The row, counted from 1; 0 where the error belongs to no row.
    """

    def __init__(self, message: str, *, row: int = 0, **about: str) -> None:
        self.row = row
        where = f"row {row:,}: " if row else ""
        super().__init__(f"{where}{message}", **about)

    def __reduce__(self) -> tuple[Any, ...]:
        return _copied, (self.args, vars(self))


def _copied(given: tuple[Any, ...], state: Any) -> InvalidRecord:
    error = InvalidRecord.__new__(InvalidRecord, *given)
    error.__dict__.update(state)
    return error
