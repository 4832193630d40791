"""A project as it is operated: start its parties and its job, watch them, stop them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any

from fedlsvi.errors import DamagedFile, InvalidInput, TransportError
from fedlsvi.remote import server_status
from fedlsvi.remote.federation import Federation
from fedlsvi.remote.flare import processes
from fedlsvi.remote.flare.log import COMPLETED as COMPLETED
from fedlsvi.remote.flare.log import DIED, ENDED, WAITING
from fedlsvi.remote.flare.provision import ADMIN as ADMIN
from fedlsvi.remote.flare.provision import FEDERATION, flare, job_store
from fedlsvi.remote.flare.provision import init as init
from fedlsvi.remote.flare.provision import with_secure_sums as with_secure_sums
from fedlsvi.storage import files, settings_file
from fedlsvi.storage.checkpoint import RECORDS
from fedlsvi.storage.run_reader import parse_records
from fedlsvi.storage.runs import OpenedRun
from fedlsvi.storage.schema import PLAIN_NAME, Shape, misfit

PARTIES: Shape = {"host": PLAIN_NAME, "sites": [PLAIN_NAME], "storage": PLAIN_NAME, str: Any}
ANSWER_SECONDS = 60.0
"""How long a server that ran a moment ago may take to answer."""


def _refuse_other(folder: str | Path) -> None:
    if not is_one(folder):
        raise InvalidInput(
            f"{folder} is not a project: give a folder written by `fedlsvi federate init`",
            code="no-project",
        )


def read(folder: str | Path) -> tuple[Federation, dict[str, Any]]:
    """The federation of a project, and its parties."""
    _refuse_other(folder)
    table = settings_file.read(files.inside(Path(folder), FEDERATION))
    parties = table.pop("parties", None)
    if misfit(parties, PARTIES) is not None:
        raise InvalidInput(
            f"{Path(folder) / FEDERATION} has no [parties] table as written by `fedlsvi federate "
            "init`: restore it",
            code="no-parties",
        )
    return Federation.of(table), parties


def is_one(folder: str | Path) -> bool:
    """Whether this folder holds a project."""
    return (Path(folder) / FEDERATION).is_file()


def to_resume(folder: str | Path) -> Path | None:
    """The project whose job continues a folder: the project itself, or its server's run folder
    while episodes are left; None for any other folder."""
    path = Path(folder)
    if is_one(path):
        return path
    for project in path.absolute().parents[3:4]:  # project/kits/host/fedlsvi/name
        if is_one(project) and path.absolute() == server_folder(project.absolute()):
            return None if OpenedRun.at(path).finished else project
    return None


def launch(
    folder: str | Path,
    names: Sequence[str] | None = None,
    within: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, int]:
    """Start parties of a project on this machine, for a demonstration: process by name.

    Args:
        folder: The project.
        names: Of the parties; None is all of them.
        within: By name, a command that a party is started with, such as `ip netns exec NAME`.
    """
    project = Path(folder).absolute()
    _, parties = read(project)
    started = {}
    for name in names or (parties["host"], *parties["sites"]):
        kit = files.inside(project, "kits", name)
        if not (kit / "startup").is_dir():
            raise InvalidInput(
                f"the startup kit of {name} is not at {kit}: copy it there to start it",
                code="no-kit",
            )
        started[name] = processes.begin(kit, (within or {}).get(name, ()))
    processes.note_running(project, {**processes.running(project), **started})
    return started


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
    try:
        _await_sites(connection, parties["sites"], seconds, end)
    except BaseException:
        connection.close()
        raise
    return connection


def _await_sites(connection: Any, sites: Sequence[str], seconds: float, end: float) -> None:
    while missing := sorted(set(sites) - set(connection.sites())):
        if time.monotonic() > end:
            raise TransportError(
                f"sites {missing} have not connected within {seconds:g} s: start them with "
                "startup/start.sh of their kits",
                code="sites-missing",
            )
        time.sleep(0.5)


def start(folder: str | Path, seconds: float = 60.0) -> str:
    """Submit the job, or submit it again: it continues from checkpoint and journals. It is written
    from federation.toml as it is now."""
    federation, parties = read(folder)
    federation.check(len(parties["sites"]))
    _without_links(files.inside(Path(folder), "job", federation.name))
    write_job = flare("write_job")
    from fedlsvi.remote.flare.revocation import listed

    job = write_job(
        federation.table() | {"revoked": listed(folder)}, Path(folder) / "job",
        len(parties["sites"]), parties["sites"] if federation.removed else (),
    )  # fmt: skip
    end = time.monotonic() + seconds
    connection = _connect(folder, end)
    try:
        _refuse_second(connection, federation.name, folder)
        _await_sites(connection, parties["sites"], seconds, end)
        number: str = connection.submit(job.absolute())
        return number
    finally:
        connection.close()


def _without_links(path: Path) -> None:
    """Refuse a folder in which a link leads elsewhere."""
    for below in path.rglob("*"):
        files.inside(below.parent, below.name)


def _refuse_second(connection: Any, name: str, folder: str | Path) -> None:
    """Two jobs of one federation would play the same run."""
    for job in connection.jobs():
        if job["name"] == name and job["alive"]:
            where = quote(str(folder))
            raise InvalidInput(
                f"job {job['id']} of {name} is {job['status']}: watch it with `fedlsvi federate "
                f"status {where}`, or end it with `fedlsvi federate abort {where}` before you "
                "start another",
                code="job-under-way",
            )


def abort(folder: str | Path) -> list[str]:
    """End the federation's jobs that wait or run, and return their numbers. Checkpoints and
    journals stay."""
    federation, _ = read(folder)
    connection = _connect(folder, time.monotonic() + ANSWER_SECONDS)
    try:
        jobs = [job for job in connection.jobs() if job["name"] == federation.name and job["alive"]]
        for job in jobs:
            connection.abort(job["id"])
        return [job["id"] for job in jobs]
    finally:
        connection.close()


def pause(folder: str | Path) -> list[str]:
    """Ask the federation's jobs to stop after the round under way, and return the numbers of those
    that have heard it."""
    federation, _ = read(folder)
    connection = _connect(folder, time.monotonic() + ANSWER_SECONDS)
    try:
        jobs = [job for job in connection.jobs() if job["name"] == federation.name and job["alive"]]
        return [job["id"] for job in jobs if connection.pause(job["id"])]
    finally:
        connection.close()


@dataclass(frozen=True)
class Removal:
    """What `remove_site` did.

    Attributes:
        ended: Jobs that it ended.
        aborted: Whether they had to be aborted, because the run stood still.
        job: The job that goes on without the site; "" where none was running.
    """

    ended: list[str]
    aborted: bool
    job: str


def remove_site(
    folder: str | Path, site: str, seconds: float = ANSWER_SECONDS, ask: bool = True
) -> Removal:
    """Go on without a site for good, after the round under way: all that it contributed is taken
    out again at the next synchronisation.

    Args:
        folder: The project.
        site: The site.
        seconds: How long the round under way may take; then the job is aborted.
        ask: Whether to end a job that runs, and to start it again.

    Raises:
        InvalidInput: There is no such site, or no other.
        InvalidSetting: Its data cannot be taken out again, as under secure sums.
    """
    federation, parties = read(folder)
    if site not in parties["sites"]:
        raise InvalidInput(
            f"{site!r} is none of the sites {', '.join(parties['sites'])}", code="unknown-site"
        )
    sites = [name for name in parties["sites"] if name != site]
    if not sites:
        raise InvalidInput("a federation needs at least one site", code="no-sites")
    federation.check_removal(len(parties["sites"]) + len(federation.removed))
    ended, aborted = _end_jobs(folder, seconds) if ask else ([], False)
    removed = sorted({*federation.removed, site})
    table = {**federation.table(), "removed": removed, "parties": {**parties, "sites": sites}}
    text = settings_file.dump(table)
    files.write(files.inside(Path(folder), FEDERATION), text.encode())
    return Removal(ended, aborted, start(folder) if ended else "")


def _end_jobs(folder: str | Path, seconds: float) -> tuple[list[str], bool]:
    """End the jobs that run, after the round under way or, where it takes longer, at once."""
    asked, aborted = pause(folder), False
    if not asked:  # none that has begun
        asked = abort(folder)
        aborted = bool(asked)
    for number in asked:
        try:
            wait(folder, number, seconds)
        except TransportError as error:
            if error.code != "job-not-ended":
                raise
            abort(folder)
            aborted = True
            wait(folder, number, seconds)
    return asked, aborted


def renew(folder: str | Path, out: str | Path) -> tuple[Path, list[str]]:
    """The same federation with new certificates: a new project whose parties go on with the run.

    Args:
        folder: The project; its certificates may have ended.
        out: Where the new project is written.

    Returns:
        The new project, and the parties whose kits are not here: they copy `fedlsvi` and, at a
        site, `local/fedlsvi.toml` from their old kits into the new ones themselves.
    """
    federation, parties = read(folder)
    sites: dict[str, dict[str, Any]] = {site: {} for site in parties["sites"]}
    kits, missing = {}, []
    for name in (parties["host"], *sites):  # new kits are handed out: no link brings more along
        kit = files.inside(Path(folder), "kits", name)
        own = files.inside(kit, "local", "fedlsvi.toml")
        _without_links(files.inside(kit, "fedlsvi"))
        if kit.is_dir():
            kits[name] = own
        else:
            missing.append(name)
    new = init(out, federation, sites, parties["host"], int(parties["port"]), as_written=True)
    for name, own in kits.items():
        kit = new / "kits" / name
        if (books := own.parents[1] / "fedlsvi").is_dir():
            shutil.copytree(books, kit / "fedlsvi", symlinks=True)
        if own.is_file():
            shutil.copy2(own, kit / "local" / own.name, follow_symlinks=False)
    return new, missing


def wait(
    folder: str | Path, number: str, seconds: float = 600.0,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
) -> str:  # fmt: skip
    """Wait until a job has ended; returns FLARE's word for how."""
    end = time.monotonic() + seconds
    connection = _connect(folder, end)
    try:
        while not (state := connection.job(number)).startswith(ENDED):
            if time.monotonic() > end:
                why = f": {connection.reason(number)}" if state in WAITING else ""
                raise TransportError(
                    f"the job did not end within {seconds:g} s: it is {state}{why}",
                    code="job-not-ended",
                )
            if on_progress is not None:
                on_progress(progress(folder, connection))
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


def progress(folder: str | Path, connection: Any = None) -> dict[str, Any]:
    """Rounds and episodes so far, and what was out of the ordinary: as the server tells over a
    connection, or by its kit if that is on this machine; rounds are None where neither has them."""
    federation, parties = read(folder)
    found: dict[str, Any] = {"rounds": None, "episodes": None, "notes": [], "waits": ""}
    if connection is not None:
        found = connection.progress(federation.name)
    if found["rounds"] is None:
        with suppress(DamagedFile, IndexError):
            path = files.inside(server_folder(folder), RECORDS)
            records = parse_records(path, files.whole_lines(path))
            notes = [note for record in records for note in record.notes]
            found |= {"rounds": records[-1].k, "episodes": records[-1].last, "notes": notes}
    return {"name": federation.name, "of": federation.episodes, "sites": parties["sites"], **found}


def outcome(folder: str | Path, number: str, ended: str) -> dict[str, Any]:
    """How far a job came that has ended, and why it failed if it did."""
    connection = _connect(folder, time.monotonic() + ANSWER_SECONDS)
    try:
        why = "" if ended == COMPLETED else str(connection.reason(number))
        return {**progress(folder, connection), "ended": ended, "reason": why}
    finally:
        connection.close()


def status(folder: str | Path, seconds: float = 10.0) -> dict[str, Any]:
    """Progress, which parties run here, and what the server says: `live` is the status of the job
    that runs, or the last one that its file on this machine has."""
    found = progress(folder)
    found["live"] = server_status.read(server_folder(folder))
    listed = processes.running(Path(folder)).items()
    found["processes"] = {name: pid for name, pid in listed if processes.alive(pid)}
    found["server"], found["jobs"], found["connected"] = "does not answer", [], []
    found["certificate_days"] = certificate_days(Path(folder))
    console_of = flare("Console")
    with (
        suppress(TransportError),
        closing(console_of(Path(folder) / "kits" / ADMIN, ADMIN, timeout=seconds)) as connection,
    ):
        found["server"] = "answers"
        found |= progress(folder, connection)
        found["jobs"], found["connected"] = connection.jobs(), connection.sites()
        for job in found["jobs"]:
            if job["alive"] and job["name"] == found["name"]:
                found["live"] = connection.live(job["id"]) or found["live"]
            if job["status"] != COMPLETED:
                job["reason"] = _state(connection, job)
    return found


def certificate_days(folder: Path) -> int | None:
    """Whole days until the first certificate of the kits that are here ends; None if there is no
    kit."""
    from cryptography import x509

    ends = []
    for pattern in ("*.crt", "rootCA.pem"):
        for path in folder.glob(f"kits/*/startup/{pattern}"):
            with suppress(OSError, ValueError):
                ends.append(x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc)
    return (min(ends) - datetime.now(UTC)).days if ends else None


def _state(connection: Any, job: dict[str, Any]) -> str:
    """Why a job failed, or has not begun; nothing about one that runs."""
    if job["status"] == DIED:
        return (
            "its server ended while it ran, as after a kill or a power cut; `fedlsvi federate "
            "start` continues from the last checkpoint"
        )
    if job["status"].startswith((*ENDED, *WAITING)):
        return str(connection.reason(job["id"]))
    if job["alive"]:
        return ""
    return (
        "it has no running process: it is ending, and the reason will be known in a minute; "
        "`fedlsvi federate start` continues it"
    )


def stop(folder: str | Path, names: Sequence[str] | None = None, kill: bool = False) -> list[str]:
    """End parties that `launch` started here, with all their processes."""
    project = Path(folder).absolute()
    _refuse_other(project)  # what stands in its settings does not matter here
    pids = processes.running(project)
    ended = []
    for name in names or list(pids):
        if pids.pop(name, None) is not None:
            processes.end(project / "kits" / name, kill)
            ended.append(name)
    processes.note_running(project, pids)
    return ended


def clean(folder: str | Path) -> None:
    """Remove what FLARE's server stored about jobs on this machine; the project stays."""
    _, parties = read(folder)
    shutil.rmtree(job_store(str(parties["storage"])), ignore_errors=True)


def server_folder(folder: str | Path) -> Path:
    """Where the server keeps records, checkpoints and the final model."""
    federation, parties = read(folder)
    return files.inside(Path(folder), "kits", parties["host"], "fedlsvi", federation.name)


def site_folder(folder: str | Path, site: str) -> Path:
    """Where a site keeps its journal and the log of what it sent."""
    federation, _ = read(folder)
    return files.inside(Path(folder), "kits", site, "fedlsvi", federation.name)
