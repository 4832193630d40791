"""The run folder: append-only records, checkpoints with hashes, resume to the same bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedlsvi.registry import lazy_exports

if TYPE_CHECKING:
    from fedlsvi.storage.files import FORMAT as FORMAT
    from fedlsvi.storage.run_header import versions as versions
    from fedlsvi.storage.run_reader import load as load
    from fedlsvi.storage.run_writer import CHECKPOINT_SECONDS as CHECKPOINT_SECONDS
    from fedlsvi.storage.run_writer import check_seconds as check_seconds
    from fedlsvi.storage.run_writer import record as record
    from fedlsvi.storage.runs import resume as resume
    from fedlsvi.storage.runs import save_run as save_run

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "files": "FORMAT",
        "run_header": "versions",
        "run_reader": "load",
        "run_writer": "CHECKPOINT_SECONDS check_seconds record",
        "runs": "resume save_run",
    },
)
