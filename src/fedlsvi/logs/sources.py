"""Where logs come from: a source gives its rows in blocks, in the same blocks every time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedlsvi.checks import refuse_unknown
from fedlsvi.logs.labels import EpisodeIds, is_missing, is_text
from fedlsvi.logs.rows import KNOWN, InvalidRecord, Rows, rows_of

BLOCK = 1 << 18
"""Rows that are read at a time, so that a table may be larger than memory."""

CSV_BYTES = 1 << 23
"""Bytes of a CSV file that are read at a time."""

Columns = Mapping[str, str | Sequence[str]]
"""Name of a column here → its name in the log; observations may be several columns."""


class ActionNames(NamedTuple):
    """The names of actions in a log."""

    names: tuple[str, ...]
    ordered: bool
    """Whether their order was given with them, as that of categories is."""


class Source(Protocol):
    """A log."""

    name: str
    """What messages call it."""

    action_names: Sequence[str] | None
    """What actions are called, in the order of their numbers; None where the log numbers them."""

    def names_in_log(self) -> ActionNames | None:
        """What the log itself calls its actions; None where it numbers them."""
        ...

    def blocks(self) -> Iterator[Rows]:
        """All rows in their order, some at a time."""
        ...

    def spec(self) -> dict[str, Any] | None:
        """What makes the source again, ready for JSON; None of arrays."""
        ...


class ArraySource:
    """A log that is in memory: arrays by name, or a data frame."""

    name = "arrays"

    def __init__(self, data: Any, columns: Columns | None = None) -> None:
        self.columns = _renamed([str(key) for key in data.keys()], columns)  # noqa: SIM118
        self.data = {
            key: np.asarray(data[own])
            if isinstance(own, str)
            else np.column_stack([np.asarray(data[part]) for part in own])
            for key, own in self.columns.items()
        }
        for key in ("episode", "agent", "action"):  # words and numbers are all words
            column = self.data.get(key)
            if column is not None and column.dtype == object and is_text(column):
                words = [v if is_missing(v) else str(v) for v in column.tolist()]
                self.data[key] = np.array(words, dtype=object)
        self.action_names: Sequence[str] | None = None
        action = self.columns.get("action")
        kind = getattr(data[action], "dtype", None) if isinstance(action, str) else None
        self._categories = getattr(kind, "categories", None)

    def names_in_log(self) -> ActionNames | None:
        column = self.data.get("action")
        if column is None or not is_text(column):
            return None
        if self._categories is not None:
            return ActionNames(tuple(str(name) for name in self._categories), True)
        return ActionNames(_words(set(column.tolist())), False)

    def blocks(self) -> Iterator[Rows]:
        n, ids = max((len(column) for column in self.data.values()), default=0), EpisodeIds()
        for at in range(0, n, BLOCK):
            cut = {name: column[at : at + BLOCK] for name, column in self.data.items()}
            yield rows_of(cut, at + 1, ids, self.action_names)

    def spec(self) -> dict[str, Any] | None:
        return None


class TableSource:
    """A Parquet or CSV file, read in blocks by pyarrow."""

    def __init__(self, path: str | PathLike[str], columns: Columns | None = None) -> None:
        self.path, self._given = Path(path).absolute(), columns
        self.name = self.path.name
        self.action_names: Sequence[str] | None = None
        if self.path.suffix not in (".parquet", ".csv"):
            raise InvalidRecord(
                f"{self.path} is neither a .parquet nor a .csv file: give one of these",
                code="bad-file",
            )
        try:
            there = self.path.is_file()
        except OSError:  # a name that is too long
            there = False
        if not there:
            raise InvalidRecord(f"{self.path} does not exist: give the path of a log",
                                code="no-file")  # fmt: skip

    def names_in_log(self) -> ActionNames | None:
        found: set[Any] = set()
        with self._readable():
            for batch in self._batches():
                name = _renamed(batch.schema.names, self._given).get("action")
                if not isinstance(name, str) or not is_text(column := _column(batch, name)):
                    return None
                found |= set(column.tolist())
        return ActionNames(_words(found), False)

    def blocks(self) -> Iterator[Rows]:
        at, ids = 1, EpisodeIds()
        with self._readable():
            for batch in self._batches():
                own = _renamed(batch.schema.names, self._given)
                cut = {
                    key: _column(batch, name)
                    if isinstance(name, str)
                    else np.column_stack([_column(batch, part) for part in name])
                    for key, name in own.items()
                }
                yield rows_of(cut, at, ids, self.action_names)
                at += len(batch)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """What a file from someone else raises, in a sentence."""
        arrow = _pyarrow()
        try:
            yield
        except InvalidRecord:
            raise
        except (arrow.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
            # of a file from someone else every one of these was seen: a name that is no text or
            # there twice, a page that is damaged, a type that pyarrow does not know
            reason = "".join(c if c.isprintable() else " " for c in str(error))
            raise InvalidRecord(
                f"{self.path} cannot be read as a {self.path.suffix[1:]} table: "
                f"{' '.join(reason.split())[:200]}",
                code="unreadable-table",
            ) from None

    def _batches(self) -> Iterator[Any]:
        if self.path.suffix == ".parquet":
            from pyarrow import parquet

            with parquet.ParquetFile(self.path) as file:
                yield from file.iter_batches(batch_size=BLOCK)
        else:
            from pyarrow import csv

            with csv.open_csv(self.path, csv.ReadOptions(block_size=CSV_BYTES)) as file:
                yield from file

    def spec(self) -> dict[str, Any]:
        return {"file": str(self.path)}


def _column(batch: Any, name: str) -> np.ndarray:
    """A column of a batch; missing values stay None, lists become rows, categories words."""
    import pyarrow

    column = batch.column(name)
    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if column.null_count == 0:
        if pyarrow.types.is_list(kind) or pyarrow.types.is_fixed_size_list(kind):
            return np.array(column.to_pylist(), dtype=object) if _ragged(column) else np.array(
                column.flatten().to_numpy(zero_copy_only=False)
            ).reshape(len(column), -1)  # fmt: skip
        found: np.ndarray = column.to_numpy(zero_copy_only=False)
        return found
    return np.array(column.to_pylist(), dtype=object)


def _words(values: set[Any]) -> tuple[str, ...]:
    return tuple(sorted(str(value) for value in values if not is_missing(value)))


def _ragged(column: Any) -> bool:
    lengths = column.value_lengths().to_numpy(zero_copy_only=False)
    return bool(len(lengths)) and bool((lengths != lengths[0]).any())


def _renamed(there: Sequence[str], given: Columns | None) -> dict[str, str | list[str]]:
    """Name of each column that is used → what it is called in the log."""
    _check_columns(given)
    refuse_unknown("column of a log", given or {}, KNOWN)
    found: dict[str, str | list[str]] = {}
    for key in KNOWN:
        own = (given or {}).get(key, key)
        names = [own] if isinstance(own, str) else list(own)
        if key not in (given or {}) and key not in there:
            parts = [name for name in there if name.startswith(f"{key}_")]
            numbered = [name for name in parts if name[len(key) + 1 :].isdigit()]
            names = sorted(numbered, key=lambda name: int(name[len(key) + 1 :]))
            if not names:
                continue
            found[key] = names
            continue
        lost = [name for name in names if name not in there]
        if lost:
            raise InvalidRecord(
                f"the log has no column '{lost[0]}', which stands for '{key}'; its columns are "
                f"{', '.join(there)}",
                code="missing-column",
                hint=f"give columns={{'{key}': 'NAME'}} with one of these",
                shell_hint=f"give --column {key}=NAME with one of these",
            )
        found[key] = names[0] if isinstance(own, str) else names
    return found


def _check_columns(given: Any) -> None:
    """Refuse `columns=` that does not give names."""
    table = {} if given is None else given
    if isinstance(table, Mapping):
        lists = [[own] if isinstance(own, str) else own for own in table.values()]
        if all(
            isinstance(names, list | tuple) and names and all(isinstance(n, str) for n in names)
            for names in lists
        ):
            return
    raise InvalidRecord(
        f"columns is {given!r}: map any of {KNOWN} to the name of a column, or to a list of names",
        code="bad-columns",
    )


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise InvalidRecord(
            'Parquet and CSV files need pyarrow: pip install "fedlsvi[data]"', code="needs-pyarrow"
        ) from None
    return pyarrow


class MinariSource:
    """A Minari data set: a Farama standard for recorded episodes."""

    def __init__(self, dataset: Any) -> None:
        self._id = dataset if isinstance(dataset, str) else None
        self._dataset = _minari(dataset) if isinstance(dataset, str) else dataset
        self.name = str(self._dataset.id)
        self.action_names: Sequence[str] | None = None

    def names_in_log(self) -> ActionNames | None:
        return None

    def blocks(self) -> Iterator[Rows]:
        parts: list[dict[str, np.ndarray]] = []
        size, at = 0, 1
        for number, episode in enumerate(self._dataset.iterate_episodes()):
            n = len(episode.actions)
            if isinstance(episode.observations, dict | tuple):
                raise InvalidRecord(
                    f"{self.name} has observations with several parts: flatten them into one array",
                    code="bad-width",
                )
            seen = np.asarray(episode.observations)
            parts.append({
                "episode": np.full(n, number), "step": np.arange(1, n + 1),
                "observation": seen[:n], "action": np.asarray(episode.actions),
                "reward": np.asarray(episode.rewards),
                "terminated": np.asarray(episode.terminations, bool),
                "next_observation": seen[1 : n + 1],
            })  # fmt: skip
            size += n
            if size >= BLOCK:
                yield _joined(parts, at)
                at, size, parts = at + size, 0, []
        if parts:
            yield _joined(parts, at)

    def spec(self) -> dict[str, Any] | None:
        return None if self._id is None else {"minari": self._id}


def _joined(parts: list[dict[str, np.ndarray]], first: int) -> Rows:
    return rows_of({k: np.concatenate([part[k] for part in parts]) for k in parts[0]}, first)


def _minari(name: str) -> Any:
    try:
        import minari
    except ImportError:
        raise InvalidRecord(
            'Minari data sets need minari: pip install "fedlsvi[minari]"', code="needs-minari"
        ) from None
    try:
        return minari.load_dataset(name)
    except (FileNotFoundError, ValueError) as error:
        raise InvalidRecord(
            f"the Minari data set '{name}' is not on this machine ({error}): download it with "
            "`minari download`",
            code="no-file",
        ) from None


def as_source(data: Any, columns: Columns | None = None) -> Source:
    """A source of whatever `data=` may be: a path, arrays by name, a data frame, a Minari set."""
    if isinstance(data, str) and data.startswith("minari:"):
        return MinariSource(data.removeprefix("minari:"))
    if isinstance(data, str | PathLike):
        return TableSource(data, columns)
    if hasattr(data, "iterate_episodes"):
        return MinariSource(data)
    if hasattr(data, "keys"):
        return ArraySource(data, columns)
    if hasattr(data, "blocks"):
        return data  # type: ignore[no-any-return]
    raise InvalidRecord(
        f"data is of type {type(data).__name__}: give the path of a Parquet or CSV file, arrays by "
        "name, a data frame, a Minari data set, or a list with one of these per agent",
        code="bad-data",
    )
