"""What the tests of NVIDIA FLARE share: a small federation, and the processes of its parties."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fedlsvi.remote.federation import Federation
from fedlsvi.remote.flare.processes import of_kit

ENV = {"name": "random-linear", "n_states": 20, "n_actions": 4, "dim": 8, "horizon": 5, "seed": 0}
FEDERATION = Federation(
    "trial", episodes=240, horizon=5, dim=8, seed=3, settings={"gamma": 60.0},
    retry={"deadline": 120.0, "attempts": 1},
)  # fmt: skip


def processes(folder: Path, name: str, job: str = "") -> dict[str, int]:
    """A party's own process and, while a job runs, that of its job; shells are not listed."""
    found = {}
    for pid in of_kit(folder.absolute() / "kits" / name):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            for kind, modules in PROCESSES.items():
                if any(module in words for module in modules) and job.encode() in words:
                    found[kind] = pid
    return found


PROCESSES = {"job": (b"runner_process", b"worker_process"),
             "party": (b"server_train", b"client_train")}  # fmt: skip
