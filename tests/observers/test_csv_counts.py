"""Counts of a long run, to the last digit."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

from fedlsvi import FedLSVI
from fedlsvi.envs import RiverSwim
from fedlsvi.observers import CSVLog


def test_integers_are_written_exactly(tmp_path: Path) -> None:
    record = FedLSVI(2).learn(RiverSwim(3, 4), 5, progress=False).records[-1]
    log = CSVLog(tmp_path / "rounds.csv")
    log(replace(record, first=1, scalars={"upload": 12_345_678_901}, regret=1.0 / 3.0))
    log.close()
    with (tmp_path / "rounds.csv").open() as file:
        row = next(csv.DictReader(file))
    assert row["scalars/total"] == row["scalars/upload"] == "12345678901"
    assert row["regret"] == "0.3333333333"
