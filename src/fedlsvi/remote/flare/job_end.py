"""Whom FLARE fails a job for: a site's own process of the job has ended, as after a kill.

Only FLARE's process of the server is told, and writes it into its log; the process that plays the
run hears no more than that the job ends.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from fedlsvi.errors import DamagedFile, StoreError
from fedlsvi.storage import files

LOG = "log.txt"
"""FLARE's log of the server, in its kit."""

READ = 1 << 20
"""Bytes of the log's end that are read."""

WHY = (
    "its process of this job has ended, as after a kill or where memory runs out: see log.txt in "
    "its kit"
)


def failed_for(root: Path, job: str, sites: Sequence[str]) -> str:
    """The site that a job is failed for; "" where nobody says.

    Args:
        root: The server's kit.
        job: The engine's number of the job.
        sites: Those that take part.
    """
    try:
        fd = files.open_file(root / LOG, os.O_RDONLY)
    except (OSError, DamagedFile, StoreError):
        return ""
    with os.fdopen(fd, "rb") as file:
        file.seek(max(0, os.fstat(fd).st_size - READ))
        text = file.read().decode(errors="replace")
    said = re.search(f"job {re.escape(job)} due to reported failure from ([^:\\s]+)", text)
    return said[1] if said is not None and said[1] in sites else ""
