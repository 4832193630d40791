"""What a file from someone else may say: JSON and TOML of bounded size and depth, of known shape.

A shape is a type (`int` is a count from 0 to 2^63 − 1, `float` any number), a pattern that a text
must match, `None`, `Any`, a tuple of alternatives, `[shape]` for a list, `{"field": shape}` for a
table with exactly these fields, in which `str: shape` allows others, or a function that says yes or
no. A seal has no key, so that a hash proves a file whole and never honest.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fedlsvi.checks import SEEDS, is_number
from fedlsvi.errors import DamagedFile, FedLSVIError

LONGEST = 1 << 26
"""Bytes of a JSON or TOML file."""

DEEPEST = 32
"""Tables and lists inside one another."""

PLAIN_NAME = re.compile(r"(?!\.{1,2}$)[^/\\\x00-\x1f]{1,255}")
"""A name inside a folder, which leads nowhere else."""

Shape = Any


def bounded(data: bytes, loads: Callable[[str], Any], shallow: bool = False) -> Any:
    """The value of a text.

    Args:
        data: The text.
        loads: Reads JSON or TOML.
        shallow: Whether it is known not to be deep.

    Raises:
        ValueError: It is too long or too deep, or `loads` refuses it.
    """
    if len(data) > LONGEST:
        raise ValueError(f"more than {LONGEST} bytes")
    with suppress(RecursionError):
        value = loads(data.decode())
        if shallow or not _deeper(value, DEEPEST):
            return value
    raise ValueError(f"tables and lists more than {DEEPEST} deep")


def parse_json(path: Path, data: bytes) -> Any:
    """The value of a JSON text, which stands at `path`."""
    try:  # brackets are counted much faster than levels
        return bounded(data, json.loads, data.count(b"[") + data.count(b"{") <= DEEPEST)
    except ValueError as error:
        raise _damaged(path, f"it is not JSON ({error})") from None


def _deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return False
    return levels == 0 or any(_deeper(item, levels - 1) for item in inner)


def shape_of(kind: Any) -> Shape:
    """The shape of the JSON that a dataclass, or a type of one of its fields, is written as."""
    origin, parts = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return {field.name: shape_of(hints[field.name]) for field in dataclasses.fields(kind)}
    if origin is Literal:
        return re.compile("|".join(map(re.escape, parts)))
    inner = tuple(shape_of(part) for part in parts)
    if origin in (Union, UnionType):
        return inner
    if origin is tuple:
        return lambda value: misfit(value, [inner]) is None and len(value) == len(inner)
    if origin in (list, dict):
        return [inner[0]] if origin is list else {str: inner[1]}
    return None if kind is NoneType else kind


def check_shape(path: Path, content: Any, shape: Shape) -> None:
    """Refuse content of another shape.

    Raises:
        DamagedFile: The message names the first field that does not fit.
    """
    wrong = misfit(content, shape)
    if wrong is not None:
        raise _damaged(path, wrong)


def misfit(value: Any, shape: Shape, name: str = "it") -> str | None:
    """What does not fit, in a few words; None where all does."""
    if isinstance(shape, dict) and isinstance(value, dict):
        fields = shape.keys() - {str}
        if not fields <= value.keys() or (str not in shape and fields != value.keys()):
            return f"{name} has the fields {sorted(value)[:20]}, not {sorted(fields)}"
        inner = [
            (f"{name}.{key}", item, shape.get(key, shape.get(str))) for key, item in value.items()
        ]
    elif isinstance(shape, list) and isinstance(value, list):
        inner = [(f"{name}[{i}]", item, shape[0]) for i, item in enumerate(value)]
    else:
        return None if _fits(value, shape) else f"{name} is {repr(value)[:80]}"
    return next((wrong for n, v, s in inner if (wrong := misfit(v, s, n)) is not None), None)


def _fits(value: Any, shape: Shape) -> bool:
    if shape is Any or shape is None:
        return shape is Any or value is None
    if isinstance(shape, tuple):
        return any(misfit(value, part) is None for part in shape)
    if isinstance(shape, re.Pattern):
        return isinstance(value, str) and shape.fullmatch(value) is not None
    if shape is int:
        return type(value) is int and 0 <= value < SEEDS
    if shape is float:
        return is_number(value) or isinstance(value, float)
    if isinstance(shape, type):
        return isinstance(value, shape)
    return callable(shape) and bool(shape(value))


@contextmanager
def suspect(path: Path) -> Iterator[None]:
    """What is done with the contents of a file, and depends on more than their shape.

    Only their reader knows which arrays and numbers fit together, and it raises whatever NumPy and
    Python raise where they do not.

    Raises:
        DamagedFile: Something else than an error of this package was raised inside.
    """
    try:
        yield
    except FedLSVIError:
        raise
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise _damaged(path, f"its contents do not fit together ({said})") from error


def _damaged(path: Path, why: str) -> DamagedFile:
    return DamagedFile(
        f"{path} is damaged ({why}): restore it from a backup, or start over", code="damaged"
    )
