"""FLARE's words for the state of a job. They can be read where FLARE is not installed."""

from __future__ import annotations

WAITING = ("SUBMITTED", "APPROVED")
"""It has not begun."""

RUNNING = ("DISPATCHED", "RUNNING")
"""It has begun; a server that is started again leaves this of the jobs that it was running."""

ENDED = ("FINISHED", "FAILED")
"""The words that the state of a job begins with which has ended."""

COMPLETED = "FINISHED:COMPLETED"
"""It has ended well."""
