"""Records into files as they come: one line per round."""

from __future__ import annotations

import csv
import json
from os import PathLike
from pathlib import Path
from typing import IO

from fedlsvi.errors import StoreError
from fedlsvi.observers.metrics import metrics
from fedlsvi.records import RoundRecord


class CSVLog:
    """One row per round with the numbers of `metrics`; the first row names them."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._file = _open(path)
        self._rows: csv.DictWriter[str] | None = None

    def __call__(self, record: RoundRecord) -> None:
        """A round has ended."""
        row = {"episode": float(record.last), **metrics(record)}
        if self._rows is None:
            self._rows = csv.DictWriter(self._file, list(row), restval="", extrasaction="ignore")
            self._rows.writeheader()
        self._rows.writerow({name: f"{value:.10g}" for name, value in row.items()})
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class JSONLLog:
    """One JSON object per round: the whole record, as `RoundRecord.from_dict` reads it."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._file = _open(path)

    def __call__(self, record: RoundRecord) -> None:
        """A round has ended."""
        self._file.write(json.dumps(record.to_dict()) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _open(path: str | PathLike[str]) -> IO[str]:
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        return target.open("w", newline="")
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror}") from error
