"""What the files of deploy/ say: commands, containers and services."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[1] / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def documents(path: Path) -> list[dict[str, Any]]:
    """The documents of a file of YAML."""
    found: list[dict[str, Any]] = list(yaml.safe_load_all(path.read_text()))
    return found


def compose() -> dict[str, Any]:
    """The compose file."""
    (found,) = documents(DEPLOY / "docker" / "compose.yaml")
    return found


def image_command() -> list[str]:
    """What a container of the image runs where nobody says otherwise."""
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    said = dict(re.findall(r"^(ENTRYPOINT|CMD) (\[.*\])$", text, re.MULTILINE))
    return [*yaml.safe_load(said["ENTRYPOINT"]), *yaml.safe_load(said["CMD"])]


def containers(path: Path) -> list[dict[str, Any]]:
    """The containers of all pods of a file, which must not run as root."""
    found = []
    for document in documents(path):
        if "template" not in (spec := document.get("spec", {})):
            continue
        pod = spec["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        found += [*pod.get("initContainers", []), *pod["containers"]]
    return found


def exec_start(unit: Path) -> list[str]:
    """The command of a unit, for the party `north`."""
    (line,) = re.findall("^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    return shlex.split(line.replace("%i", "north"))
