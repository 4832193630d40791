"""A project as it is operated: start its parties and its job, watch them, stop them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedlsvi import settings_file
from fedlsvi.errors import InvalidInput, TransportError
from fedlsvi.federation.job import Federation
from fedlsvi.federation.provision import ADMIN as ADMIN
from fedlsvi.federation.provision import FEDERATION, flare
from fedlsvi.federation.provision import init as init
from fedlsvi.store import files

ENDED = ("FINISHED", "FAILED")
COMPLETED = "FINISHED:COMPLETED"
"""FLARE's words for a job that has ended, and for one that has ended well."""

RUNNING = "running.json"
ANSWER_SECONDS = 60.0
"""How long a server that ran a moment ago may take to answer."""


def _refuse_other(folder: str | Path) -> None:
    if not is_one(folder):
        raise InvalidInput(
            f"{folder} holds no project: give a folder that `fedlsvi federate init` wrote"
        )


def read(folder: str | Path) -> tuple[Federation, dict[str, Any]]:
    """The federation of a project, and its parties."""
    _refuse_other(folder)
    table = settings_file.read(Path(folder) / FEDERATION)
    parties = table.pop("parties", None)
    if not isinstance(parties, dict) or not {"host", "sites", "storage"} <= parties.keys():
        raise InvalidInput(
            f"{Path(folder) / FEDERATION} has no [parties] as `fedlsvi federate init` writes them: "
            "put them back"
        )
    return Federation.of(table), parties


def is_one(folder: str | Path) -> bool:
    """Whether this folder holds a project."""
    return (Path(folder) / FEDERATION).is_file()


def launch(folder: str | Path, names: Sequence[str] | None = None) -> dict[str, int]:
    """Start parties of a project on this machine, for a demonstration: process by name."""
    project = Path(folder).absolute()
    _, parties = read(project)
    started = {}
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for name in names or (parties["host"], *parties["sites"]):
        kit = project / "kits" / name
        if not (kit / "startup").is_dir():
            raise InvalidInput(f"the kit of {name} is not at {kit}: bring it there to start it")
        with (kit / "console.log").open("ab") as console:
            process = subprocess.Popen(
                [str(kit / "startup" / "sub_start.sh"), "--once"], env=environment, cwd=kit,
                stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True,
            )  # fmt: skip
        started[name] = process.pid
        _children.append(process)
    _note_running(project, {**_running(project), **started})
    return started


def _running(project: Path) -> dict[str, int]:
    """The parties that `launch` started here, and their processes. Where the list of them cannot be
    read, those whose processes are found."""
    try:
        listed = json.loads((project / RUNNING).read_bytes())
        return {str(name): int(pid) for name, pid in listed.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError):
        kits = sorted((project.absolute() / "kits").glob("*"))
        return {kit.name: found[0] for kit in kits if (found := _processes(kit))}


def _note_running(project: Path, pids: dict[str, int]) -> None:
    files.write(project / RUNNING, json.dumps(pids).encode())


_children: list[subprocess.Popen[bytes]] = []


def _connect(folder: str | Path, end: float) -> Any:
    """The administrator's connection; waits until the server answers, or the clock says `end`."""
    while True:
        try:
            return flare("Console")(Path(folder) / "kits" / ADMIN, ADMIN)
        except TransportError:
            if time.monotonic() > end:
                raise
            time.sleep(1.0)


def console(folder: str | Path, seconds: float = 60.0) -> Any:
    """The administrator's connection; waits until the server answers and the sites are there."""
    _, parties = read(folder)
    end = time.monotonic() + seconds
    connection = _connect(folder, end)
    while len(connection.sites()) < len(parties["sites"]):
        if time.monotonic() > end:
            missing = sorted(set(parties["sites"]) - set(connection.sites()))
            connection.close()
            raise TransportError(f"sites {missing} have not joined within {seconds:g} s")
        time.sleep(0.5)
    return connection


def start(folder: str | Path, seconds: float = 60.0) -> str:
    """Submit the job, or submit it again: it continues from checkpoint and journals. It is written
    from federation.toml as it is now."""
    federation, parties = read(folder)
    federation.check(len(parties["sites"]))
    job = flare("write_job")(federation.table(), Path(folder) / "job", len(parties["sites"]))
    connection = console(folder, seconds)
    try:
        number: str = connection.submit(job.absolute())
        return number
    finally:
        connection.close()


def wait(
    folder: str | Path, number: str, seconds: float = 600.0,
    told: Callable[[dict[str, Any]], None] | None = None,
) -> str:  # fmt: skip
    """Wait until a job has ended; returns FLARE's word for how."""
    end = time.monotonic() + seconds
    connection = _connect(folder, end)
    try:
        while not (state := connection.job(number)).startswith(ENDED):
            if time.monotonic() > end:
                raise TransportError(f"the job has not ended within {seconds:g} s: it is {state}")
            if told is not None:
                told(progress(folder))
            time.sleep(0.5)
        return str(state)
    finally:
        connection.close()


def reason(folder: str | Path, number: str) -> str:
    """Why a job failed, in a sentence. The sites may have left."""
    connection = _connect(folder, time.monotonic() + ANSWER_SECONDS)
    try:
        return str(connection.reason(number))
    finally:
        connection.close()


def progress(folder: str | Path) -> dict[str, Any]:
    """Rounds and episodes so far, and what was out of the ordinary in the last round, where the
    server's kit is on this machine."""
    federation, parties = read(folder)
    records = server_folder(folder) / "records.jsonl"
    rounds, episodes, notes = 0, 0, []
    with suppress(OSError, ValueError, IndexError):
        last = json.loads(records.read_text().splitlines()[-1])
        rounds, episodes, notes = last["k"], last["last"], last["notes"]
    return {"name": federation.name, "rounds": rounds, "episodes": episodes,
            "of": federation.episodes, "sites": parties["sites"], "notes": notes}  # fmt: skip


def status(folder: str | Path, seconds: float = 10.0) -> dict[str, Any]:
    """Progress, which parties run here, and what the server says."""
    found = progress(folder)
    listed = _running(Path(folder)).items()
    found["processes"] = {name: pid for name, pid in listed if _alive(pid)}
    found["server"], found["jobs"], found["connected"] = "does not answer", [], []
    with suppress(TransportError):
        connection = flare("Console")(Path(folder) / "kits" / ADMIN, ADMIN, timeout=seconds)
        found["server"] = "answers"
        found["jobs"], found["connected"] = connection.jobs(), connection.sites()
        for job in found["jobs"]:
            if job["status"].startswith(ENDED) and job["status"] != COMPLETED:
                job["reason"] = connection.reason(job["id"])
        connection.close()
    return found


def stop(folder: str | Path, names: Sequence[str] | None = None, kill: bool = False) -> list[str]:
    """End parties that `launch` started here, with all their processes."""
    project = Path(folder).absolute()
    _refuse_other(project)  # what stands in its settings does not matter here
    pids = _running(project)
    ended = []
    for name in names or list(pids):
        if pids.pop(name, None) is None:
            continue
        kit = project / "kits" / name
        if not kill:
            _signal(kit, signal.SIGTERM)
            end = time.monotonic() + 5.0
            while _processes(kit) and time.monotonic() < end:
                time.sleep(0.1)
        while _processes(kit):  # one may have started another in the meantime
            _signal(kit, signal.SIGKILL)
            time.sleep(0.05)
        ended.append(name)
    _note_running(project, pids)
    return ended


def _processes(kit: Path) -> list[int]:
    """The processes of a party: the one that was launched, and the workers of its jobs, which
    FLARE starts apart; all of them name the kit as their workspace."""
    for child in _children:
        child.poll()  # let go of those that have ended
    found, names = [], (str(kit), str(kit / "startup" / "sub_start.sh"))
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if any(name.encode() in words for name in names):
                found.append(int(process.name))
    return found


def _signal(kit: Path, number: signal.Signals) -> None:
    for pid in _processes(kit):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def clean(folder: str | Path) -> None:
    """Remove what FLARE's server stored about jobs on this machine; the project stays."""
    _, parties = read(folder)
    shutil.rmtree(Path("/tmp/nvflare") / str(parties["storage"]), ignore_errors=True)


def server_folder(folder: str | Path) -> Path:
    """Where the server keeps records, checkpoints and the final model."""
    federation, parties = read(folder)
    return Path(folder) / "kits" / str(parties["host"]) / "fedlsvi" / federation.name


def site_folder(folder: str | Path, site: str) -> Path:
    """Where a site keeps its journal and the log of what it sent."""
    federation, _ = read(folder)
    return Path(folder) / "kits" / site / "fedlsvi" / federation.name


def _alive(pid: int) -> bool:
    for child in _children:
        if child.pid == pid:
            return child.poll() is None
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
