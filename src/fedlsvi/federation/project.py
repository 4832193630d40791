"""A project for a federation: certificates, start scripts, the job, and a page for the sites.

federation.toml     what all agree on
kits/<name>/        what each party gets: its certificate, start script and own settings
job/<name>/         the job, which holds no code
README.md           for the engineer at a site
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedlsvi import settings_file
from fedlsvi.errors import FolderExists, InvalidInput, TransportError
from fedlsvi.federation.job import Federation

ADMIN = "admin@fedlsvi.org"
ALLOWED = (
    "fedlsvi.transports.flare.Coordinator",
    "fedlsvi.transports.flare.Site",
    "nvflare.collab.runtime.controller.CollabController",
    "nvflare.collab.runtime.executor.CollabExecutor",
)
"""All classes that a job may name at any party of this project."""

RIGHTS = dict.fromkeys(
    ("submit_job", "clone_job", "manage_job", "download_job", "get_job_log", "view", "operate"),
    "any",
)
"""What the administrator may do; the log of a job is the server's, for no site sends its own."""
NEVER = {"byoc": "none", "shell_commands": "none"}
"""Nobody, the administrator included, sends code to a party or runs commands there."""

ENDED = ("FINISHED", "FAILED")
COMPLETED = "FINISHED:COMPLETED"
"""FLARE's words for a job that has ended, and for one that has ended well."""

_BUILDERS = """\
builders:
  - path: nvflare.lighter.impl.workspace.WorkspaceBuilder
    args: {template_file: [master_template.yml]}
  - path: nvflare.lighter.impl.static_file.StaticFileBuilder
    args: {config_folder: config}
  - path: nvflare.lighter.impl.cert.CertBuilder
  - path: nvflare.lighter.impl.signature.SignatureBuilder
"""

_README = """\
# {name}: a federation of {n} sites

Every party needs Python 3.11 or newer and `pip install "fedlsvi[flare]"` (the same version
everywhere). The kits in `kits/` hold private keys: hand each to its party over a channel you trust.

At a site: name your environment in `local/fedlsvi.toml` of your kit; that file never leaves. Then

    ./startup/start.sh          # and ./startup/stop_fl.sh to leave

At the server: `kits/{host}/startup/start.sh`, port {port}. Whoever holds the administrator's kit
starts the run with `fedlsvi federate start .` and watches it with `fedlsvi federate status .`.

What leaves a site is a Gram matrix and a response vector per step and round, the signal to
synchronise, and how many agents there are. The log `fedlsvi/{name}/sent.jsonl` in your kit has a
line for every message, and `fedlsvi verify` checks it. Your episodes are in
`fedlsvi/{name}/journal` and stay there. Your FLARE will run no class but four: see
`class_allow_list` in `local/resources.json`.
"""


def init(
    folder: str | Path,
    federation: Federation,
    sites: Mapping[str, dict[str, Any]],
    host: str = "localhost",
    port: int = 8002,
) -> Path:
    """Write a project. `sites` maps a site's name to its settings; {} leaves a form to fill in."""
    project = Path(folder)
    if project.exists() and any(project.iterdir()):
        raise FolderExists(f"folder {project} is not empty: choose another one for a new project")
    if not sites:
        raise InvalidInput("a federation needs at least one site: give names")
    project.mkdir(parents=True, exist_ok=True)
    _provision(project, federation.name, list(sites), host, port)
    mark = f"{federation.name}-{secrets.token_hex(4)}"
    for name in (host, *sites):
        _settle(project / "kits" / name / "local", mark)
    for name, own in sites.items():
        text = settings_file.dump(own) if own else _form()
        (project / "kits" / name / "local" / "fedlsvi.toml").write_text(text, encoding="utf-8")
    table = {key: value for key, value in federation.table().items() if value is not None}
    parties = {"host": host, "port": port, "sites": list(sites), "storage": mark}
    text = settings_file.dump({**table, "parties": parties})
    (project / "federation.toml").write_text(text, encoding="utf-8")
    _flare("write_job")(federation.table(), project / "job", len(sites))
    readme = _README.format(name=federation.name, n=len(sites), host=host, port=port)
    (project / "README.md").write_text(readme, encoding="utf-8")
    return project


def _provision(project: Path, name: str, sites: Sequence[str], host: str, port: int) -> None:
    people = [{"name": host, "type": "server", "org": "fedlsvi", "fed_learn_port": port}]
    people += [{"name": site, "type": "client", "org": "fedlsvi"} for site in sites]
    people += [{"name": ADMIN, "type": "admin", "org": "fedlsvi", "role": "project_admin"}]
    head = {"api_version": 3, "name": name, "description": "fedlsvi", "participants": people}
    lines = [f"{key}: {json.dumps(value)}" for key, value in head.items()]
    (project / "project.yml").write_text("\n".join(lines) + "\n" + _BUILDERS, encoding="utf-8")
    command = [sys.executable, "-c", "import sys; from nvflare.cli import main; sys.exit(main())"]
    done = subprocess.run(
        [*command, "provision", "-p", "project.yml", "-w", "provisioned"],
        cwd=project, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    made = sorted((project / "provisioned" / name).glob("prod_*"))
    if done.returncode != 0 or not made:
        raise TransportError(f"NVIDIA FLARE could not provision: {done.stderr or done.stdout}")
    made[-1].rename(project / "kits")


def _settle(local: Path, mark: str) -> None:
    """A party's own resources: the shortest list of classes that serves, no log that travels, no
    right to send code; and a place for FLARE's jobs that no other server on the machine shares."""
    text = (local / "resources.json.default").read_text(encoding="utf-8")
    resources = json.loads(text.replace("/tmp/nvflare/", f"/tmp/nvflare/{mark}/"))
    resources["class_list_enforcement_mode"] = "enforce"
    resources["class_allow_list"] = list(ALLOWED)
    # FLARE would send a site's log to the server, and the text of an error may quote a state
    resources["allow_log_streaming"] = False
    parts = resources.get("components", [])
    resources["components"] = [part for part in parts if ".logging." not in part["path"]]
    (local / "resources.json").write_text(json.dumps(resources, indent=1), encoding="utf-8")
    rights = json.loads((local / "authorization.json.default").read_text(encoding="utf-8"))
    for role, may in rights["permissions"].items():
        rights["permissions"][role] = {**(RIGHTS if may == "any" else may), **NEVER}
    (local / "authorization.json").write_text(json.dumps(rights, indent=1), encoding="utf-8")


def _form() -> str:
    return (
        "agents = 1\n\n[env]\n"
        "# one of these three, with its parameters beside it:\n"
        '# name = "river-swim"           an environment of fedlsvi\n'
        '# gym = "FrozenLake-v1"         a Gymnasium id\n'
        '# entry = "clinic.ward:make"    a Python function that makes the environment\n'
    )


def _flare(name: str) -> Any:
    try:
        from fedlsvi.transports import flare_console
    except ImportError as error:
        raise InvalidInput(
            f'a federation needs NVIDIA FLARE ({error}): pip install "fedlsvi[flare]"'
        ) from None
    return getattr(flare_console, name)


def read(folder: str | Path) -> tuple[Federation, dict[str, Any]]:
    """The federation of a project, and its parties."""
    table = settings_file.read(Path(folder) / "federation.toml")
    parties = table.pop("parties", {})
    return Federation.of(table), parties


def launch(folder: str | Path, names: Sequence[str] | None = None) -> dict[str, int]:
    """Start parties of a project on this machine, for a demonstration: process by name."""
    project = Path(folder).absolute()
    _, parties = read(project)
    started = {}
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for name in names or (parties["host"], *parties["sites"]):
        kit = project / "kits" / name
        with (kit / "console.log").open("ab") as console:
            process = subprocess.Popen(
                [str(kit / "startup" / "sub_start.sh"), "--once"], env=environment, cwd=kit,
                stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True,
            )  # fmt: skip
        started[name] = process.pid
        _children.append(process)
    running = project / "running.json"
    before = json.loads(running.read_text()) if running.exists() else {}
    running.write_text(json.dumps({**before, **started}))
    return started


_children: list[subprocess.Popen[bytes]] = []


def console(folder: str | Path, seconds: float = 60.0) -> Any:
    """The administrator's connection; waits until the server answers and the sites are there."""
    project = Path(folder)
    _, parties = read(project)
    end = time.monotonic() + seconds
    while True:
        try:
            connection = _flare("Console")(project / "kits" / ADMIN, ADMIN)
            break
        except TransportError:
            if time.monotonic() > end:
                raise
            time.sleep(1.0)
    while len(connection.sites()) < len(parties["sites"]):
        if time.monotonic() > end:
            missing = sorted(set(parties["sites"]) - set(connection.sites()))
            connection.close()
            raise TransportError(f"sites {missing} have not joined within {seconds:g} s")
        time.sleep(0.5)
    return connection


def start(folder: str | Path, seconds: float = 60.0) -> str:
    """Submit the job, or submit it again: it continues from checkpoint and journals."""
    federation, _ = read(folder)
    connection = console(folder, seconds)
    try:
        number: str = connection.submit((Path(folder) / "job" / federation.name).absolute())
        return number
    finally:
        connection.close()


def wait(
    folder: str | Path, number: str, seconds: float = 600.0,
    told: Callable[[dict[str, Any]], None] | None = None,
) -> str:  # fmt: skip
    """Wait until a job has ended; returns FLARE's word for how."""
    end = time.monotonic() + seconds
    connection = console(folder)
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
    """Why a job failed, in a sentence."""
    connection = console(folder)
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
    running = Path(folder) / "running.json"
    pids = json.loads(running.read_text()) if running.exists() else {}
    found["processes"] = {name: pid for name, pid in pids.items() if _alive(pid)}
    found["server"], found["jobs"], found["connected"] = "does not answer", [], []
    with suppress(TransportError):
        connection = _flare("Console")(Path(folder) / "kits" / ADMIN, ADMIN, timeout=seconds)
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
    running = project / "running.json"
    pids: dict[str, int] = json.loads(running.read_text()) if running.exists() else {}
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
    running.write_text(json.dumps(pids))
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
