"""Settings as TOML: read a file, change single keys, write them down again.

A table here is what `tomllib` gives: dictionaries, lists, numbers, words. What the keys mean is
checked by `fedlsvi.storage.job`.
"""

from __future__ import annotations

import json
import re
import tomllib
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from fedlsvi.errors import InvalidInput
from fedlsvi.storage.schema import bounded

Table = dict[str, Any]

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def read(path: str | Path) -> Table:
    """The table in a TOML file."""
    try:
        return parse(Path(path).read_bytes(), path)
    except OSError as error:
        raise InvalidInput(
            f"settings file {path} cannot be read ({error.strerror}): give the path of a TOML file"
        ) from None


def parse(data: bytes, path: str | Path) -> Table:
    """The table that a text of TOML is; `path` is where it stands."""
    try:
        table: Table = bounded(data, tomllib.loads)
        return table
    except UnicodeDecodeError:
        raise InvalidInput(
            f"settings file {path} is not UTF-8 text: give the path of a TOML file"
        ) from None
    except ValueError as error:  # bad TOML, or a number of thousands of digits
        raise InvalidInput(f"settings file {path} is not valid TOML: {error}") from None


def assign(table: Table, assignment: str) -> None:
    """Carry out `key=value` on the table; dots lead into tables, as in `env.horizon=7`.

    The value is read as TOML where it can be (7, 0.5, true, [1, 2], "word"), else it is a word.
    """
    key, equals, text = assignment.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not equals or not all(path):
        raise InvalidInput(
            f"--set {assignment!r} is not an assignment: write key=value, e.g. gamma=50"
        )
    for part in path[:-1]:
        inner = table.setdefault(part, {})
        if isinstance(inner, str):  # env = "river-swim" is short for env = { name = "river-swim" }
            inner = table[part] = {"name": inner}
        if not isinstance(inner, dict):
            raise InvalidInput(f"--set {assignment!r}: '{part}' is not a table, so it has no keys")
        table = inner
    table[path[-1]] = _value(text.strip())


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text


def dump(table: Table) -> str:
    """The TOML text of a table; keys without a value (None) are left out."""
    lines: list[str] = []
    inner: list[tuple[str, Any]] = []
    for key, value in table.items():
        if isinstance(value, dict) or _tables(value):
            inner.append((key, value))
        elif value is not None:
            lines.append(f"{_key(key)} = {_inline(value)}")
    for key, value in inner:
        rows = [value] if isinstance(value, dict) else value
        header = f"[{_key(key)}]" if isinstance(value, dict) else f"[[{_key(key)}]]"
        for row in rows:
            lines += ["", header]
            lines += [f"{_key(k)} = {_inline(v)}" for k, v in row.items() if v is not None]
    return "\n".join(lines) + "\n"


def _tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(value: str) -> str:
    # JSON's escapes are TOML's too, but for DEL, which TOML wants escaped
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def _inline(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Integral):  # NumPy's too
        return str(int(value))
    if isinstance(value, Real):
        return repr(float(value))  # inf, nan: TOML has the same words
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_inline(item) for item in value) + "]"
    if isinstance(value, dict):
        inside = ", ".join(f"{_key(k)} = {_inline(v)}" for k, v in value.items() if v is not None)
        return "{" + inside + "}"
    raise InvalidInput(f"{value!r} cannot be written as TOML: use numbers, words, lists and tables")
