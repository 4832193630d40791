"""The JSON of a saved policy: altered, unusable, or of an earlier format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from worlds import Corridor

from fedlsvi import FedLSVI
from fedlsvi.errors import DamagedFile
from fedlsvi.features import FourierFeatures
from fedlsvi.policy import Policy


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A linear policy's folder."""
    folder = tmp_path_factory.mktemp("walk")
    phi = FourierFeatures(4, seed=3)
    run = FedLSVI(1).learn(lambda: Corridor(), 9, horizon=4, features=phi, progress=False)
    run.policy.save(folder)
    return folder


def _rewrite(source: Path, target: Path, head: Any) -> Path:
    """The policy in `source` with another JSON."""
    numbers = (source / "policy.safetensors").read_bytes()
    (target / "policy.safetensors").write_bytes(numbers)
    (target / "policy.json").write_text(json.dumps(head))
    return target


def _first_format(folder: Path) -> dict[str, Any]:
    """The JSON as format 1 had it: no seal, sizes in place of the spaces."""
    head = json.loads((folder / "policy.json").read_text())
    sizes = head.pop("spaces")
    del head["seal"]
    kept = {} if head["kind"] == "table" else {k: sizes[k] for k in ("n_actions", "state_dim")}
    return head | {"format": 1} | kept


@pytest.mark.parametrize(
    "change", [{"beta": 123.0}, {"horizon": 9}, {"rows": 7}, {"features": {"name": "rbf"}}]
)
def test_an_edited_json_is_noticed(walk: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    head = json.loads((walk / "policy.json").read_text())
    with pytest.raises(DamagedFile, match=r"policy\.json was altered"):
        Policy.load(_rewrite(walk, tmp_path, head | change))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda head: [], "is a list, not an object"),
        (lambda head: {k: v for k, v in head.items() if k != "kind"}, "kind is None"),
        (lambda head: head | {"kind": []}, r"kind is \[\]"),
        (lambda head: head | {"kind": "table"}, "has no 'actions'"),
        (lambda head: {k: v for k, v in head.items() if k != "features"}, "features is missing"),
        (lambda head: {k: v for k, v in head.items() if k != "state_dim"}, "state_dim is missing"),
        (lambda head: head | {"environment": 3}, "environment is 3"),
        (lambda head: head | {"horizon": 9}, "horizon is 9, 'lower' has 4 steps"),
        (lambda head: head | {"ceilings": [1.0]}, "ceilings has 1 steps"),
    ],
)
def test_a_json_that_cannot_be_used_gets_a_sentence(
    walk: Path, tmp_path: Path, change: Any, sentence: str
) -> None:
    with pytest.raises(DamagedFile, match=sentence):
        Policy.load(_rewrite(walk, tmp_path, change(_first_format(walk))))
