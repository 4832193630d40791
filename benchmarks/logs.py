"""Ten million logged transitions in a Parquet file: how long until they are statistics?"""

from __future__ import annotations

import resource
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from fedlsvi import PEVI
from fedlsvi.envs import logged_worlds
from fedlsvi.experiments.measure import Row

EPISODES, HORIZON, STATES, ACTIONS = 500_000, 20, 10, 4


def write(path: Path, episodes: int) -> None:
    """A log of random rows, S=10, A=4 (d=40), H=20; what is in it does not matter for the time."""
    import pyarrow
    from pyarrow import parquet

    part, writer = 50_000, None
    for first in range(0, episodes, part):
        rng, n = np.random.default_rng(first), part * HORIZON
        columns = {
            "episode": np.repeat(np.arange(first, first + part), HORIZON),
            "step": np.tile(np.arange(1, HORIZON + 1), part),
            "observation": rng.integers(STATES, size=n),
            "action": rng.integers(ACTIONS, size=n),
            "reward": rng.random(n).round(2),
            "terminated": np.zeros(n, bool),
        }
        table = pyarrow.table(columns)
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def megabytes() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> list[Row]:
    """10⁷ transitions (500,000 episodes, S=10, A=4, one-hot d=40, H=20), checked and summarised."""
    with TemporaryDirectory() as folder:
        path, small = Path(folder) / "log.parquet", Path(folder) / "small.parquet"
        write(path, EPISODES)
        write(small, EPISODES // 10)
        PEVI().learn(logged_worlds(small), progress=False)
        before, began = megabytes(), perf_counter()
        worlds = logged_worlds(path)
        checked = perf_counter()
        run = PEVI().learn(worlds, progress=False)
        ended = perf_counter()
        assert run.counts["logged_transitions"] == EPISODES * HORIZON
        size = path.stat().st_size / 2**20
    seconds, more = ended - began, megabytes() - before
    return [
        Row("10⁷ logged transitions, checked and learned from", seconds, "s", "seconds",
            seconds < 30.0),
        Row("  of this, the pass that checks", checked - began, "s"),
        Row("  memory beyond that of 10⁶ transitions", more, "MB", "bounded", more < 100.0),
        Row("  the file", size, "MB"),
    ]  # fmt: skip
