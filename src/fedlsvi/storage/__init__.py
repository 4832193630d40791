"""The run folder: append-only records, checkpoints with hashes, resume to the same bits."""

from fedlsvi.storage.files import FORMAT
from fedlsvi.storage.run_header import versions
from fedlsvi.storage.run_reader import load
from fedlsvi.storage.run_writer import CHECKPOINT_SECONDS, check_seconds, record
from fedlsvi.storage.runs import resume, save_run

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
