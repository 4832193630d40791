"""`fedlsvi list`: what there is, by name."""

from __future__ import annotations

import argparse
from typing import Any

from fedlsvi.algorithms import registry as algorithms
from fedlsvi.cli.text import as_json
from fedlsvi.envs import registry as environments
from fedlsvi.envs.base import plain
from fedlsvi.features import registry as features
from fedlsvi.storage.job import ARRAYS

OWN = "your own finite MDP: env.file, a .npz or .safetensors with P, r and maybe initial, phi"


def do_list(arguments: argparse.Namespace) -> int:
    """Names, what they are, and their parameters."""
    kinds = [arguments.what] if arguments.what else ["environments", "algorithms", "features"]
    found = {kind: _rows(kind) for kind in kinds}
    if arguments.format == "json":
        print(as_json(found))
        return 0
    for kind, rows in found.items():
        print(f"{kind}:")
        width = max(len(row["name"]) for row in rows)
        for row in rows:
            print(f"  {row['name'].ljust(width)}  {row['summary']}")
            if row["parameters"]:
                inside = ", ".join(f"{key}={_shown(v)}" for key, v in row["parameters"].items())
                print(f"  {' ' * width}    {inside}")
    return 0


def _shown(value: Any) -> str:
    return "…" if value is None else str(value)


def _rows(kind: str) -> list[dict[str, Any]]:
    registry: Any = {
        "environments": environments, "algorithms": algorithms, "features": features,
    }[kind]  # fmt: skip
    rows = [
        {"name": row.name, "summary": row.summary, "parameters": plain(row.parameters())}
        for row in (registry.entry(name) for name in registry.names())
    ]
    if kind == "environments":
        parameters = {"file": None, "horizon": None}
        rows.append({"name": ARRAYS, "summary": OWN, "parameters": parameters})
    return rows
