"""A policy as two files: numbers in safetensors, everything else in JSON; nothing executes.

A table of actions where states are finite; with the scores of all actions where a black box tells
only with each observation which are allowed. Otherwise the factors L_h of Λ_h = L_h L_hᵀ and the
targets w_hᵀL_h, with which a loaded policy acts on the very numbers of the saved one. The JSON is
sealed and has the hash of the numbers, so that what was altered is noticed. φ at a few made-up
states tells whether features that are given again are the same.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from fedlsvi.checks import SEEDS, is_integer, plural
from fedlsvi.core import heads
from fedlsvi.core.statistics import DenseFactor
from fedlsvi.envs.spaces import Spaces, count_observations
from fedlsvi.errors import DamagedFile, InvalidFeatures, StoreError
from fedlsvi.experience.values import BlockValues, TabularValues
from fedlsvi.features.base import CallableFeatures, FeatureMap, resolve
from fedlsvi.features.registry import make
from fedlsvi.features.tabular import OneHot
from fedlsvi.policy import Policy
from fedlsvi.storage import files
from fedlsvi.storage.schema import Shape, check_shape, misfit, suspect

WORDS, NUMBERS = "policy.json", "policy.safetensors"
TRIED = 8
TOLERANCE = 1e-4
"""How far φ may differ: a network's last digits are others on another machine."""
AGAIN = "restore it from a backup, or save the policy again"

Head = dict[str, Any]
Arrays = dict[str, np.ndarray]


def _description(value: Any) -> bool:
    """Whether this describes an observation (`fedlsvi.envs.spaces`)."""
    if isinstance(value, dict) and value.keys() == {"parts"}:
        parts = value["parts"]
        inner = parts.values() if isinstance(parts, dict) else parts
        return isinstance(parts, dict | list) and all(_description(part) for part in inner)
    if misfit(value, NUMBERED) is None:
        n = len(value["choices"])
        return n == len(value["first"]) and n == math.prod(value["shape"])
    return misfit(value, VECTORS) is None


def _offset(value: Any) -> bool:
    return is_integer(value) and abs(value) < SEEDS


NUMBERED: Shape = {"choices": [int], "first": [_offset], "shape": [int]}
VECTORS: Shape = {"numbers": [int], "dtype": lambda name: name in list(np.sctypeDict)}
SPACES: Shape = {
    "observation": _description,
    **dict.fromkeys(("n_actions", "n_states", "state_dim"), (int, None)),
    "first_action": _offset,
    "after_end": (bool, None),
}
BOTH: Shape = {
    "format": int,
    "horizon": int,
    "environment": (None, {"name": (str, None), "params": dict}),
    "spaces": SPACES,
    "arrays": files.STAMP,
}
MASKED = "masked"
"""Field of a policy that has to be told which actions are allowed; others do not have it."""
OPTIONAL: Shape = {
    MASKED: bool,
    "noise": [float],
    "ceilings": [float],
}  # older tables do not have the latter

TABLE: Shape = {**BOTH, "kind": re.compile("table")}
LINEAR: Shape = {
    **BOTH,
    "kind": re.compile("linear"),
    "features": ({"name": str, "params": dict}, {"given": str}),
    "beta": (float, [float]),  # of all steps, or of each
    "ceilings": [float],
    "rows": int,
}


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
        head |= {"kind": "table", "ceilings": values.ceilings.tolist()}
        if values.needs_mask:
            arrays["scores"] = values.scores
    else:
        factors = [factor for factor in values.factors if factor is not None]
        arrays = {
            "lower": np.stack([factor.lower for factor in factors]),
            "target": np.stack(values.targets),
            **_sample(values.features, policy.spaces),
        }
        what = values.features.spec() or {"given": type(values.features).__name__}
        head |= {
            "kind": "linear",
            "features": what,
            "beta": values.betas.tolist() if values.head.tapers else values.beta,
            "ceilings": values.ceilings.tolist(),
            "rows": values.rows,
        }
        if values.noise is not None:
            head["noise"] = values.noise.tolist()
    if values.needs_mask or (isinstance(values, BlockValues) and values.allowed is not None):
        head[MASKED] = True  # no file can hold a function
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
    path = files.inside(folder, WORDS)
    head = files.read_json(path, {"format": int, str: Any})
    shape = TABLE if head.get("kind") == "table" else LINEAR
    check_shape(path, head, {key: OPTIONAL[key] for key in OPTIONAL if key in head} | shape)
    arrays = files.read_arrays(files.inside(folder, NUMBERS), head["arrays"])
    wrong = _misfit(head, arrays)
    if wrong is not None:
        raise DamagedFile(f"{path}: {wrong}: {AGAIN}", code="damaged")
    spaces = Spaces(**head["spaces"])
    if head["kind"] == "table":
        values: TabularValues | BlockValues = _table(head, arrays)
    else:
        with suspect(path):
            values = _linear(head, arrays, spaces, features)
            _check_sample(folder, values.features, arrays)
    values.needs_mask = bool(head.get(MASKED, False))
    return Policy(lambda: (values, spaces), head["horizon"], head["environment"])


MOST_ROWS = 2**20
"""Feature rows evaluated at once; a file that asks for longer buffers is refused."""


def _misfit(head: Head, arrays: Arrays) -> str | None:
    """The first array that is missing, or at odds with the fields."""
    spaces, horizon = head["spaces"], head["horizon"]
    n_actions, n_states, dim = (spaces[key] for key in ("n_actions", "n_states", "state_dim"))
    if head["kind"] == "table":
        sizes: dict[str, tuple[int | None, ...]] = {"actions": (horizon, n_states)}
        if head.get(MASKED):
            sizes["scores"] = (horizon, n_states, n_actions)
        if count_observations(spaces["observation"]) is None:
            return "observations are not numbers of states"
    else:
        d = arrays["target"].shape[-1] if "target" in arrays and arrays["target"].ndim else 0
        sizes = {"lower": (horizon, d, d), "target": (horizon, d)}
        if "phi" in arrays:
            sizes["states"] = (TRIED, dim)
        if not 1 <= head["rows"] <= MOST_ROWS or dim is None:
            return f"rows is {head['rows']}, state_dim is {dim}"
    for name in ("ceilings", "beta", "noise"):
        if isinstance(given := head.get(name), list) and len(given) != horizon:
            return f"horizon is {horizon}, {name} has {plural(len(given), 'step')}"
    for name, size in sizes.items():
        if name not in arrays:
            return f"kind is '{head['kind']}', but {NUMBERS} has no '{name}'"
        kinds = "iu" if name == "actions" else "f"
        if arrays[name].shape != size or arrays[name].dtype.kind not in kinds:
            return f"'{name}' is {arrays[name].dtype} {arrays[name].shape}, not {size}"
    table = arrays.get("actions", np.zeros(0))
    if table.size and not 0 <= table.min() <= table.max() < (n_actions or 0):
        return f"actions are from {table.min()} to {table.max()}, there are {n_actions}"
    return None


def _table(head: Head, arrays: Arrays) -> TabularValues:
    """Only the actions, and how large values can be: the values stay with the run."""
    horizon, n_states = arrays["actions"].shape
    empty = OneHot(n_states, 1)
    top = np.array(head.get("ceilings", [0.0] * horizon))
    values = TabularValues(empty, heads.Head(0.0, top), diagonal=True)
    values.policy[:] = arrays["actions"]
    values.scores = arrays.get("scores", values.scores)
    return values


def _linear(head: Head, arrays: Arrays, spaces: Spaces, given: Any) -> BlockValues:
    dim = arrays["target"].shape[1]
    phi = _made_again(head["features"], spaces, given, dim)
    each = isinstance(head["beta"], list)
    beta, taper = (1.0, np.array(head["beta"], np.float64)) if each else (head["beta"], None)
    read = heads.Head(beta, np.array(head["ceilings"]), taper)
    values = BlockValues(phi, read, head["rows"])
    values.factors = [DenseFactor(lower) for lower in arrays["lower"]]
    values.targets = list(arrays["target"])
    values.noise = np.array(head["noise"]) if "noise" in head else None
    return values


def _made_again(what: dict[str, Any], spaces: Spaces, given: Any, dim: int) -> FeatureMap:
    """The features of a policy, from their name or as they are given again."""
    if given is None:
        name, params = what.get("name"), what.get("params")
        if not (isinstance(name, str) and isinstance(params, dict)):
            raise InvalidFeatures(
                f"the policy's features ({what.get('given')}) are a function, which cannot be "
                "stored in a file: give them again, features=...",
                code="features-not-saved",
            )
        given = make(name, **params)
    phi = resolve(given, _Shape(spaces))
    if phi.dim != dim:
        raise InvalidFeatures(
            f"features have dimension {phi.dim}, but the policy was saved with {dim}: give the "
            "same features",
            code="other-features",
        )
    return phi


def _sample(phi: FeatureMap, spaces: Spaces) -> dict[str, np.ndarray]:
    """φ at a few made-up states, and these; nothing where it has no values there."""
    states = _Shape(spaces).probe(TRIED)
    try:
        return {"states": states, "phi": _values(phi, states)}
    except Exception:  # whatever a function may raise at a state that its environment never shows
        return {}


def _values(phi: FeatureMap, states: np.ndarray) -> np.ndarray:
    """φ(states), whatever its norms: no environment promises them at made-up states."""
    found = phi.fn(states) if isinstance(phi, CallableFeatures) else phi(states)
    return np.array(found, dtype=np.float64)


def _check_sample(folder: Path, phi: FeatureMap, arrays: dict[str, np.ndarray]) -> None:
    """Refuse features other than those of the policy, where φ has values at made-up states."""
    if "phi" not in arrays:
        return
    found, saved = _values(phi, arrays["states"]), arrays["phi"]
    if found.shape != saved.shape or not np.allclose(
        found, saved, rtol=0.0, atol=TOLERANCE, equal_nan=True
    ):
        raise InvalidFeatures(
            f"the policy in {folder} was saved with different features: give the same ones, "
            "features=..., or leave features out if the folder names them",
            code="other-features",
        )


class _Shape:
    """As much of an environment as features need to bind."""

    name = "the policy's environment"
    imagined = True

    def __init__(self, spaces: Spaces) -> None:
        self.n_actions, self.state_dim = spaces.n_actions, spaces.state_dim

    def default_features(self) -> FeatureMap:
        raise InvalidFeatures(
            "an environment rebuilt from a saved policy has no default features: give features=",
            code="no-features",
        )

    def probe(self, n: int) -> np.ndarray:
        """States to try features on; not 0, which has no direction and no logarithm."""
        assert self.state_dim is not None
        return np.random.default_rng(0).uniform(0.25, 0.75, (n, self.state_dim))
