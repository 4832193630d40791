"""The run folder: append-only records, checkpoints with hashes, resume to the same bits."""

from fedlsvi.store.checkpoint import FORMAT
from fedlsvi.store.reading import load
from fedlsvi.store.runs import CHECKPOINT_SECONDS, check_seconds, record, resume, save_run
from fedlsvi.store.setup import versions

__all__ = [
    "CHECKPOINT_SECONDS",
    "FORMAT",
    "check_seconds",
    "load",
    "record",
    "resume",
    "save_run",
    "versions",
]
