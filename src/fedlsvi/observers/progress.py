"""A progress bar: episodes, episodes per second, round, regret. It reads records alone."""

from __future__ import annotations

import sys
from time import perf_counter

from fedlsvi.config import Parameters
from fedlsvi.protocol.records import Observer, RoundRecord

INTERVAL = 0.1
"""Seconds between two repaints; rounds may come by the thousand."""


def bar(parameters: Parameters, show: bool | None = None, played: int = 0) -> list[Observer]:
    """A progress bar on standard error, as a list of one observer or none.

    Args:
        parameters: Of the run.
        show: Whether to draw it; None draws it in a terminal only.
        played: Episodes per agent that were played before.
    """
    return [ProgressBar(parameters, played)] if is_shown(show) else []


def is_shown(show: bool | None) -> bool:
    """Whether a bar is drawn; None is in a terminal only."""
    return sys.stderr.isatty() if show is None else show


class ProgressBar:
    """One line that is repainted at most ten times a second."""

    def __init__(self, parameters: Parameters, played: int = 0) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._began, self._first, self._painted = perf_counter(), played, 0.0
        self._last: RoundRecord | None = None
        # painted by hand: a separate thread would take time from the compiled loops
        self._progress = Progress(
            BarColumn(bar_width=14),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
            auto_refresh=False,
        )
        self._progress.start()
        self._task = self._progress.add_task(
            "", total=parameters.episodes, completed=played, state="episodes"
        )
        self._progress.refresh()

    def __call__(self, record: RoundRecord) -> None:
        """A round has ended."""
        self._last = record
        if perf_counter() - self._painted >= INTERVAL:
            self._paint(record)

    def _paint(self, record: RoundRecord) -> None:
        speed = (record.last - self._first) / max(perf_counter() - self._began, 1e-9)
        regret = "" if record.regret is None else f" · regret {record.regret:,.1f}"
        state = f"{speed:,.0f} episodes/s · round {record.k}{regret}"
        self._progress.update(self._task, completed=record.last, state=state)
        self._progress.refresh()
        self._painted = perf_counter()

    def close(self) -> None:
        """Paint the last state and leave it on the screen."""
        if self._last is not None:
            self._paint(self._last)
        self._progress.stop()
