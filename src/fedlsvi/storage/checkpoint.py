"""Checkpoints: the state between two rounds, sealed by a manifest of hashes.

    checkpoints/000012.safetensors   w, Λ, the policy and what the agents remember
    checkpoints/000012.json          the manifest: hashes of that file and of what it builds on

The manifest is renamed into place last, so a checkpoint exists whole or not at all. The last two
are kept; if the newest turns out to be damaged, the one before it is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.checks import plural
from fedlsvi.errors import DamagedFile
from fedlsvi.experience.values import TabularValues
from fedlsvi.protocol.ledger import CATEGORIES
from fedlsvi.protocol.snapshot import BEFORE
from fedlsvi.storage import files
from fedlsvi.storage.files import Stamp, inside
from fedlsvi.storage.schema import Shape

KEPT = 2
CHECKPOINTS, HISTORY = "checkpoints", "history"
RECORDS, REGRET = "records.jsonl", "regret.bin"
AGENT_POLICIES = "policies"
"""The folder with a policy of each agent, by its number, where agents have their own."""

POLICY, DEPLOYED = "policy", "exploit."
"""The array of the policy, and what names of arrays begin with that belong to the policy without
exploration."""
RESULT = ("w", "gram", "noise", POLICY, DEPLOYED + "w", DEPLOYED + POLICY, "fit")
"""The arrays that a finished run keeps."""

OWN_CHECKPOINT = re.compile(r"\d{6,12}\.(json|safetensors)")
OWN_SEGMENT = re.compile(r"\d{9,19}-\d{9,19}\.safetensors")

_TOTALS: Shape = dict.fromkeys(CATEGORIES, int)
LEDGER: Shape = {
    "n_agents": int,
    "every": _TOTALS,
    "single": _TOTALS,
    "agents": {str: [int]},
    "scalars": _TOTALS,
    "bytes": _TOTALS,
}
STATE: Shape = {"t": int, "k": int, "last": int, "ledger": LEDGER}
SHAPE: Shape = {
    "number": int,
    "state": files.STAMP,
    "appended": ({RECORDS: files.STAMP}, {RECORDS: files.STAMP, REGRET: files.STAMP}),
    "history": [{"name": OWN_SEGMENT, "first": int, "last": int, "stamp": files.STAMP}],
    "plain": STATE | {str: Any},
    "format": int,
}

Notify = Callable[[str], None]


@dataclass(frozen=True)
class Manifest:
    """What one checkpoint holds and builds on."""

    number: int
    state: Stamp
    appended: dict[str, Stamp]
    """records.jsonl and regret.bin: how many bytes count, and their hash."""
    history: list[dict[str, Any]]
    """Segments of raw episodes, in order: name, first, last and stamp."""
    plain: dict[str, Any]
    format: int = field(default=files.FORMAT)

    @property
    def stem(self) -> str:
        """Name of the checkpoint's files, without suffix."""
        return f"{self.number:06d}"


def policy_table(values: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """The policy of a run as an array of its checkpoint, where states are finite: not with every
    algorithm does it follow from (w, Λ)."""
    return {prefix + POLICY: values.policy} if isinstance(values, TabularValues) else {}


def save(
    run: Path,
    number: int,
    arrays: Mapping[str, np.ndarray],
    plain: dict[str, Any],
    appended: dict[str, Stamp],
    history: list[dict[str, Any]],
) -> Manifest:
    """Write a checkpoint; everything it builds on must be durable already."""
    folder = inside(run, CHECKPOINTS)
    state = files.write_arrays(folder / f"{number:06d}.safetensors", arrays)
    manifest = Manifest(number, state, appended, list(history), plain)
    files.write_json(folder / f"{manifest.stem}.json", vars(manifest))
    return manifest


def newest(run: Path, notify: Notify) -> tuple[Manifest, dict[str, np.ndarray]] | None:
    """The newest checkpoint that is whole, with its arrays; None if none was ever written."""
    paths = reversed(_manifests(run))
    trouble: list[str] = []
    for path in paths:
        try:
            manifest, arrays = _open(run, path)
        except DamagedFile as error:
            trouble.append(str(error))
            continue
        if trouble:
            notify(
                f"the newest checkpoint cannot be used ({trouble[0]}); "
                f"going back to the one before it, after episode {manifest.plain['t']}"
            )
        return manifest, arrays
    if trouble:
        raise DamagedFile(trouble[0], code="damaged")
    return None


def _manifests(run: Path) -> list[Path]:
    """The manifests in a run folder, the newest last; they may be damaged."""
    found = inside(run, CHECKPOINTS).glob("*.json")
    return sorted((p for p in found if OWN_CHECKPOINT.fullmatch(p.name)), key=lambda p: int(p.stem))


def older(run: Path, manifest: Manifest) -> list[Manifest]:
    """The checkpoint before this one, as long as its manifest can be read."""
    found = []
    for path in _manifests(run):
        if int(path.stem) < manifest.number:
            with suppress(DamagedFile):
                found.append(_read(path))
    return found[-1:]


def _read(path: Path) -> Manifest:
    manifest = Manifest(**files.read_json(path, SHAPE))
    if manifest.stem != path.stem:
        raise DamagedFile(f"{path} is the manifest of checkpoint {manifest.number}", code="damaged")
    return manifest


def _open(run: Path, path: Path) -> tuple[Manifest, dict[str, np.ndarray]]:
    """Read a checkpoint and verify everything it builds on."""
    manifest = _read(path)
    arrays = files.read_arrays(path.with_suffix(".safetensors"), manifest.state)
    for name, expected in manifest.appended.items():
        files.read_prefix(inside(run, name), expected)
    before, t = 0, manifest.plain["t"]
    for segment in manifest.history:
        files.read(inside(run, HISTORY, segment["name"]), segment["stamp"])
        if not before == segment["first"] < segment["last"] <= t:
            raise DamagedFile(
                f"{path}: episodes of {segment['name']} do not follow", code="damaged"
            )
        before = segment["last"]
    # of a finished run, what is needed to go on: the episodes before its last round
    ends = (0, t, manifest.plain.get(BEFORE, {}).get("t", t))
    if before not in ends or manifest.appended.get(REGRET, {"bytes": 8 * t})["bytes"] != 8 * t:
        raise DamagedFile(
            f"{path}: {REGRET} or {HISTORY} are not of {plural(t, 'episode')}", code="damaged"
        )
    return manifest, arrays


def prune(run: Path, keep: list[Manifest]) -> None:
    """Remove checkpoints and segments that none of `keep` needs, and what a kill left behind."""
    stems = {manifest.stem + suffix for manifest in keep for suffix in (".json", ".safetensors")}
    segments = {s["name"] for manifest in keep for s in manifest.history}
    files.prune(inside(run, CHECKPOINTS), OWN_CHECKPOINT, stems)
    files.prune(inside(run, HISTORY), OWN_SEGMENT, segments)
