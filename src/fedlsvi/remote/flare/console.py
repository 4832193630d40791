"""The administrator's side of NVIDIA FLARE: writing the job, starting it, looking after it."""

from __future__ import annotations

import re
import shutil
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

from fedlsvi.errors import TransportError
from fedlsvi.remote.flare.job import Coordinator, Site
from fedlsvi.remote.flare.log import COMPLETE, REASON, RUNNING, WAITING, after, progress_in

LOST = r"Client (\S+) is deemed disconnected"
UNLISTED = "component not authorized: "
UNJOINED = "failed to sync clients "
"""What FLARE's own log of a job says of a site that is gone, and what stands there before a class
that is not allowed, and before the sites whose process did not join."""

HEARD_SECONDS = 25.0
"""A site is silent if another was heard so much later; each calls every ten seconds. FLARE itself
lists one for ten minutes after its last call."""

ABORTED = "FINISHED:ABORTED"
"""Somebody ended the job; whatever its log says last is a consequence of that."""

AGAIN = "`fedlsvi federate start`"


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
            raise TransportError(
                f"no answer from the federation's server: {error}", code="no-server"
            ) from None

    def submit(self, job: str | Path) -> str:
        """Start a job; returns its number."""
        return str(self._session.submit_job(str(job)))

    def job(self, number: str) -> str:
        """The status of a job."""
        return str(self._session.get_job_meta(number).get("status"))

    def reason(self, number: str) -> str:
        """Why a job failed: what the server wrote into its log, or who refused to run it, and
        where to look. No site sends its log: only its kit has what the site refused."""
        meta = self._session.get_job_meta(number)
        if meta.get("status") in WAITING:
            return _not_begun(meta.get("schedule_history") or [])
        if meta.get("status") == ABORTED:
            return f"an administrator ended it. {AGAIN} continues from the last checkpoint"
        rows = self._rows(number)
        if said := after(REASON, rows):
            return said
        lost = sorted({name for row in rows for name in re.findall(LOST, row)})
        gone = f"FLARE gave up {', '.join(lost) or 'a site'}"
        if any(COMPLETE in row for row in rows):
            return (
                f"the run is complete, and its results are in the server's kit; {gone}, which had "
                f"not reported its end. {AGAIN} is safe: it plays nothing more and finishes the "
                "job"
            )
        deployed = meta.get("job_deploy_detail") or []
        if refused := [str(detail) for detail in deployed if not str(detail).endswith(": OK")]:
            return "; ".join(refused)
        if said := after(UNLISTED, rows):
            return f"the server refused a class that the job names: {said}"
        where = f"{number}/log.txt in the kit of a site"
        if said := after(UNJOINED, rows):
            sites = said.strip("[]").replace("'", "")
            return (
                f"the job ended before {sites} started it: a site refused a class in the job, or "
                f"could not start its process; see {where}"
            )
        more = f"see log.txt in the server's kit and {where}"
        return f"{gone}; {more}. {AGAIN} continues from the last checkpoint" if lost else more

    def _rows(self, number: str) -> list[str]:
        """The server's log of a job, which may be running; none where there is no log."""
        rows: list[str] = []
        with suppress(Exception):  # the engine's own errors, of many kinds
            for text in self._session.get_job_logs(number)["logs"].values():
                rows += text.splitlines()
        return rows

    def progress(self, name: str) -> dict[str, Any]:
        """How far the jobs of this name have come: rounds, episodes and notes of the last one that
        has done a round; rounds are None where none has."""
        for job in reversed(self.jobs()):
            if job["name"] == name:
                found = progress_in(self._rows(job["id"]))
                if found["rounds"] is not None:
                    return found
        return progress_in([])

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs: id, name, status, and whether the server is at it or will be."""
        running = {job.job_id for job in self._session.get_system_info().job_info}
        return [
            {"id": j["job_id"], "name": j["job_name"], "status": j["status"],
             "alive": j["status"] in WAITING
             or (j["status"] in RUNNING and j["job_id"] in running)}
            for j in self._session.list_jobs()
        ]  # fmt: skip

    def sites(self) -> list[str]:
        """The sites that are connected."""
        heard = {
            client.name: float(client.last_connect_time or 0.0)
            for client in self._session.get_system_info().client_info
        }
        last = max(heard.values(), default=0.0)  # by the server's clock, as all of them
        return sorted(name for name, at in heard.items() if last - at < HEARD_SECONDS)

    def abort(self, number: str) -> None:
        """End a job; its checkpoints and journals stay."""
        self._session.abort_job(number)

    def close(self) -> None:
        """Leave."""
        self._session.close()


def _not_begun(history: list[str]) -> str:
    """Why FLARE has not begun a job: the last it wrote down is behind the time."""
    said = history[-1].partition(": ")[2] if history else ""
    return (
        f"FLARE has not started it ({said or 'it has not tried'}): it waits for all sites, and "
        "one of them may have disconnected"
    )
