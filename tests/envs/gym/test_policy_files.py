"""The files of a saved policy: altered, unusable, or of another format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from worlds import Corridor

from expecting import refused
from fedlsvi import FedLSVI
from fedlsvi.errors import DamagedFile, WrongVersion
from fedlsvi.features import FourierFeatures
from fedlsvi.policy import Policy
from fedlsvi.storage import files


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A linear policy's folder."""
    folder = tmp_path_factory.mktemp("walk")
    phi = FourierFeatures(4, seed=3)
    run = FedLSVI(1).learn(lambda: Corridor(), 9, horizon=4, features=phi, progress=False)
    run.policy.save(folder)
    return folder


def _rewrite(source: Path, target: Path, head: dict[str, Any]) -> Path:
    """The policy in `source` with another JSON, sealed."""
    numbers = (source / "policy.safetensors").read_bytes()
    (target / "policy.safetensors").write_bytes(numbers)
    files.write_json(target / "policy.json", head)
    return target


@pytest.mark.parametrize(
    "change", [{"beta": 123.0}, {"horizon": 9}, {"rows": 7}, {"features": {"name": "rbf"}}]
)
def test_an_edited_json_is_noticed(walk: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    shutil.copytree(walk, tmp_path / "x")
    path = tmp_path / "x" / "policy.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with refused(DamagedFile, "damaged", str(path)):
        Policy.load(tmp_path / "x")
    path.write_text("[]")
    with refused(DamagedFile, "damaged", str(path)):
        Policy.load(tmp_path / "x")


def test_edited_numbers_are_noticed(walk: Path, tmp_path: Path) -> None:
    shutil.copytree(walk, tmp_path / "x")
    path = tmp_path / "x" / "policy.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with refused(DamagedFile, "altered", str(path)):
        Policy.load(tmp_path / "x")


@pytest.mark.parametrize("found", [None, 0, 2, "1"])
def test_another_format_is_refused(walk: Path, tmp_path: Path, found: Any) -> None:
    head = files.read_json(walk / "policy.json", {str: object}) | {"format": found}
    with refused(WrongVersion, "wrong-format", repr(found)):
        Policy.load(_rewrite(walk, tmp_path, head))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda head: {k: v for k, v in head.items() if k != "kind"}, "kind"),
        (lambda head: head | {"kind": []}, "kind"),
        (lambda head: head | {"kind": "table"}, "ceilings"),
        (lambda head: {k: v for k, v in head.items() if k != "features"}, "features"),
        (lambda head: {k: v for k, v in head.items() if k != "spaces"}, "spaces"),
        (lambda head: head | {"environment": 3}, "environment"),
        (lambda head: head | {"horizon": 9}, "horizon is 9"),
        (lambda head: head | {"ceilings": [1.0]}, "ceilings has 1"),
    ],
)
def test_a_json_that_cannot_be_used_gets_a_sentence(
    walk: Path, tmp_path: Path, change: Any, named: str
) -> None:
    with refused(DamagedFile, "damaged", named):
        Policy.load(
            _rewrite(walk, tmp_path, change(files.read_json(walk / "policy.json", {str: object})))
        )
