"""Logs from someone else: whatever stands in a Parquet or CSV file, it is read or refused in a
sentence."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from expecting import refused
from fedlsvi.envs import RandomMDP, record_episodes, write_records
from fedlsvi.errors import FedLSVIError, InvalidSetting
from fedlsvi.logs.rows import InvalidRecord
from fedlsvi.logs.world import logged_worlds
from repeats import repeats

MUTATED = repeats(60, 2_000)
"""Files of each kind."""

SNIPPETS = (b"\xff" * 4, bytes(4), b"\x7f\xff\xff\xff", b"\n\n", b",,,", b'"', b"1e400", b"-1")


@pytest.fixture(scope="module")
def log() -> dict[str, np.ndarray]:
    env = RandomMDP(n_states=4, n_actions=3, horizon=3, seed=1)
    return record_episodes(env, 10)


def same(value: Any, kind: Any = None) -> Any:
    """A column of 30 rows that are all the same."""
    return pa.array([value] * 30, kind)


STRANGE = {
    # a column in place of the log's own
    "nested": ("observation", same([[1.0]])),
    "words": ("observation", same(["x"])),
    "ragged words": ("observation", pa.array([["x"]] * 29 + [["x", "y"]])),
    "gaps": ("observation", same([1.0, None])),
    "tables": ("observation", same({"a": 1})),
    "pairs": ("observation", same([("a", 1)], pa.map_(pa.string(), pa.int64()))),
    "bytes": ("observation", same(b"\xff")),
    "times": ("observation", same(0, pa.timestamp("ns"))),
    "spans": ("step", same(1, pa.duration("ns"))),
    "no lists": ("observation", same([], pa.list_(pa.float64()))),
    "nothing": ("reward", pa.nulls(30)),
    "large": ("action", same(2**64 - 1, pa.uint64())),
    "larger": ("episode", same(1e300)),
    "mask of words": ("allowed", same("111")),
    "mask with gaps": ("allowed", same([True, None, True])),
    "mask too wide": ("allowed", same([True] * 1000)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", STRANGE)
def test_columns_of_other_types_are_refused(
    what: str, log: dict[str, np.ndarray], tmp_path: Path
) -> None:
    name, column = STRANGE[what]
    assert len(log["step"]) == 30
    parquet.write_table(pa.table({**log, name: column}), tmp_path / "log.parquet")
    with pytest.raises(FedLSVIError):
        logged_worlds(tmp_path / "log.parquet", horizon=3, n_states=4, n_actions=3)


@pytest.mark.parametrize("name", ["action", "observation"])
def test_one_large_number_takes_no_memory(
    name: str, log: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """Sizes that are left out are those of the log: 10¹² actions were a MemoryError."""
    log = {key: column.copy() for key, column in log.items() if key != "next_observation"}
    log[name][7] = 10**12
    parquet.write_table(pa.table(log), tmp_path / "log.parquet")
    with refused(InvalidSetting, "too-large", str(10**12 + 1)):
        logged_worlds(tmp_path / "log.parquet")


def test_names_that_are_no_text_or_there_twice(log: dict[str, np.ndarray], tmp_path: Path) -> None:
    write_records(log, tmp_path / "log.csv")
    data = (tmp_path / "log.csv").read_bytes()
    for bad in (data.replace(b"action", b"acti\xf6n", 1), data.replace(b"reward", b"step", 1)):
        (tmp_path / "bad.csv").write_bytes(bad)
        with refused(InvalidRecord, "unreadable-table", "bad.csv"):
            logged_worlds(tmp_path / "bad.csv")
    with refused(InvalidRecord, "no-file"):
        logged_worlds("x" * 5000 + ".csv")


def test_an_error_writes_nothing_to_the_terminal_but_its_sentence(
    log: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """pyarrow quotes what it cannot read, also codes that move a terminal's cursor."""
    write_records(log, tmp_path / "log.csv")
    data = (tmp_path / "log.csv").read_text().replace("\n0,", "\n0,\x1b[2J\x07,", 1)
    (tmp_path / "log.csv").write_text(data)
    with refused(InvalidRecord, "unreadable-table") as caught:
        logged_worlds(tmp_path / "log.csv")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "columns", [5, 0, True, ["action"], {"action": 5}, {"action": None}, {"action": []},
                {"observation": [["x"]]}],
)  # fmt: skip
def test_names_of_columns_are_texts(
    columns: Any, log: dict[str, np.ndarray], tmp_path: Path
) -> None:
    write_records(log, tmp_path / "log.csv")
    for data in (log, tmp_path / "log.csv"):
        with refused(InvalidRecord, "bad-columns"):
            logged_worlds(data, columns=columns)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_mutated_logs_raise_nothing_foreign(
    kind: str, log: dict[str, np.ndarray], tmp_path: Path
) -> None:
    path, rng, ends = tmp_path / f"log.{kind}", random.Random(kind), Counter[str]()
    write_records(log, path)
    data = path.read_bytes()
    for _ in range(MUTATED):
        bad = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 5))):
            last = rng.random() < 0.5  # what a Parquet file says about itself stands at its end
            at = rng.randrange(max(len(bad) - 300, 0) if last else 0, len(bad))
            how = rng.randrange(4)
            if how == 0:
                bad[at] ^= 1 << rng.randrange(8)
            elif how == 1:
                del bad[at : at + rng.randrange(1, 20)]
            elif how == 2:
                bad[at:at] = rng.randbytes(rng.randrange(1, 9))
            else:
                bad[at : at + 4] = rng.choice(SNIPPETS)
        path.write_bytes(bad)
        try:
            logged_worlds(path, horizon=3, n_states=4, n_actions=3, allowed="seen")
        except FedLSVIError as error:
            ends[error.code] += 1
        else:
            ends["read"] += 1
    assert ends["unreadable-table"] > MUTATED // 10
    assert ends["read"] > 0
