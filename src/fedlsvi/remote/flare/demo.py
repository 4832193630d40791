"""A whole federation on this machine, for a look: a server and three sites as real processes."""

from __future__ import annotations

import random
import socket
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedlsvi.errors import TransportError
from fedlsvi.protocol.ledger import Ledger
from fedlsvi.remote.audit import verify
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.flare import project
from fedlsvi.storage import files
from fedlsvi.storage.checkpoint import LEDGER

ENV = {"name": "random-linear", "n_states": 20, "n_actions": 4, "dim": 8, "horizon": 5, "seed": 0}


def demo(
    folder: str | Path | None = None,
    episodes: int = 300,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Write a project, start everybody on loopback, play, check the logs of what left, stop.

    Args:
        folder: Where the project is written and stays; None is a temporary folder that goes.
        episodes: Of each agent.
        on_progress: Called with the progress of the run.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="fedlsvi-") as scratch:
            return demo(Path(scratch) / "project", episodes, on_progress)
    # the server counts what each site sent, which secure sums would hide
    settings = {"gamma": max(1.0, episodes / 6.0), "aggregation": "float"}
    federation = Federation("demo", episodes=episodes, horizon=5, dim=8, settings=settings)
    sites = ("site-1", "site-2", "site-3")
    own = {"agents": 1, "env": ENV}
    where = project.init(folder, federation, dict.fromkeys(sites, own), port=free_port())
    try:
        project.launch(where)
        number = project.start(where)
        ended = project.wait(where, number, 600.0, on_progress)
        if ended != project.COMPLETED:
            raise TransportError(
                f"the demonstration failed: {project.reason(where, number)}", code="job-failed"
            )
        path = project.server_folder(where) / "ledger.json"
        ledger = Ledger.from_dict(files.read_json(path, {**LEDGER, str: str}))
        uploads = ledger.by_agent["up_stats"].tolist()
        sent = {
            site: verify(project.site_folder(where, site) / "sent.jsonl", counted)
            for site, counted in zip(sites, uploads, strict=True)
        }
        return {**project.progress(where), "scalars": ledger.scalars,
                "sent": {site: vars(found) for site, found in sent.items()}}  # fmt: skip
    finally:
        project.stop(where)
        project.clean(where)


def free_port() -> int:
    """A port of loopback that nobody uses. It is below those that Linux gives to outgoing
    connections: one of these could take it before the server listens, or while it restarts."""
    for port in random.SystemRandom().sample(range(20_000, 32_768), 1_000):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise TransportError("no port of loopback is free: end other servers", code="no-port")
