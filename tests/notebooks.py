"""Execute a notebook of the examples on a small budget."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import pytest

ROOT = Path(__file__).parents[1]


def executed(path: Path, smaller: Mapping[str, str]) -> str:
    """What the notebook prints, with `smaller` replaced in its cells."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        for text, other in smaller.items():
            cell.source = cell.source.replace(text, other)
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}
    )
    source = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    with mock.patch.dict(os.environ, PYTHONPATH=source):
        client.execute()
    return "".join(
        output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", [])
    )
