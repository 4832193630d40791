"""The files of a run folder that are written once, before the first episode."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi import __version__
from fedlsvi.config import Parameters, Settings
from fedlsvi.envs.base import plain
from fedlsvi.errors import StoreError
from fedlsvi.protocol.plan import Plan
from fedlsvi.run import raw_scalars_per_step
from fedlsvi.storage import files
from fedlsvi.storage.checkpoint import FORMAT, check_version
from fedlsvi.storage.describe import collapsed, describe, features_fingerprint, fingerprints
from fedlsvi.storage.job import Job
from fedlsvi.storage.settings_file import dump, read

LIBRARIES = ("numpy", "scipy", "numba", "safetensors")


def versions() -> dict[str, Any]:
    """What decides the last bit of a result."""
    found: dict[str, Any] = {"fedlsvi": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    machine = {"platform": platform.platform(), "machine": platform.machine()}
    return found | machine | {"cpus": os.cpu_count()}


def setup_files(plan: Plan, algorithm: str, settings: Settings) -> dict[str, bytes]:
    """Name → contents; versions.json comes last and vouches for the others."""
    from safetensors.numpy import save

    job, arrays = describe(plan, algorithm, settings)
    p = plan.parameters
    force = f"gamma = {p.gamma:g}, beta = {p.beta:g}, lam = {p.lam:g}, packing = {p.packing}"
    note = f"# `fedlsvi run` on this file plays the same run again. In force: {force}\n"
    parameters = {
        "parameters": dataclasses.asdict(p),
        "raw_scalars_per_step": raw_scalars_per_step(plan),
        "fingerprints": fingerprints(plan),
        "features": features_fingerprint(plan),
        "reward_range": plain(plan.envs[0].reward_range),
    }
    contents = {
        "settings.toml": (note + dump(job.table())).encode(),
        "parameters.json": json.dumps(parameters, indent=1).encode() + b"\n",
    }
    for name, parts in arrays.items():
        contents[name] = save({key: np.ascontiguousarray(a) for key, a in parts.items()})
    stamps = {name: files.stamp(data) for name, data in contents.items()}
    seal = {"format": FORMAT, "versions": versions(), "files": stamps}
    contents["versions.json"] = files.sealed(seal)
    return contents


@dataclasses.dataclass(frozen=True)
class Setup:
    """What `setup_files` wrote, read back and verified."""

    run: Path
    job: Job
    parameters: Parameters
    raw_scalars_per_step: int
    fingerprints: list[str | None]
    versions: dict[str, Any]
    features: str | None = None
    """The fingerprint of the feature map; folders of earlier versions have none."""
    reward_range: tuple[float, float] | None = None
    """Agent 0's; likewise."""


def read_setup(folder: str | PathLike[str]) -> Setup:
    """The fixed part of a run folder."""
    run = Path(folder)
    if not files.exists(run / "versions.json"):
        where = "it has no versions.json" if files.exists(run) else "there is no such folder"
        raise StoreError(f"no run in {run}: {where}; give the folder of a run")
    sealed = files.read_json(run / "versions.json")
    check_version(run / "versions.json", sealed.get("format"))
    for name, stamp in sealed["files"].items():
        files.read(run / name, stamp)
    job = Job.parse(read(run / "settings.toml"), run)
    numbers = json.loads((run / "parameters.json").read_text())
    units = numbers.get("reward_range") or job.env[0].get("reward_range")
    return Setup(
        run, job, Parameters(**numbers["parameters"]), numbers["raw_scalars_per_step"],
        collapsed(numbers["fingerprints"]), sealed["versions"],
        numbers.get("features"), None if units is None else (units[0], units[1]),
    )  # fmt: skip
