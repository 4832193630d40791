"""Every error that fedlsvi raises on purpose.

FedLSVIError
├── InvalidInput            what the caller gave cannot be used; the CLI exits with 2
│   ├── InvalidSetting      a number or word of the run's settings
│   ├── UnknownName         a key, environment, algorithm or feature map that does not exist
│   ├── InvalidEnvironment  transitions, rewards or initial states that are not an MDP
│   └── InvalidFeatures     a feature map outside the unit ball, or of the wrong shape
├── StoreError              a run folder that cannot be written or read; the CLI exits with 2
│   ├── FolderExists        the folder already holds a run
│   ├── DamagedFile         a file whose hash, length or format is wrong
│   └── WrongVersion        a folder written by another format version
├── MessageRefused          an upload that no honest agent could have sent
└── TransportError          an agent could not be reached, or answered out of turn

FedLSVIWarning
├── TrafficWarning          more is sent than the raw data, or a single episode is uploaded
├── UnnamedPatientsWarning  patients are to be protected, but a log does not say whose it is
└── ContinuationWarning     a continued run differs from one that was as long from the start
"""

from __future__ import annotations

import difflib
import os
import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class FedLSVIError(Exception):
    """Base class: catch this to catch every error that fedlsvi raises on purpose.

    Attributes:
        code: A stable name of the problem, such as "bad-gamma". Programs and tests match it; the
            sentence for people may change.
        hint: What to do about it, for Python users; the message ends with it.
        shell_hint: What the command line says in its place; if empty, its own hint for the code.
    """

    code = ""
    hint = ""
    shell_hint = ""

    def __init__(
        self, message: str = "", *, code: str = "", hint: str = "", shell_hint: str = ""
    ) -> None:
        super().__init__(f"{message}: {hint}" if hint else message)
        if code:
            self.code = code
        if hint:
            self.hint = hint
        if shell_hint:
            self.shell_hint = shell_hint


class FedLSVIWarning(UserWarning):
    """Base of what fedlsvi warns of, to filter all of it at once."""


class TrafficWarning(FedLSVIWarning):
    """A run sends more than its raw data, or uploads that sum up a single episode."""


class UnnamedPatientsWarning(FedLSVIWarning):
    """A log that patients are to be protected in does not say whose episodes it holds."""


class ContinuationWarning(FedLSVIWarning):
    """A continued run differs from one that was as long from the start."""


def warn(message: str, category: type[Warning] = FedLSVIWarning) -> None:
    """Warn at the line that called this package, whatever lies between it and here."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


class InvalidInput(FedLSVIError, ValueError):
    """What the caller gave cannot be used; the message says what to change."""


class InvalidSetting(InvalidInput):
    """A setting of a run is out of its range."""


REGISTRIES = ("environment", "algorithm", "features")
"""Kinds of names that other modules can register."""


class UnknownName(InvalidInput):
    """A name that is not known, with the nearest one that is."""

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        """Name what is unknown and suggest a name.

        Args:
            what: The kind of name, e.g. "environment".
            name: The name that was given.
            known: All names there are. If they are the keys of registry rows, a class name such
                as "FourierFeatures" leads to the name that it is registered by.
        """
        choices = sorted(known)
        rows = known.items() if isinstance(known, Mapping) else ()
        words = {_class_name(row): key for key, row in rows} | {key: key for key in choices}
        near = [name] if name in words else difflib.get_close_matches(name, words, 1, 0.5)
        hint = shell_hint = (
            f"did you mean '{words[near[0]]}'?" if near else f"choose from: {', '.join(choices)}."
        )
        if what in REGISTRIES:
            hint += " To use your own, first import the module that registers it."
            shell_hint += " To use your own, pass --import FILE or set FEDLSVI_IMPORT."
        code = f"unknown-{what.split()[0]}"
        super().__init__(f"unknown {what} '{name}'", code=code, hint=hint, shell_hint=shell_hint)

    def __reduce__(self) -> tuple[object, ...]:
        """Exceptions are copied from their message, which here is not what the class is given."""
        return _copied, (type(self), self.args, vars(self))


def _class_name(row: Any) -> str:
    """The name of a registry row's constructor, which may be given as "module:attribute"."""
    made = getattr(row, "target", None) or getattr(row, "constructor", None)
    return made.rpartition(":")[2] if isinstance(made, str) else getattr(made, "__name__", "")


def _copied(kind: type[FedLSVIError], given: tuple[Any, ...], state: Any) -> FedLSVIError:
    error = kind.__new__(kind, *given)
    error.__setstate__(state)
    return error


class InvalidEnvironment(InvalidInput):
    """Arrays or callables that do not describe a Markov decision process."""


class InvalidFeatures(InvalidInput):
    """A feature map that breaks ‖φ(x,a)‖ ≤ 1 or has the wrong shape."""


class StoreError(FedLSVIError):
    """A run folder that cannot be written or read."""


class FolderExists(StoreError):
    """The folder already holds a run, and a run is never overwritten."""

    code = "folder-exists"


class DamagedFile(StoreError):
    """A file that is truncated, altered or not what its manifest says."""


class WrongVersion(StoreError):
    """A run folder in another version of the format."""


class MessageRefused(FedLSVIError):
    """An upload that fails the server's checks; the message names agent, round, step and field."""


class TransportError(FedLSVIError):
    """An agent could not be reached, raised, or answered out of turn."""
