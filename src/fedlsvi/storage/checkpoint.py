"""Checkpoints: the state between two rounds, sealed by a manifest of hashes.

    checkpoints/000012.safetensors   w, Λ, the policy and what the agents remember
    checkpoints/000012.json          the manifest: hashes of that file and of what it builds on

The manifest is renamed into place last, so a checkpoint exists whole or not at all. The last two
are kept; if the newest turns out to be damaged, the one before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.errors import DamagedFile
from fedlsvi.storage import files
from fedlsvi.storage.files import Stamp

KEPT = 2
CHECKPOINTS, HISTORY = "checkpoints", "history"
RECORDS, REGRET = "records.jsonl", "regret.bin"

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


def save(
    run: Path,
    number: int,
    arrays: Mapping[str, np.ndarray],
    plain: dict[str, Any],
    appended: dict[str, Stamp],
    history: list[dict[str, Any]],
) -> Manifest:
    """Write a checkpoint; everything it builds on must be durable already."""
    folder = run / CHECKPOINTS
    state = files.write_arrays(folder / f"{number:06d}.safetensors", arrays)
    manifest = Manifest(number, state, appended, list(history), plain)
    files.write_json(folder / f"{manifest.stem}.json", vars(manifest))
    return manifest


def newest(run: Path, notify: Notify) -> tuple[Manifest, dict[str, np.ndarray]] | None:
    """The newest checkpoint that is whole, with its arrays; None if none was ever written."""
    paths = sorted((run / CHECKPOINTS).glob("*.json"), reverse=True)
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
        raise DamagedFile(trouble[0])
    return None


def _open(run: Path, path: Path) -> tuple[Manifest, dict[str, np.ndarray]]:
    """Read a checkpoint and verify everything it builds on."""
    content = files.read_json(path)
    files.check_format(path, content.get("format"))
    try:
        manifest = Manifest(**content)
    except TypeError:
        raise DamagedFile(f"{path} is not a manifest: remove it and resume again") from None
    arrays = files.read_arrays(path.with_suffix(".safetensors"), manifest.state)
    for name, expected in manifest.appended.items():
        files.read_prefix(run / name, expected)
    for segment in manifest.history:
        files.read(run / HISTORY / segment["name"], segment["stamp"])
    return manifest, arrays


def prune(run: Path, keep: list[Manifest]) -> None:
    """Remove checkpoints and segments that none of `keep` needs, and what a kill left behind."""
    stems = {manifest.stem for manifest in keep}
    segments = {s["name"] for manifest in keep for s in manifest.history}
    # manifests go before the files that they vouch for
    for path in sorted((run / CHECKPOINTS).iterdir(), key=lambda p: p.suffix != ".json"):
        if path.stem not in stems:
            _remove(path)
    if (run / HISTORY).is_dir():
        for path in (run / HISTORY).iterdir():
            if path.name not in segments:
                _remove(path)


def _remove(path: Path) -> None:
    with suppress(OSError):  # what cannot be removed now goes with the next checkpoint
        path.unlink()
