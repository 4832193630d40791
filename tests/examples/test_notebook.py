"""The sepsis notebook runs from top to bottom, on a small budget."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from repeats import only_ci

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "sepsis" / "sepsis.ipynb"


@only_ci
@pytest.mark.filterwarnings("ignore")
def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("icu_sepsis")
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    source = str(ROOT / "src")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace("EPISODES = 150", "EPISODES = 10")
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}
    )
    client.execute()
    said = "".join(
        output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", [])
    )
    assert "optimum               0.7922" in said
    assert "dose in state 100 at step 1:" in said


def test_the_notebook_shows_its_results() -> None:
    text = NOTEBOOK.read_text()
    assert "ten hospitals  0.78" in text
    assert "image/png" in text
