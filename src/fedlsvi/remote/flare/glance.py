"""How a federation is, as files on this machine tell: in a moment, without the engine."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from fedlsvi.errors import DamagedFile, StoreError
from fedlsvi.remote import server_status
from fedlsvi.remote.flare import processes
from fedlsvi.remote.server_status import RunStatus
from fedlsvi.storage import files
from fedlsvi.storage.schema import PLAIN_NAME, Shape, bounded, misfit

FEDERATION = "federation.toml"
_SHAPE: Shape = {
    "name": PLAIN_NAME, "episodes": int, str: Any,
    "parties": {"host": PLAIN_NAME, "sites": [PLAIN_NAME], str: Any},
}  # fmt: skip


def glance(folder: str | Path) -> dict[str, Any] | None:
    """What `project.status` returns, if the kit of the server is here and its job is running; None
    where the server must be asked."""
    project = Path(folder)
    try:
        table = bounded(files.read(files.inside(project, FEDERATION)), tomllib.loads)
        if misfit(table, _SHAPE) is not None:
            return None
        name, parties = table["name"], table["parties"]
        live = server_status.read(files.inside(project, "kits", parties["host"], "fedlsvi", name))
        if live is None or not (live.goes_on and live.fresh) or not live.sites:
            return None
        listed = processes.running(project).items()
    except (DamagedFile, StoreError, ValueError):
        return None
    job = {"id": live.job, "name": name, "status": "RUNNING", "alive": True, "reason": ""}
    return {
        "name": name, "of": table["episodes"], "sites": parties["sites"],
        "rounds": live.round, "episodes": live.episode, "notes": live.notes, "waits": waits(live),
        "processes": {name: pid for name, pid in listed if processes.alive(pid)},
        "server": "answers", "jobs": [job], "certificate_days": None,
        "connected": sorted(site.name for site in live.sites if site.state == "here"),
        "live": live,
    }  # fmt: skip


def waits(live: RunStatus) -> str:
    """A sentence on who is waited for; "" if nobody is."""
    late = [f"{site.name} ({site.why})" for site in live.sites if site.state == "awaited"]
    return f"waiting for {'; '.join(late)}" if late else ""
