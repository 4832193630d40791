"""A job of many rounds on NVIDIA FLARE; `benchmarks/endurance.py` has ten thousand."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from parties import FEDERATION, SITES, processes, submit

from fedlsvi.remote.flare import project
from fedlsvi.remote.flare.log import ENDED
from fedlsvi.remote.flare.provision import CHUNK_BYTES
from patience import PATIENCE
from repeats import only_ci

# FLARE's threads use what its libraries call deprecated
pytestmark = pytest.mark.filterwarnings("ignore")

ROUNDS = 120
LONG = replace(
    FEDERATION, name="long", episodes=ROUNDS, settings={"gamma": 1.0, "rounds": "off"}
)  # fmt: skip


@only_ci
def test_a_job_of_many_rounds_holds_few_threads(finished: Path) -> None:
    """With γ = 1 every episode ends in a round of seven exchanges or more, and each brings the
    server three answers. Its job has fewer threads than there were rounds, nowhere near one for
    each answer; and it sends in small pieces."""
    (number,) = submit(finished, LONG)
    connection, threads = project.console(finished), [0]
    end = time.monotonic() + PATIENCE
    try:
        while not (state := connection.job(number)).startswith(ENDED):
            assert time.monotonic() < end
            with suppress(OSError, KeyError):  # not yet begun, or just ended
                job = Path(f"/proc/{processes(finished, 'localhost', number)['job']}")
                status = (job / "status").read_text().partition("\nThreads:")[2]
                threads.append(int(status.split()[0]))
                if environ := (job / "environ").read_bytes():  # none of one that has just ended
                    assert f"CHUNK_SIZE={CHUNK_BYTES}".encode() in environ
            time.sleep(0.2)
    finally:
        connection.close()
    assert state == project.COMPLETED
    records = project.server_folder(finished).parent / "long" / "records.jsonl"
    assert len(records.read_text().splitlines()) == ROUNDS
    assert len(SITES) < max(threads) < ROUNDS
