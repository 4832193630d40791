"""A policy as two files: numbers in safetensors, everything else in JSON; nothing executes.

A table of actions where states are finite. Otherwise the factors L_h of Λ_h = L_h L_hᵀ and the
targets w_hᵀL_h, with which a loaded policy acts on the very numbers of the saved one.
"""

from __future__ import annotations

import hashlib
import json
import os
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.core.ridge import DenseFactor
from fedlsvi.errors import DamagedFile, InvalidFeatures, StoreError, WrongVersion
from fedlsvi.features.base import FeatureMap, resolve
from fedlsvi.features.registry import make
from fedlsvi.features.tabular import OneHot
from fedlsvi.policy import Policy
from fedlsvi.values import BlockValues, TabularValues

FORMAT = 1
NAME = "policy"


def write(policy: Policy, path: str | PathLike[str]) -> None:
    """Write the folder `path`; an older policy in it is replaced."""
    from safetensors.numpy import save

    values = policy.values
    arrays: dict[str, np.ndarray]
    head: dict[str, Any] = {
        "format": FORMAT,
        "horizon": policy.horizon,
        "environment": policy.environment,
    }
    if isinstance(values, TabularValues):
        arrays = {"actions": np.ascontiguousarray(values.policy)}
        head["kind"] = "table"
    else:
        factors = [factor for factor in values.factors if factor is not None]
        arrays = {
            "lower": np.stack([factor.lower for factor in factors]),
            "target": np.stack(values.targets),
        }
        spec = getattr(values.features, "spec", None)
        what = spec() if callable(spec) else {"given": type(values.features).__name__}
        head |= {
            "kind": "linear",
            "features": what,
            "beta": values.beta,
            "ceilings": values.ceilings.tolist(),
            "rows": values.rows,
            "n_actions": values.features.n_actions,
            "state_dim": values.features.state_dim,
        }
    data = save({key: np.ascontiguousarray(a) for key, a in arrays.items()})
    head["sha256"] = hashlib.sha256(data).hexdigest()
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


def read(path: str | PathLike[str], features: Any = None) -> Policy:
    """The policy in the folder `path`."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    folder = Path(path)
    try:
        head = json.loads((folder / f"{NAME}.json").read_text())
        data = (folder / f"{NAME}.safetensors").read_bytes()
    except FileNotFoundError:
        raise StoreError(f"no policy in {folder}: give the folder that policy.save wrote") from None
    except (OSError, ValueError) as error:
        raise DamagedFile(f"{folder} cannot be read: {error}") from None
    if head.get("format") != FORMAT:
        raise WrongVersion(
            f"{folder} has format {head.get('format')!r}, this fedlsvi reads format {FORMAT}"
        )
    if hashlib.sha256(data).hexdigest() != head.get("sha256"):
        raise DamagedFile(f"{folder / NAME}.safetensors was altered since it was written")
    try:
        arrays = load(data)
    except SafetensorError as error:
        raise DamagedFile(f"{folder / NAME}.safetensors cannot be read: {error}") from None
    values = _table(arrays) if head["kind"] == "table" else _linear(head, arrays, features)
    return Policy(lambda: values, head["horizon"], head["environment"])


def _table(arrays: dict[str, np.ndarray]) -> TabularValues:
    """Only the actions: the values behind them stay with the run."""
    horizon, n_states = arrays["actions"].shape
    empty = OneHot(n_states, 1)
    values = TabularValues(empty, horizon, 0.0, np.zeros(horizon), diagonal=True)
    values.policy[:] = arrays["actions"]
    return values


def _linear(head: dict[str, Any], arrays: dict[str, np.ndarray], given: Any) -> BlockValues:
    horizon, dim = arrays["target"].shape
    phi = _features(head, given, dim)
    values = BlockValues(phi, horizon, head["beta"], np.array(head["ceilings"]), head["rows"])
    values.factors = [DenseFactor(lower) for lower in arrays["lower"]]
    values.targets = list(arrays["target"])
    return values


def _features(head: dict[str, Any], given: Any, dim: int) -> FeatureMap:
    what = head["features"]
    if given is None:
        if "given" in what:
            raise InvalidFeatures(
                f"the policy has features of its own ({what['given']}), which no file can hold: "
                "give them again, features=..."
            )
        given = make(what["name"], **what["params"])
    phi = resolve(given, _Shape(head["n_actions"], head["state_dim"]))
    if phi.dim != dim:
        raise InvalidFeatures(f"features have dimension {phi.dim}, the policy was saved with {dim}")
    return phi


class _Shape:
    """As much of an environment as features need to bind."""

    name = "the policy's environment"

    def __init__(self, n_actions: int, state_dim: int) -> None:
        self.n_actions, self.state_dim = n_actions, state_dim

    def default_features(self) -> FeatureMap:
        raise InvalidFeatures("a saved policy has no features of its own")

    def probe(self, n: int) -> np.ndarray:
        """States to try features on."""
        return np.zeros((n, self.state_dim))
