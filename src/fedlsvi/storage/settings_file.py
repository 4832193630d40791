"""Settings as TOML: read a file, change single keys, write them down again.

A table here is what `tomllib` gives: dictionaries, lists, numbers, words. `fedlsvi.storage.job`
checks what the keys mean.
"""

from __future__ import annotations

import ast
import tomllib
from contextlib import suppress
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import tomli_w

from fedlsvi.errors import InvalidInput
from fedlsvi.storage.schema import bounded

Table = dict[str, Any]


def read(path: str | Path) -> Table:
    """The table in a TOML file."""
    try:
        return parse(Path(path).read_bytes(), path)
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    raise InvalidInput(
        f"settings file {path} {problem}: give the path of a TOML file", code="bad-settings-file"
    ) from None


def parse(data: bytes, path: str | Path) -> Table:
    """The table in a TOML text; errors name `path` as its source."""
    try:
        table: Table = bounded(data, tomllib.loads)
        return table
    except UnicodeDecodeError:
        raise InvalidInput(
            f"settings file {path} is not UTF-8 text: give a TOML file", code="bad-settings-file"
        ) from None
    except ValueError as error:  # bad TOML, or a number of thousands of digits
        raise InvalidInput(
            f"settings file {path} is not valid TOML: {error}", code="bad-settings-file"
        ) from None


def assign(table: Table, assignment: str) -> None:
    """Carry out `key=value` on the table; dots lead into tables, as in `env.horizon=7`.

    The value is read as TOML or Python (7, 0.5, true, [1, 2], (1, 2), "word"); anything else is a
    word.
    """
    key, equals, text = assignment.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not equals or not all(path):
        raise InvalidInput(
            f"--set {assignment!r} is not an assignment: write key=value, e.g. gamma=50",
            code="bad-assignment",
        )
    for part in path[:-1]:
        inner = table.setdefault(part, {})
        if isinstance(inner, str):  # env = "river-swim" is short for env = { name = "river-swim" }
            inner = table[part] = {"name": inner}
        if not isinstance(inner, dict):
            raise InvalidInput(
                f"--set {assignment!r}: '{part}' is not a table, so it has no keys",
                code="bad-assignment",
            )
        table = inner
    table[path[-1]] = _value(text.strip())


def _value(text: str) -> Any:
    with suppress(ValueError):
        return tomllib.loads(f"value = {text}")["value"]
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        value = ast.literal_eval(text)
        if isinstance(value, bool | list | tuple):
            return list(value) if isinstance(value, tuple) else value
    return text


def dump(table: Table) -> str:
    """The TOML text of a table; keys without a value (None) are left out."""
    return tomli_w.dumps(_writable(table))


def _writable(value: Any) -> Any:
    """The value with Python's own numbers and without None."""
    if isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):  # NumPy's too
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, list | tuple):
        return [_writable(item) for item in value]
    if isinstance(value, dict):
        return {key: _writable(item) for key, item in value.items() if item is not None}
    raise InvalidInput(
        f"{value!r} cannot be written as TOML: use numbers, words, lists and tables",
        code="not-toml",
    )
