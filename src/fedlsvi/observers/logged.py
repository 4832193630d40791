"""The rounds of a run, told to the log of fedlsvi."""

from __future__ import annotations

import logging

from fedlsvi.protocol.records import RoundRecord

log = logging.getLogger(__name__)


def log_round(record: RoundRecord) -> None:
    """Log a round, and what was out of the ordinary in it."""
    log.info("round %d ends at episode %d", record.k, record.last)
    for note in record.notes:
        log.warning("round %d: %s", record.k, note)
