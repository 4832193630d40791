"""The administrator's side of NVIDIA FLARE: writing the job, starting it, looking after it."""

from __future__ import annotations

import shutil
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

from fedlsvi.errors import TransportError
from fedlsvi.transports.flare import REASON, Coordinator, Site

UNLISTED = "component not authorized: "
UNJOINED = "failed to sync clients "
"""What stands in FLARE's own log of a job before a class that is not allowed, and before the sites
whose process did not join."""


def write_job(federation: dict[str, Any], folder: str | Path, sites: int) -> Path:
    """Write the job that any FLARE installation with fedlsvi can run; it holds no code."""
    from nvflare.collab import CollabRecipe

    recipe = CollabRecipe(
        job_name=federation["name"],
        server=Coordinator(federation),
        client=Site(federation),
        min_clients=sites,
        sync_task_timeout=120,
    )
    recipe.export(str(folder))
    job = Path(folder) / str(federation["name"])
    # FLARE copies our sources into the job; every party has them installed, and allows no others
    for code in job.glob("*/custom"):
        shutil.rmtree(code)
    return job


class Console:
    """The administrator's connection to a running server."""

    def __init__(self, kit: str | Path, user: str, timeout: float = 20.0) -> None:
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        try:
            with redirect_stdout(StringIO()):  # it says that it connects; output may be JSON
                self._session = new_secure_session(user, str(kit), timeout=timeout)
        except Exception as error:  # the engine's own errors, of many kinds
            raise TransportError(f"no answer from the federation's server: {error}") from None

    def submit(self, job: str | Path) -> str:
        """Start a job; returns its number."""
        return str(self._session.submit_job(str(job)))

    def job(self, number: str) -> str:
        """The status of a job."""
        return str(self._session.get_job_meta(number).get("status"))

    def reason(self, number: str) -> str:
        """Why a job failed: what the server wrote into its log, or who refused to run it, and
        where to look. No site sends its log: only its kit has what the site refused."""
        rows: list[str] = []
        with suppress(Exception):  # the engine's own errors, of many kinds: there is no log
            for text in self._session.get_job_logs(number)["logs"].values():
                rows += text.splitlines()
        if said := _after(REASON, rows):
            return said
        deployed = self._session.get_job_meta(number).get("job_deploy_detail") or []
        if told := [str(detail) for detail in deployed if not str(detail).endswith(": OK")]:
            return "; ".join(told)
        if said := _after(UNLISTED, rows):
            return f"the server refused a class that the job names: {said}"
        where = f"{number}/log.txt in the kit of a site"
        if said := _after(UNJOINED, rows):
            sites = said.strip("[]").replace("'", "")
            return (
                f"the job ended before {sites} had begun it: a site refused a class that it names, "
                f"or could not start its process; {where} says what it was"
            )
        return f"log.txt in the server's kit and {where} have more"

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs: id, name and status."""
        listed = self._session.list_jobs()
        return [{"id": j["job_id"], "name": j["job_name"], "status": j["status"]} for j in listed]

    def sites(self) -> list[str]:
        """The sites that are connected."""
        return sorted(client.name for client in self._session.get_system_info().client_info)

    def abort(self, number: str) -> None:
        """End a job; its checkpoints and journals stay."""
        self._session.abort_job(number)

    def close(self) -> None:
        """Leave."""
        self._session.close()


def _after(mark: str, rows: list[str]) -> str:
    """What follows the mark in the last row that has it."""
    return next((row.partition(mark)[2] for row in reversed(rows) if mark in row), "")
