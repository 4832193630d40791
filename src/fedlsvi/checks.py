"""Checks of user input. Each error names the field, the value and what was expected.

The code of the error is "bad-" and the field's name.
"""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Iterable
from importlib import import_module
from numbers import Integral, Real
from typing import Any

from fedlsvi.errors import InvalidInput, InvalidSetting, UnknownName

__all__ = ["boolean", "choice", "integer", "number"]
"""What custom algorithms check their settings with; the rest serves this package."""

WORD = 2**32
"""Counters of the random generator have 32 bits: episodes, agents, streams are below this."""

SEEDS = 2**63
"""Seeds are below this: every generator here takes them."""


def is_integer(value: Any) -> bool:
    """Whether this is a Python or NumPy integer, and not a boolean."""
    return not isinstance(value, bool) and isinstance(value, Integral)


def is_number(value: Any) -> bool:
    """Whether this is a finite Python or NumPy real number, and not a boolean."""
    return not isinstance(value, bool) and isinstance(value, Real) and finite(value)


def finite(value: Any) -> bool:
    """Whether a number fits into a double; an integer may have too many digits."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def plain(value: Any) -> Any:
    """A NumPy number as a Python one, which settings files and JSON can hold."""
    if is_integer(value):
        return int(value)
    real = not isinstance(value, bool) and isinstance(value, Real)
    return float(value) if real else value


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
    """An integer from `least` to `most`.

    Args:
        name: The field.
        value: What was given.
        least: The smallest value allowed.
        hint: What to do instead, appended to the message.
        most: The largest value allowed; below 2^32 by default.
        error: The class of the error.
    """
    whole = is_integer(value)
    if whole and least <= value <= most:
        return int(value)
    limit = {WORD: "2^32", SEEDS: "2^63"}.get(most + 1)
    bound = f"from {least:,} to {most:,}"
    if limit is not None:
        bound = f"below {limit}" if whole and value > most else f"of at least {least:,}"
    raise _refusal(name, value, f"an integer {bound}", hint, error)


def needs_pandas() -> Any:
    """pandas, which is imported where a DataFrame is asked for."""
    try:
        return import_module("pandas")
    except ImportError:
        raise InvalidInput(
            "a DataFrame needs pandas, which is not installed: pip install pandas",
            code="pandas-missing",
        ) from None


def check_seed(seed: Any) -> int:
    """A seed that every random generator here takes."""
    return integer("seed", seed, 0, most=SEEDS - 1)


def number(
    name: str,
    value: Any,
    least: float = -math.inf,
    hint: str = "",
    *,
    most: float = math.inf,
    strict: bool = False,
    error: type[InvalidInput] = InvalidSetting,
) -> float:
    """A finite number from `least` to `most`, or with `strict` between them.

    Args:
        name: The field.
        value: What was given.
        least: The lower bound; −∞ is none.
        hint: What to do instead, appended to the message.
        most: The upper bound; ∞ is none.
        strict: Whether the bounds themselves are excluded.
        error: The class of the error.
    """
    inside = is_number(value) and least <= value <= most
    if inside and not (strict and value in (least, most)):
        return float(value)
    bounds = []
    if math.isfinite(least):
        bounds.append(f"{'above' if strict else 'of at least'} {least:g}")
    if math.isfinite(most):
        bounds.append(f"{'below' if strict else 'at most'} {most:g}")
    expected = f"a finite number {' and '.join(bounds)}".rstrip()
    raise _refusal(name, value, expected, hint, error)


def refuse_large(what: str, numbers: int, fix: str) -> None:
    """Refuse what takes more numbers than this machine has memory for."""
    room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if 8 * numbers > room:
        raise InvalidSetting(
            f"{what} takes {8 * numbers / 2**30:,.0f} GiB of memory, but this machine has "
            f"{room / 2**30:,.0f} GiB: {fix}",
            code="too-large",
        )


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


def refuse_unknown(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise `UnknownName` for the first name that is not among the known ones."""
    names = list(known)
    for name in given:
        if name not in names:
            raise UnknownName(what, name, names)


def boolean(name: str, value: Any, hint: str = "") -> bool:
    """True or false."""
    if isinstance(value, bool):
        return value
    raise _refusal(name, value, "true or false", hint, InvalidSetting)


def _refusal(
    name: str, value: Any, expected: str, hint: str, error: type[InvalidInput]
) -> InvalidInput:
    sentence = f"{name} must be {expected}, got {shown(value)}"
    return error(sentence, code=f"bad-{name}", hint=hint)
