"""Log files: one line per round, written as rounds end.

A new run overwrites the file. A resumed run continues it: rounds that it plays again are cut off,
earlier ones stay.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import IO

from fedlsvi.errors import StoreError
from fedlsvi.observers.metrics import metrics
from fedlsvi.protocol.records import RoundRecord

EPISODE = "episode"


class CSVLog:
    """A CSV file: one row per round with the numbers of `metrics`; the first row names them."""

    def __init__(self, path: str | PathLike[str]) -> None:
        """Open the file; nothing is changed before the first round ends.

        Args:
            path: The file; missing folders are made.

        Raises:
            StoreError: It cannot be written.
        """
        self._file = _open(path)
        self._rows: csv.DictWriter[str] | None = None

    def __call__(self, record: RoundRecord) -> None:
        """A round has ended."""
        row = {EPISODE: float(record.last), **metrics(record)}
        if self._rows is None:
            self._rows = self._begin(record.first, list(row))
        self._rows.writerow({name: _written(value) for name, value in row.items()})
        self._file.flush()

    def _begin(self, first: int, names: list[str]) -> csv.DictWriter[str]:
        """Rows under the names that the file already has, or under these."""
        self._file.seek(0)
        header = next(csv.reader([self._file.readline()]), [])
        if first > 1 and EPISODE in header:
            at = header.index(EPISODE)
            _cut(self._file, first, lambda line: float(next(csv.reader([line]))[at]))
            return _table(self._file, header)
        self._file.truncate(0)
        rows = _table(self._file, names)
        rows.writeheader()
        return rows

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class JSONLLog:
    """A JSON Lines file: the record of each round, as `RoundRecord.from_dict` reads it."""

    def __init__(self, path: str | PathLike[str]) -> None:
        """Open the file; nothing is changed before the first round ends.

        Args:
            path: The file; missing folders are made.

        Raises:
            StoreError: It cannot be written.
        """
        self._file = _open(path)
        self._begun = False

    def __call__(self, record: RoundRecord) -> None:
        """A round has ended."""
        if not self._begun:
            self._file.seek(0)
            _cut(self._file, record.first, lambda line: float(json.loads(line)["last"]))
            self._begun = True
        self._file.write(json.dumps(record.to_dict()) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _written(value: float) -> str:
    """Counts with all their digits."""
    return f"{value:.0f}" if value.is_integer() else f"{value:.10g}"


def _table(file: IO[str], names: list[str]) -> csv.DictWriter[str]:
    return csv.DictWriter(file, names, restval="", extrasaction="ignore")


def _cut(file: IO[str], first: int, episode: Callable[[str], float]) -> None:
    """Cut off, from here on, what begins with an incomplete line or a round not before `first`."""
    end = file.tell()
    while line := file.readline():
        try:
            earlier = line.endswith("\n") and episode(line) < first
        except (ValueError, LookupError, TypeError, StopIteration):
            break
        if not earlier:
            break
        end = file.tell()
    file.truncate(end)


def _open(path: str | PathLike[str]) -> IO[str]:
    """To be read and appended to; nothing is changed yet."""
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        return target.open("a+", newline="", encoding="utf-8")
    except OSError as error:
        text = f"cannot write {target}: {error.strerror}"
        raise StoreError(text, code="cannot-write") from error
