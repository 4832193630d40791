"""A policy as two files: numbers in safetensors, everything else in JSON; nothing executes.

A table of actions where states are finite. Otherwise the factors L_h of Λ_h = L_h L_hᵀ and the
targets w_hᵀL_h, with which a loaded policy acts on the very numbers of the saved one. The JSON is
sealed and has the hash of the numbers, so that what was altered is noticed. φ at a few made-up
states tells whether features that are given again are the same.
"""

from __future__ import annotations

from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.core.ridge import DenseFactor
from fedlsvi.envs.spaces import Spaces
from fedlsvi.errors import DamagedFile, StoreError
from fedlsvi.experience.values import BlockValues, TabularValues
from fedlsvi.features.tabular import OneHot
from fedlsvi.policy import Policy
from fedlsvi.storage import files
from fedlsvi.storage.policy_features import check_sample, made_again, sample

WORDS, NUMBERS = "policy.json", "policy.safetensors"
AGAIN = "restore it from a copy, or save the policy again"

Head = dict[str, Any]
Arrays = dict[str, np.ndarray]
Types = dict[str, tuple[type, ...]]

FIELDS: Types = {"horizon": (int,), "environment": (dict, type(None)), "spaces": (dict,)}
LINEAR: Types = {"features": (dict,), "beta": (int, float), "ceilings": (list,), "rows": (int,)}

KINDS: dict[str, tuple[Types, tuple[str, ...]]] = {
    "table": ({}, ("actions",)),
    "linear": (LINEAR, ("lower", "target")),
}
"""Kind → the fields beyond FIELDS that its JSON has, and its arrays."""


def write(policy: Policy, path: str | PathLike[str]) -> None:
    """Write the folder `path`; an older policy in it is replaced."""
    values = policy.values
    arrays: Arrays
    head: Head = {
        "format": files.FORMAT,
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
    folder = Path(path)
    files.make_folder(folder)
    head["arrays"] = files.write_arrays(folder / NUMBERS, arrays)
    files.write_json(folder / WORDS, head)


def read(path: str | PathLike[str], features: Any = None) -> Policy:
    """The policy in the folder `path`."""
    folder = Path(path)
    if not files.exists(folder / WORDS):
        raise StoreError(
            f"no policy in {folder}: give the folder that policy.save wrote", code="no-policy"
        )
    head = files.read_json(folder / WORDS)
    files.check_format(folder / WORDS, head.get("format"))
    arrays = files.read_arrays(folder / NUMBERS, head.get("arrays"))
    wrong = _misfit(head, arrays)
    if wrong is not None:
        raise DamagedFile(f"{folder / WORDS}: {wrong}: {AGAIN}", code="damaged-policy")
    spaces = Spaces(**head["spaces"])
    if head["kind"] == "table":
        values: TabularValues | BlockValues = _table(arrays)
    else:
        values = _linear(head, arrays, spaces, features)
        check_sample(folder, values.features, arrays)
    return Policy(lambda: (values, spaces), head["horizon"], head["environment"])


def _misfit(head: Head, arrays: Arrays) -> str | None:
    """The first field that is missing, of another type, or at odds with the arrays."""
    kind = head.get("kind")
    if kind not in list(KINDS):
        return f"kind is {kind!r}, not one of {list(KINDS)}"
    own, names = KINDS[kind]
    for field, types in {**FIELDS, **own}.items():
        if field not in head:
            return f"{field} is missing"
        if not isinstance(head[field], types) or isinstance(head[field], bool):
            return f"{field} is {head[field]!r}"
    for name in names:
        if name not in arrays:
            return f"kind is '{kind}', but {NUMBERS} has no '{name}'"
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
