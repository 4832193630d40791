"""A policy as two files: numbers in safetensors, everything else in JSON; nothing executes.

A table of actions where states are finite. Otherwise the factors L_h of Λ_h = L_h L_hᵀ and the
targets w_hᵀL_h, with which a loaded policy acts on the very numbers of the saved one. The JSON has
the hash of the numbers and one of itself, so that what was altered is noticed. φ at a few made-up
states tells whether features that are given again are the same.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.core.ridge import DenseFactor
from fedlsvi.envs.spaces import Spaces
from fedlsvi.errors import DamagedFile, StoreError, WrongVersion
from fedlsvi.experience.values import BlockValues, TabularValues
from fedlsvi.features.tabular import OneHot
from fedlsvi.policy import Policy
from fedlsvi.storage.policy_features import check_sample, made_again, sample

FORMAT = 2
NAME = "policy"
SEAL = "seal"
AGAIN = "restore it from a copy, or save the policy again"

Head = dict[str, Any]
Arrays = dict[str, np.ndarray]
Types = dict[str, tuple[type, ...]]

FIELDS: Types = {"horizon": (int,), "environment": (dict, type(None))}
LINEAR: Types = {
    "features": (dict,), "beta": (int, float), "ceilings": (list,), "rows": (int,),
}  # fmt: skip
SIZES: Types = {"n_actions": (int,), "state_dim": (int,)}
"""What format 1 had in place of the spaces."""

KINDS: dict[str, tuple[Types, tuple[str, ...]]] = {
    "table": ({}, ("actions",)),
    "linear": (LINEAR, ("lower", "target")),
}
"""Kind → the fields beyond FIELDS that its JSON has, and its arrays."""


def write(policy: Policy, path: str | PathLike[str]) -> None:
    """Write the folder `path`; an older policy in it is replaced."""
    from safetensors.numpy import save

    values = policy.values
    arrays: Arrays
    head: Head = {
        "format": FORMAT,
        "horizon": policy.horizon,
        "environment": policy.environment,
        "spaces": asdict(policy.spaces),
    }
    if isinstance(values, TabularValues):
        arrays = {"actions": values.policy}
        head["kind"] = "table"
    else:
        factors = [factor for factor in values.factors if factor is not None]
        arrays = {
            "lower": np.stack([factor.lower for factor in factors]),
            "target": np.stack(values.targets),
            **sample(values.features, policy.spaces),
        }
        what = values.features.spec() or {"given": type(values.features).__name__}
        head |= {
            "kind": "linear",
            "features": what,
            "beta": values.beta,
            "ceilings": values.ceilings.tolist(),
            "rows": values.rows,
        }
    data = save({key: np.ascontiguousarray(a) for key, a in arrays.items()})
    head["sha256"] = hashlib.sha256(data).hexdigest()
    head[SEAL] = _seal(head)
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _put(folder / f"{NAME}.safetensors", data)
        _put(folder / f"{NAME}.json", (json.dumps(head, indent=1) + "\n").encode())
    except OSError as error:
        raise StoreError(f"cannot write {folder}: {error.strerror}") from error


def _put(path: Path, data: bytes) -> None:
    """Whole or not at all."""
    temp = path.with_name(f".{path.name}.tmp")
    temp.write_bytes(data)
    os.replace(temp, path)


def _seal(head: Head) -> str:
    """SHA-256 of everything in the head but the seal itself."""
    content = {key: value for key, value in head.items() if key != SEAL}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read(path: str | PathLike[str], features: Any = None) -> Policy:
    """The policy in the folder `path`."""
    folder = Path(path)
    try:
        head = json.loads((folder / f"{NAME}.json").read_text())
        data = (folder / f"{NAME}.safetensors").read_bytes()
    except FileNotFoundError:
        raise StoreError(f"no policy in {folder}: give the folder that policy.save wrote") from None
    except (OSError, ValueError) as error:
        raise DamagedFile(f"{folder} cannot be read: {error}") from None
    arrays = _verified(folder, head, data)
    spaces = Spaces(**head["spaces"])
    if head["kind"] == "table":
        values: TabularValues | BlockValues = _table(arrays)
    else:
        values = _linear(head, arrays, spaces, features)
        check_sample(folder, values.features, arrays)
    return Policy(lambda: (values, spaces), head["horizon"], head["environment"])


def _verified(folder: Path, head: Any, data: bytes) -> Arrays:
    """The arrays, where both files are what `write` wrote."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    words, numbers = folder / f"{NAME}.json", folder / f"{NAME}.safetensors"
    if not isinstance(head, dict):
        raise DamagedFile(f"{words} is a {type(head).__name__}, not an object: {AGAIN}")
    if head.get("format") not in (1, FORMAT):
        raise WrongVersion(
            f"{folder} has format {head.get('format')!r}, this fedlsvi reads formats 1 to {FORMAT}"
        )
    if (head["format"] == FORMAT or SEAL in head) and head.get(SEAL) != _seal(head):
        raise DamagedFile(f"{words} was altered since it was written: {AGAIN}")
    if hashlib.sha256(data).hexdigest() != head.get("sha256"):
        raise DamagedFile(f"{numbers} was altered since it was written: {AGAIN}")
    try:
        arrays = load(data)
    except SafetensorError as error:
        raise DamagedFile(f"{numbers} cannot be read: {error}") from None
    wrong = _misfit(head, arrays)
    if wrong is not None:
        raise DamagedFile(f"{words}: {wrong}: {AGAIN}")
    return arrays


def _misfit(head: Head, arrays: Arrays) -> str | None:
    """The first field that is missing, of another type, or at odds with the arrays."""
    kind = head.get("kind")
    if kind not in list(KINDS):
        return f"kind is {kind!r}, not one of {list(KINDS)}"
    own, names = KINDS[kind]
    sizes = SIZES if kind == "linear" and "spaces" not in head else {}
    for field, types in {**FIELDS, **own, **sizes}.items():
        if field not in head:
            return f"{field} is missing"
        if not isinstance(head[field], types) or isinstance(head[field], bool):
            return f"{field} is {head[field]!r}"
    for name in names:
        if name not in arrays:
            return f"kind is '{kind}', but {NAME}.safetensors has no '{name}'"
        if len(arrays[name]) != head["horizon"]:
            return f"horizon is {head['horizon']}, '{name}' has {len(arrays[name])} steps"
    if kind == "linear" and len(head["ceilings"]) != head["horizon"]:
        return f"horizon is {head['horizon']}, ceilings has {len(head['ceilings'])} steps"
    return None


def _table(arrays: Arrays) -> TabularValues:
    """Only the actions: the values behind them stay with the run."""
    horizon, n_states = arrays["actions"].shape
    empty = OneHot(n_states, 1)
    values = TabularValues(empty, horizon, 0.0, np.zeros(horizon), diagonal=True)
    values.policy[:] = arrays["actions"]
    return values


def _linear(head: Head, arrays: Arrays, spaces: Spaces, given: Any) -> BlockValues:
    horizon, dim = arrays["target"].shape
    phi = made_again(head["features"], spaces, given, dim)
    values = BlockValues(phi, horizon, head["beta"], np.array(head["ceilings"]), head["rows"])
    values.factors = [DenseFactor(lower) for lower in arrays["lower"]]
    values.targets = list(arrays["target"])
    return values
