"""Checks of what a user gives: each names the field, the value and what was expected."""

from __future__ import annotations

import math
import reprlib
from typing import Any

import numpy as np

from fedlsvi.errors import InvalidInput, InvalidSetting

WORD = 2**32
"""Counters of the random generator are 32 bits wide."""


def is_integer(value: Any) -> bool:
    """Whether this is an integer of Python or NumPy, and not a boolean."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether this is a finite real number of Python or NumPy, and not a boolean."""
    real = isinstance(value, int | float | np.integer | np.floating)
    return real and not isinstance(value, bool) and finite(value)


def finite(value: Any) -> bool:
    """Whether a number fits into a double; an integer may have too many digits."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def plain(value: Any) -> Any:
    """NumPy's numbers as Python's own, which settings files and JSON can hold."""
    if isinstance(value, np.integer):
        return int(value)
    return float(value) if isinstance(value, np.floating) else value


def shown(value: Any) -> str:
    """The value as it was given, shortened in the middle if it is long."""
    return reprlib.repr(value) if isinstance(value, int | str) else repr(value)


def plural(n: int, noun: str) -> str:
    """'1 step', '2,000 steps'."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def integer(
    name: str,
    value: Any,
    least: int,
    hint: str = "",
    *,
    most: int = WORD - 1,
    error: type[InvalidInput] = InvalidSetting,
) -> int:
    """An integer from `least` to `most`; below 2^32 unless `most` says otherwise."""
    whole = is_integer(value)
    if whole and least <= value <= most:
        return int(value)
    bound = f"of at least {least:,}"
    if most != WORD - 1:
        top = "2^63 − 1" if most == 2**63 - 1 else f"{most:,}"
        bound = f"from {least:,} to {top}"
    elif whole and value > most:
        bound = "below 2^32"
    raise _refusal(name, value, f"an integer {bound}", hint, error)


def check_seed(seed: Any) -> int:
    """A seed that every random generator here takes."""
    return integer("seed", seed, 0, most=2**63 - 1)


def number(
    name: str,
    value: Any,
    least: float = -math.inf,
    hint: str = "",
    *,
    strict: bool = False,
    error: type[InvalidInput] = InvalidSetting,
) -> float:
    """A finite number of at least, or with `strict` above, `least`."""
    if is_number(value) and (value > least or (value == least and not strict)):
        return float(value)
    bound = f" {'above' if strict else 'of at least'} {least:g}" if math.isfinite(least) else ""
    raise _refusal(name, value, f"a finite number{bound}", hint, error)


def choice(
    name: str,
    value: Any,
    choices: tuple[str, ...],
    hint: str = "",
    *,
    error: type[InvalidInput] = InvalidSetting,
) -> str:
    """One of a few words."""
    if isinstance(value, str) and value in choices:
        return value
    known = ", ".join(f'"{c}"' for c in choices)
    raise _refusal(name, value, f"one of {known}", hint, error)


def boolean(name: str, value: Any, hint: str = "") -> bool:
    """True or false."""
    if isinstance(value, bool):
        return value
    raise _refusal(name, value, "true or false", hint, InvalidSetting)


def _refusal(
    name: str, value: Any, expected: str, hint: str, error: type[InvalidInput]
) -> InvalidInput:
    hint = f": {hint}" if hint else ""
    return error(f"{name} must be {expected}, got {shown(value)}{hint}", code=f"bad-{name}")
