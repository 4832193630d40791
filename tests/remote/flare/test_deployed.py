"""The commands of deploy/, run as they stand on real kits, outside containers."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest
from parties import ENV, FEDERATION, SITES

import fedlsvi
from deployment import DEPLOY, compose, containers, exec_start, image_command
from fedlsvi.cli import main
from fedlsvi.remote.flare import processes, project
from fedlsvi.remote.flare.demo import free_port
from patience import PATIENCE, wait_until
from repeats import only_ci

# FLARE's threads use what its libraries call deprecated
pytestmark = pytest.mark.filterwarnings("ignore")

UNITS = DEPLOY / "systemd"
DEPLOYED = replace(FEDERATION, name="deployed", episodes=60)


def environment(unit: Path, cache: Path) -> dict[str, str]:
    """What a unit sets, with the Python of the tests where the package is installed."""
    said = dict(re.findall(r"^Environment=(\w+)=(.*)$", unit.read_text(), re.MULTILINE))
    path = said["PATH"].replace("/opt/fedlsvi/bin", str(Path(sys.executable).parent))
    assert path != said["PATH"]
    cached = {"NUMBA_CACHE_DIR": str(cache)} if "NUMBA_CACHE_DIR" in said else {}
    return {**os.environ, **said, "PATH": path, **cached}


def in_kit(command: list[str], place: str, kit: Path) -> list[str]:
    """The command, with the kit where `place` is."""
    found = [word.replace(place, str(kit)) for word in command]
    assert found != command
    return found


@only_ci  # that they are the commands of kits: tests/deploy/test_files.py
def test_commands_of_units_and_containers_run_a_federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server as Kubernetes starts it, the sites as systemd, the image and compose do, and the
    metrics of all three: the job ends well, and each page of metrics says so."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    own = {site: {"agents": 1, "env": ENV} for site in SITES}
    folder = project.init(tmp_path / "project", DEPLOYED, own, port=free_port())
    kits = {name: folder / "kits" / name for name in ("localhost", *SITES)}
    pods = {pod["name"]: pod["command"] for pod in containers(DEPLOY / "kubernetes/server.yaml")}
    services = compose()["services"]
    assert "command" not in services["north"]  # it runs what the image runs
    party, metrics = UNITS / "fedlsvi@.service", UNITS / "fedlsvi-metrics@.service"
    unit, plain = environment(party, tmp_path / "cache"), environment(metrics, tmp_path)
    server, ports = kits["localhost"], [free_port() for _ in range(3)]
    lines = [
        (in_kit(pods["server"], "/kit", server), plain),
        (in_kit(exec_start(party), "/srv/fedlsvi/north", kits["site-1"]), unit),
        (in_kit(image_command(), "/kit", kits["site-2"]), plain),
        (in_kit(image_command(), "/kit", kits["site-3"]), plain),
        (in_kit(exec_start(metrics), "/srv/fedlsvi/north", server), plain),
        (in_kit(pods["metrics"], "/kit", server), plain),
        (["/bin/bash", *in_kit(services["metrics"]["command"], "/kit", server)], plain),
    ]
    for (line, _), port in zip(lines[4:], ports, strict=True):
        line[:] = [word.replace("9464", str(port)).replace("0.0.0.0", "127.0.0.1") for word in line]
        assert any(str(port) in word for word in line)
    fedlsvi_here = tmp_path / "bin"  # where the package is not installed, but found on the path
    fedlsvi_here.mkdir()
    script = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m fedlsvi "$@"\n'
    (fedlsvi_here / "fedlsvi").write_text(script)
    (fedlsvi_here / "fedlsvi").chmod(0o700)
    began = []
    try:
        waits = in_kit(pods["kit"], "/kit", server)
        assert subprocess.run(waits, env=plain, check=False).returncode == 0
        for line, env in lines:
            began.append(subprocess.Popen(
                line, env={**env, "PATH": f"{fedlsvi_here}:{env['PATH']}"},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            ))  # fmt: skip
        number = project.start(folder, PATIENCE)
        assert project.wait(folder, number, PATIENCE) == project.COMPLETED
        for port in ports:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
                text = answer.read().decode()
            assert 'fedlsvi_run_state{run="deployed",state="complete"} 1.0' in text
        assert main(["federate", "status", str(folder), "--check"]) == 0
        assert all(process.poll() is None for process in began)
        for process in began:  # as systemd and containers end them
            os.killpg(process.pid, signal.SIGTERM)
        for process in began[4:]:
            process.wait(PATIENCE)
        wait_until(lambda: not any(processes.of_kit(kits[site]) for site in SITES), "sites stay")
    finally:
        for process in began:
            process.kill()
            process.wait()
        for kit in kits.values():
            processes.end(kit, kill=True)
        project.clean(folder)
    assert fedlsvi.load(project.server_folder(folder)).played == DEPLOYED.episodes
