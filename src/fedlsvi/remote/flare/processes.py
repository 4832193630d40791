"""The processes of parties that were started on this machine, for a demonstration."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fedlsvi.errors import DamagedFile, StoreError
from fedlsvi.storage import files
from fedlsvi.storage.schema import check_shape, parse_json

RUNNING = "running.json"
CONSOLE = os.O_WRONLY | os.O_CREAT | os.O_APPEND

children: list[subprocess.Popen[bytes]] = []
"""Those that this process started."""


def begin(kit: Path, within: Sequence[str] = ()) -> int:
    """Start the party of a kit; returns its process. `within` is a command that runs another, such
    as `ip netns exec NAME`."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with os.fdopen(files.open_file(kit / "console.log", CONSOLE), "ab") as console:
        process = subprocess.Popen(
            [*within, str(kit / "startup" / "sub_start.sh"), "--once"], env=environment, cwd=kit,
            stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True,
        )  # fmt: skip
    children.append(process)
    return process.pid


def end(kit: Path, kill: bool) -> None:
    """End a party with all its processes."""
    if not kill:
        _signal(kit, signal.SIGTERM)
        until = time.monotonic() + 5.0
        while of_kit(kit) and time.monotonic() < until:
            time.sleep(0.1)
    while of_kit(kit):  # one may have started another in the meantime
        _signal(kit, signal.SIGKILL)
        time.sleep(0.05)


def running(project: Path) -> dict[str, int]:
    """The parties that were started here, and their processes. Where the list of them cannot be
    read, those whose processes are found."""
    try:
        if not files.exists(path := files.inside(project, RUNNING)):
            return {}
        listed: dict[str, int] = parse_json(path, files.read(path))
        check_shape(path, listed, {str: int})
        for name in listed:  # a party ends with all processes that name its kit: it must be one
            files.inside(project, "kits", name)
        return listed
    except (DamagedFile, StoreError):
        kits = sorted((project.absolute() / "kits").glob("*"))
        return {kit.name: found[0] for kit in kits if (found := of_kit(kit))}


def note_running(project: Path, pids: dict[str, int]) -> None:
    """Write down which parties run here."""
    files.write(project / RUNNING, json.dumps(pids).encode())


def of_kit(kit: Path) -> list[int]:
    """The processes of a party: the one that was launched, and the workers of its jobs, which
    FLARE starts apart; all of them name the kit as their workspace."""
    for child in children:
        child.poll()  # let go of those that have ended
    found, names = [], (str(kit), str(kit / "startup" / "sub_start.sh"))
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if any(name.encode() in words for name in names):
                found.append(int(process.name))
    return found


def alive(pid: int) -> bool:
    """Whether a process runs."""
    for child in children:
        if child.pid == pid:
            return child.poll() is None
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _signal(kit: Path, number: signal.Signals) -> None:
    for pid in of_kit(kit):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
