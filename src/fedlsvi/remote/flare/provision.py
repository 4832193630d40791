"""Writing the project of a federation: certificates, kits, the job, and a page for the sites.

federation.toml     what all agree on
kits/<name>/        what each party gets: its certificate, start script and own settings
provisioned/        the key of the authority that signs the certificates; it stays here
job/<name>/         the job, which holds no code; `start` rewrites it from federation.toml
README.md           for the engineer at a site

The folder is its owner's alone, and is written whole or not at all.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedlsvi.checks import plural
from fedlsvi.config import FEWEST_SITES
from fedlsvi.errors import FedLSVIError, FolderExists, InvalidInput, TransportError
from fedlsvi.remote.federation import LETTERS, NAME, Federation
from fedlsvi.storage import files, settings_file

FEDERATION = "federation.toml"
ADMIN = "admin@fedlsvi.org"
ALLOWED = (
    "fedlsvi.remote.flare.job.Coordinator",
    "fedlsvi.remote.flare.job.Site",
    "nvflare.collab.runtime.controller.CollabController",
    "nvflare.collab.runtime.executor.CollabExecutor",
)
"""All classes that a job may name at any party of this project."""

RIGHTS = dict.fromkeys(
    (
        "submit_job",
        "clone_job",
        "manage_job",
        "download_job",
        "get_job_log",
        "view",
        "operate",
        "app_command",
    ),
    "any",
)
"""What the administrator may do; the log of a job is the server's, for no site sends its own. With
an app command it asks a job how it is, or for a pause: a job knows no other."""
NEVER = {"byoc": "none", "shell_commands": "none"}
"""Nobody, the administrator included, sends code to a party or runs commands there."""

CHUNK_BYTES = 128 * 1024
"""The pieces in which FLARE sends. For each message it allocates a buffer of one piece, 1 MB unless
told otherwise, and freed buffers of that size leave memory in holes that grow with every round."""

HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?")
"""A part of a server's name."""

LONGEST_NAME = 63
"""Characters of a name in a certificate, for FLARE."""

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
# {name}: a federation of {sites}

Every party needs Python 3.11 or newer and `pip install "fedlsvi[flare]"` (the same version
everywhere). The startup kits in `kits/` contain private keys: send each to its party over a channel
you trust. `provisioned/{name}/state/cert.json` contains the keys of the authority and of all
parties: anyone who has it can impersonate any party. Only the organiser keeps it; never share it.

{exposed}\
At a site: name your environment in `local/fedlsvi.toml` of your kit; that file never leaves. Then

    ./startup/start.sh          # to leave: echo y | ./startup/stop_fl.sh, which asks

After a reboot, or after a process was killed, first run `rm -f pid.fl daemon_pid.fl` in your kit:
the process id in these files may now belong to another process, and FLARE would not start. As a
service run `startup/sub_start.sh --once` instead, which needs neither.

At the server: run `kits/{host}/startup/start.sh` (port {port}) before the sites start. Once all
parties are running, the administrator starts the run with `fedlsvi federate start .` and watches it
with `fedlsvi federate status .`.

A site sends a Gram matrix and a response vector per step and round, the signal to synchronise, its
number of agents and its version of fedlsvi. The log `fedlsvi/{name}/sent.jsonl` in your kit has a
line for every message (older ones in `sent.1.jsonl`, …), and `fedlsvi verify` checks it. Your
episodes stay in `fedlsvi/{name}/journal`. When the run has ended, the learned policy is in
`fedlsvi/{name}/policy`; `fedlsvi evaluate .` in your kit plays it in your environment. Your FLARE
client runs only four classes: see `class_allow_list` in `local/resources.json`.
"""


def init(
    folder: str | Path,
    federation: Federation,
    sites: Mapping[str, dict[str, Any]],
    host: str = "localhost",
    port: int = 8002,
    as_written: bool = False,
) -> Path:
    """Write a project. Sums are secure where nothing else was chosen (`with_secure_sums`).

    Args:
        folder: Must not exist.
        federation: What all parties agree on.
        sites: A site's name → its settings; {} leaves a form to fill in.
        host, port: Of the server.
        as_written: Whether the settings are those of a run that may have begun.
    """
    project, exposed = Path(folder), ""
    _check(federation, sites, host, port)
    if not as_written:
        federation, exposed = with_secure_sums(federation, len(sites))
    if isinstance(federation.max_agents, int):  # each site by name, for the organiser to tighten
        federation = replace(federation, max_agents=dict.fromkeys(sites, federation.max_agents))
    write_job = flare("write_job")
    with _whole(project):
        _provision(project, federation.name, list(sites), host, port)
        mark = f"{federation.name}-{secrets.token_hex(4)}"
        for name in (host, *sites):
            _settle(project / "kits" / name, mark)
        for name, own in sites.items():
            text = settings_file.dump(own) if own else _form()
            (project / "kits" / name / "local" / "fedlsvi.toml").write_text(text, encoding="utf-8")
        parties = {"host": host, "port": port, "sites": list(sites), "storage": mark}
        text = settings_file.dump({**federation.table(), "parties": parties})
        (project / FEDERATION).write_text(text, encoding="utf-8")
        write_job(federation.table(), project / "job", len(sites))
        many = plural(len(sites), "site")
        seen = f"**{exposed}.**\n\n" if exposed else ""
        readme = _README.format(
            name=federation.name, sites=many, host=host, port=port, exposed=seen
        )
        (project / "README.md").write_text(readme, encoding="utf-8")
    return project


def with_secure_sums(federation: Federation, sites: int) -> tuple[Federation, str]:
    """Strangers' sums are secure unless the organiser says otherwise, or wants what masks exclude,
    such as a run that goes on without a site; and why they are not, as a sentence."""
    settings = federation.settings
    chosen = settings.get("aggregation")
    if chosen == "secure":
        return federation, ""
    seen = "sums are not secure, so the server sees what each site sends"
    if chosen is not None:
        return federation, f'{seen}: aggregation = "{chosen}" was chosen'
    if sites < FEWEST_SITES:
        return federation, f"{seen}: masks need {FEWEST_SITES} sites or more"
    hidden = replace(federation, settings={**settings, "aggregation": "secure"})
    try:
        hidden.check(sites)
    except FedLSVIError as error:
        return federation, f"{seen}: masks do not go with these settings ({error})"
    return hidden, ""


def _check(federation: Federation, sites: Mapping[str, Any], host: str, port: int) -> None:
    """Refuse in a sentence what could not become a project."""
    if not sites:
        raise InvalidInput("a federation needs at least one site: name the sites", code="no-sites")
    for site in sites:
        if not NAME.fullmatch(site):
            raise InvalidInput(
                f"the name of a site must be {LETTERS}, got {site!r}", code="bad-site"
            )
        if site == "server":
            raise InvalidInput(
                "a site cannot be called 'server': FLARE uses that name for the server. Choose "
                "another",
                code="reserved-name",
            )
    if not all(HOST.fullmatch(part) for part in host.split(".")):
        raise InvalidInput(
            f"host must be a name such as fl.example.org, got {host!r}", code="bad-host"
        )
    if host in sites:
        raise InvalidInput(
            f"{host!r} is the name of both the server and a site: choose different names",
            code="name-taken",
        )
    if not 1 <= port <= 65535:
        raise InvalidInput(f"port must be from 1 to 65535, got {port!r}", code="bad-port")
    federation.check(len(sites))
    for name in (federation.name, host, *sites):
        if len(name) > LONGEST_NAME:
            raise InvalidInput(
                f"a name in a certificate can have at most {LONGEST_NAME} characters: shorten "
                f"{name!r}, which has {len(name)}",
                code="name-too-long",
            )


@contextmanager
def _whole(project: Path) -> Iterator[None]:
    """A new folder for its owner alone; where what follows fails, nothing of it stays."""
    if project.exists() and (not project.is_dir() or any(project.iterdir())):
        raise FolderExists(
            f"{project} is not an empty folder: choose another one for a new project"
        )
    files.make_private(project)
    try:
        yield
    except BaseException:
        shutil.rmtree(project, ignore_errors=True)
        raise


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
        cwd=project, capture_output=True, text=True, timeout=300, check=False, umask=0o077,
    )  # fmt: skip
    made = sorted((project / "provisioned" / name).glob("prod_*"))
    if done.returncode != 0 or not made:
        raise TransportError(
            f"NVIDIA FLARE could not provision: {done.stderr or done.stdout}",
            code="not-provisioned",
        )
    made[-1].rename(project / "kits")


def job_store(mark: str) -> Path:
    """Where FLARE's server keeps its jobs: FLARE needs a full path, and a kit may be anywhere."""
    return Path("/tmp") / f"fedlsvi-{mark}"


def _settle(kit: Path, mark: str) -> None:
    """A party's own resources: the shortest list of classes that serves, no log that travels, no
    right to send code; a place for FLARE's jobs that no other server on the machine shares; and
    small pieces to send in. All that FLARE writes is for its owner alone."""
    local, script = kit / "local", kit / "startup" / "sub_start.sh"
    first, rest = script.read_text(encoding="utf-8").split("\n", 1)
    chunk = f"export NVFLARE_STREAMING_CHUNK_SIZE=${{NVFLARE_STREAMING_CHUNK_SIZE:-{CHUNK_BYTES}}}"
    script.write_text(f"{first}\numask 077\n{chunk}\n{rest}", encoding="utf-8")
    text = (local / "resources.json.default").read_text(encoding="utf-8")
    resources = json.loads(text.replace("/tmp/nvflare/", f"{job_store(mark)}/"))
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
        "# one of these three, followed by its parameters:\n"
        '# name = "river-swim"           an environment of fedlsvi\n'
        '# gym = "FrozenLake-v1"         a Gymnasium id\n'
        '# entry = "clinic.ward:make"    a Python function that makes the environment\n'
    )


def flare(name: str) -> Any:
    """A part of the administrator's side of FLARE, or what to install."""
    try:
        from fedlsvi.remote.flare import console as flare_console
    except ImportError as error:
        raise InvalidInput(
            f'a federation needs NVIDIA FLARE ({error}): pip install "fedlsvi[flare]"',
            code="flare-missing",
        ) from None
    return getattr(flare_console, name)
