"""Execute a notebook of the examples on a small budget."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from patience import PATIENCE

ROOT = Path(__file__).parents[1]


def executed(path: Path, smaller: Mapping[str, str], folder: Path = ROOT) -> Any:
    """The notebook after it was run in a folder, with `smaller` replaced in its cells."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
        for text, other in smaller.items():
            cell.source = cell.source.replace(text, other)
    client = nbclient.NotebookClient(
        notebook, timeout=int(PATIENCE), startup_timeout=int(PATIENCE), kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )  # fmt: skip
    source = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    with mock.patch.dict(os.environ, PYTHONPATH=source):
        client.execute()
    return notebook


def said(notebook: Any) -> str:
    """What its cells printed."""
    return "".join(
        output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", [])
    )
