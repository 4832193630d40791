"""The administrator's side of NVIDIA FLARE: writing the job, starting it, looking after it."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

from fedlsvi.errors import TransportError
from fedlsvi.remote.flare.job import Coordinator, Site
from fedlsvi.remote.flare.job_folders import KEPT
from fedlsvi.remote.flare.log import (
    ASK_PAUSE,
    ASK_STATUS,
    COMPLETE,
    DIED,
    ENDED,
    NOBODY,
    PAUSED,
    REASON,
    RUNNING,
    WAITING,
    WAITS,
    after,
    progress_in,
)
from fedlsvi.remote.server_status import RunStatus, parse

LOST = r"Client (\S+) is deemed disconnected"
UNLISTED = "component not authorized: "
UNJOINED = "failed to sync clients "
FINISHED = "Server runner finished."
"""What FLARE's own log of a job says of a site that is gone; what stands there before a class that
is not allowed, and before the sites whose process did not join; and what it says at the end, unless
the server's process was killed."""

HEARD_SECONDS = 25.0
"""A site is silent if another was heard so much later; each calls every ten seconds. FLARE itself
lists one for ten minutes after its last call."""

ABORTED = "FINISHED:ABORTED"
"""Somebody ended the job; whatever its log says last is a consequence of that."""

AGAIN = "`fedlsvi federate start`"


def write_job(
    federation: dict[str, Any], folder: str | Path, sites: int, names: Sequence[str] = ()
) -> Path:
    """Write the job that any FLARE installation with fedlsvi can run; it holds no code.

    Args:
        federation: Its table.
        folder: Where the job is written.
        sites: How many sites take part.
        names: These sites, where others may be connected that do not.
    """
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
    if names:
        meta = json.loads((job / "meta.json").read_text(encoding="utf-8"))
        meta["deploy_map"] = {key: ["server", *names] for key in meta["deploy_map"]}
        (job / "meta.json").write_text(json.dumps(meta, indent=4), encoding="utf-8")
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
        """Start a job; returns its number. What the server stores of old jobs goes, except the
        last ones."""
        with suppress(Exception):  # the engine's own errors, of many kinds
            ended = [j["id"] for j in self.jobs() if j["status"].startswith(ENDED)]
            for old in ended[: 1 - KEPT]:
                self._session.delete_job(old)
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
        if any(PAUSED in row for row in rows):
            return f"it was paused. {AGAIN} continues after the last round"
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
        waited = after(WAITS, rows).strip()
        if not lost and waited not in ("", NOBODY):
            gone = f"the engine ended the job while the server was {waited}"
        elif not lost and any(FINISHED in row for row in rows):
            gone = "the engine ended the job and gave no reason"
        elif not lost:
            gone = "the server's job ended without a word, as after a kill or where memory runs out"
        return f"{gone}; {more}. {AGAIN} continues from the last checkpoint"

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

    def live(self, number: str) -> RunStatus | None:
        """What the server's process of a job says of the run now; None where it does not answer,
        as before the sites have joined."""
        with suppress(Exception):  # the engine's own errors, of many kinds
            return parse(self._session.do_app_command(number, ASK_STATUS, {}))
        return None

    def pause(self, number: str) -> bool:
        """Ask for a pause after the round under way; whether the job has heard it."""
        with suppress(Exception):  # the engine's own errors, of many kinds
            return self._session.do_app_command(number, ASK_PAUSE, {}).get("pausing") is True
        return False

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs: id, name, status, and whether the server is at it or will be. Of a job that was
        running when its server ended FLARE says for ever that it runs: it has failed."""
        system = self._session.get_system_info()
        running = {job.job_id for job in system.job_info}
        found = []
        for j in self._session.list_jobs():
            number, state = j["job_id"], j["status"]
            alive = state in WAITING or (state in RUNNING and number in running)
            if state in RUNNING and not alive and self._began(number) < _began(system):
                state = DIED
            found.append({"id": number, "name": j["job_name"], "status": state, "alive": alive})
        return found

    def _began(self, number: str) -> float:
        """When a job was started, as seconds since 1970; where FLARE has not written it, never."""
        try:
            began = self._session.get_job_meta(number).get("start_time")
            return datetime.fromisoformat(str(began)).timestamp()
        except ValueError:
            return math.inf

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


def _began(system: Any) -> float:
    """When the server that answers was started."""
    began = getattr(getattr(system, "server_info", None), "start_time", None)
    return float(began) if isinstance(began, int | float) else -math.inf


def _not_begun(history: list[str]) -> str:
    """Why FLARE has not begun a job: the last it wrote down is behind the time."""
    said = history[-1].partition(": ")[2] if history else ""
    return (
        f"FLARE has not started it ({said or 'it has not tried'}): it waits for all sites, and "
        "one of them may have disconnected"
    )
