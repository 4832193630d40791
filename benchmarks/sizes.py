"""One run for each size: T, S, d and H are varied one at a time, each in a process of its own.

The default settings on M=10 agents, S=100, A=5, d=20, H=10, T=100,000. Judge by processor time,
which other work on the machine changes less than it changes the clock.

`python -m benchmarks.sizes T 1000` prints one reading as JSON; `benchmarks.scaling` writes the page
of all of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from dataclasses import asdict, dataclass

from fedlsvi import FedLSVI
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.errors import TrafficWarning
from fedlsvi.experiments.measure import Row, peak_megabytes

BASE = {"T": 100_000, "S": 100, "d": 20, "H": 10}
AGENTS, ACTIONS = 10, 5
SIZES: dict[str, tuple[int, ...]] = {
    "T": (1_000, 10_000, 100_000, 1_000_000),
    "S": (25, 50, 100, 200, 400),
    "d": (5, 10, 20, 40, 80),
    "H": (5, 10, 20, 40),
}


@dataclass(frozen=True)
class SizeReading:
    """One run.

    Attributes:
        axis: Which size differs from `BASE`.
        size: Its value.
        rounds: K.
        cpu: Seconds of all processors together.
        megabytes: At the peak, with some 200 that any run takes.
    """

    axis: str
    size: int
    rounds: int
    cpu: float
    megabytes: float


def measured(axis: str, size: int) -> SizeReading:
    """One run in this process, after short ones that compile."""
    warnings.simplefilter("ignore", TrafficWarning)
    sizes = BASE | {axis: size}
    env = RandomLinearMDP(sizes["S"], ACTIONS, sizes["d"], sizes["H"], seed=0)
    FedLSVI(AGENTS).learn(env, 300, progress=False)
    began = time.process_time()
    run = FedLSVI(AGENTS).learn(env, sizes["T"], progress=False)
    spent = time.process_time() - began
    return SizeReading(axis, size, run.rounds, spent, peak_megabytes())


def size_reading(axis: str, size: int) -> SizeReading:
    """One run in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.sizes", axis, str(size)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return SizeReading(**json.loads(done.stdout.splitlines()[-1]))


def all_readings() -> list[SizeReading]:
    """Every size; the base is read once for each axis."""
    return [size_reading(axis, size) for axis, sizes in SIZES.items() for size in sizes]


def main() -> list[Row]:
    """Time and memory of each."""
    rows = []
    for one in all_readings():
        label = f"{one.axis}={one.size:,}, {one.rounds:,} rounds"
        rows += [
            Row(f"{label}: seconds of one processor", one.cpu, "s"),
            Row("  peak memory", one.megabytes, "MB"),
        ]
    return rows


if __name__ == "__main__":
    print(json.dumps(asdict(measured(sys.argv[1], int(sys.argv[2])))))
