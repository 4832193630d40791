"""The log of fedlsvi as JSON lines, for machines that collect logs.

    {"time": "2026-01-31T22:47:06.123456+00:00", "level": "WARNING", "logger": "fedlsvi.remote…",
     "message": "handle from north was refused: …", "code": "caller-not-server"}

`code` is that of an error of fedlsvi, `error` the kind of any error. A file that has grown to
`MOST_BYTES` is moved to NAME.1, the one before to NAME.2, and so on; older ones go.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

MOST_BYTES = 4_000_000
KEPT = 3
"""How long a file gets, and how many earlier ones are kept."""

LOGGER = "fedlsvi"

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING,
          "error": logging.ERROR}  # fmt: skip
"""What a person calls the level of the least important records."""

log = logging.getLogger(__name__)


class JSONLines(logging.Formatter):
    """One JSON object for each record."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        error = record.exc_info[1] if record.exc_info else None
        code = getattr(record, "code", "") or getattr(error, "code", "")
        if code:
            line["code"] = code
        if error is not None:
            line |= {"error": type(error).__name__, "text": str(error)}
        return json.dumps(line)


class _Private(RotatingFileHandler):
    """A file for its owner alone. A full disk does not end what is logged."""

    level_before: int
    """Of the logger, before it wrote to this file."""

    def _open(self) -> Any:
        fd = os.open(
            self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600
        )
        return os.fdopen(fd, "a", encoding="utf-8")

    def handleError(self, record: logging.LogRecord) -> None:
        """Nothing: the console has the record too."""


def write_to(path: Path, level: int = logging.INFO) -> logging.Handler:
    """Append what fedlsvi logs to a file from now on, and to no other.

    Args:
        path: The file; its folder exists.
        level: Of the least important records that are written.

    Returns:
        The handler, which `stop` removes.
    """
    handler = _Private(path, maxBytes=MOST_BYTES, backupCount=KEPT, encoding="utf-8")
    handler.setFormatter(JSONLines())
    handler.setLevel(level)
    logger = logging.getLogger(LOGGER)
    for earlier in [other for other in logger.handlers if isinstance(other, _Private)]:
        stop(earlier)
    handler.level_before = logger.level
    logger.addHandler(handler)
    if logger.getEffectiveLevel() > level:
        logger.setLevel(level)
    return handler


def stop(handler: logging.Handler) -> None:
    """Write no more, and log at the level of before."""
    logger = logging.getLogger(LOGGER)
    if isinstance(handler, _Private) and handler in logger.handlers:
        logger.setLevel(handler.level_before)
    logger.removeHandler(handler)
    handler.close()


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a log and its earlier files, oldest first, without lines that are none."""
    for number in range(KEPT, -1, -1):
        file = path.with_name(f"{path.name}.{number}") if number else path
        with suppress(OSError), file.open(encoding="utf-8", errors="replace") as rows:
            for row in rows:
                with suppress(ValueError):
                    line = json.loads(row)
                    if isinstance(line, dict) and {"time", "level", "message"} <= line.keys():
                        yield line


@contextmanager
def of_run(handler: logging.Handler, what: str) -> Iterator[None]:
    """Log the begin and the end of a run too, and what fedlsvi warns of meanwhile.

    Args:
        handler: Of `write_to`; it is stopped at the end.
        what: Names the run.
    """
    shown = warnings.showwarning

    def show(message: Any, category: Any, *place: Any, **options: Any) -> None:
        log.warning("%s: %s", category.__name__, message)
        shown(message, category, *place, **options)

    try:
        with warnings.catch_warnings():
            warnings.showwarning = show
            log.info("%s begins", what)
            yield
            log.info("%s ends", what)
    except BaseException as error:
        log.error("%s ends with an error", what, exc_info=error)
        raise
    finally:
        stop(handler)
