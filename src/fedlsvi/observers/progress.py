"""A progress bar: episodes, episodes per second, round, regret. It reads records alone."""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any, Protocol

from fedlsvi.config import Parameters
from fedlsvi.protocol.records import Observer, RoundRecord

INTERVAL = 0.1
"""Seconds between two repaints; rounds may come by the thousand."""

MOMENT = 1.0
"""Seconds for which nobody needs a bar."""


class Expected(Protocol):
    """What is expected of a run (`fedlsvi.forecast`)."""

    def sentence(self) -> str:
        """Rounds, time, memory and scalars."""
        ...

    def left(self, t: int) -> float:
        """Which share of the time is left after episode t."""
        ...


Progress = bool | Expected | None
"""Whether a bar is drawn; None, and what is expected of the run, draw it where somebody looks."""


def bar(parameters: Parameters, show: Progress = None, played: int = 0) -> list[Observer]:
    """A progress bar on standard error, as a list of one observer or none.

    Args:
        parameters: Of the run.
        show: Whether to draw it; None draws it in a terminal only, and what is expected of the run
            tells how long it will take.
        played: Episodes per agent that were played before.
    """
    if not is_shown(show):
        return []
    kind = NotebookBar if in_notebook() else ProgressBar
    return [kind(parameters, played, None if isinstance(show, bool) else show)]


def is_shown(show: Progress) -> bool:
    """Whether a bar is drawn; None is in a terminal or a notebook."""
    return show if isinstance(show, bool) else in_notebook() or sys.stderr.isatty()


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this, whose cells can be repainted."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


def _state(record: RoundRecord, first: int, began: float, expected: Expected | None) -> str:
    """What stands beside the bar."""
    spent = max(perf_counter() - began, 1e-9)
    regret = "" if record.regret is None else f" · regret {record.regret:,.1f}"
    left = ""
    if expected is not None and (done := expected.left(first) - expected.left(record.last)) > 0.0:
        left = f" · {duration(spent * expected.left(record.last) / done)} left"
    return f"{(record.last - first) / spent:,.0f} episodes/s · round {record.k}{regret}{left}"


def duration(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 100.0:
        return f"{seconds:.1f} s" if seconds < 10.0 else f"{seconds:.0f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 6000.0 else f"{seconds / 3600.0:.1f} h"


class NotebookBar:
    """An output of the cell that is repainted at most ten times a second; plain HTML, so that
    neither widgets nor scripts are needed."""

    def __init__(
        self, parameters: Parameters, played: int = 0, expected: Expected | None = None
    ) -> None:
        from IPython.display import display

        self._began, self._first, self._painted = perf_counter(), played, 0.0
        self._expected = expected
        self._total, self._last, self._done = parameters.episodes, None, played
        self._text = "episodes"
        self._handle = display(self, display_id=True)

    _last: RoundRecord | None

    def _repr_html_(self) -> str:
        return (
            f'<progress value="{self._done}" max="{self._total}"></progress> '
            f"{self._done:,}/{self._total:,} {self._text}"
        )

    def __repr__(self) -> str:
        return f"{self._done:,}/{self._total:,} {self._text}"

    def __call__(self, record: RoundRecord) -> None:
        """A round has ended."""
        self._last = record
        if perf_counter() - self._painted >= INTERVAL:
            self._paint(record)

    def _paint(self, record: RoundRecord) -> None:
        about = (self._first, self._began, self._expected)
        self._done, self._text = record.last, _state(record, *about)
        if self._handle is not None:
            self._handle.update(self)
        self._painted = perf_counter()

    def close(self) -> None:
        """Paint the last state and leave it in the cell."""
        if self._last is not None:
            self._paint(self._last)


class ProgressBar:
    """One line that is repainted at most ten times a second."""

    def __init__(
        self, parameters: Parameters, played: int = 0, expected: Expected | None = None
    ) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._began, self._first, self._painted = perf_counter(), played, 0.0
        self._expected = expected
        self._last: RoundRecord | None = None
        # painted by hand: a separate thread would take time from the compiled loops
        self._progress = Progress(
            BarColumn(bar_width=14),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TextColumn("{task.fields[state]}"),
            *([TimeRemainingColumn(compact=True)] if expected is None else []),
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
        state = _state(record, self._first, self._began, self._expected)
        self._progress.update(self._task, completed=record.last, state=state)
        self._progress.refresh()
        self._painted = perf_counter()

    def close(self) -> None:
        """Paint the last state and leave it on the screen."""
        if self._last is not None:
            self._paint(self._last)
        self._progress.stop()


class MeasuringBar:
    """Episodes that measure policies, on standard error; it appears if they take longer than a
    moment, and goes when they are over."""

    def __init__(self, total: int, show: bool | None = None) -> None:
        self._began, self._total, self._shown = perf_counter(), total, is_shown(show)
        self._progress: Any = None

    def __call__(self, done: float) -> None:
        """So many episodes have been played with each policy."""
        if not self._shown or perf_counter() - self._began < MOMENT:
            return
        if self._progress is None:
            from rich.console import Console
            from rich.progress import Progress

            shown = Console(stderr=True)
            self._progress = Progress(console=shown, auto_refresh=False, transient=True)
            self._task = self._progress.add_task("measuring policies", total=self._total)
            self._progress.start()
        self._progress.update(self._task, completed=done)
        self._progress.refresh()

    def close(self) -> None:
        """Take it from the screen."""
        if self._progress is not None:
            self._progress.stop()
