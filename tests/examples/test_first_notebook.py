"""The first notebook runs from top to bottom and is pleasant to read."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from notebooks import ROOT, executed

NOTEBOOK = ROOT / "examples" / "first" / "first.ipynb"


def outputs(notebook: Any, source: str) -> list[Any]:
    """What the cells that hold this text showed."""
    cells = [c for c in notebook.cells if c.cell_type == "code" and source in c.source]
    assert cells, source
    return [output for cell in cells for output in cell.outputs]


def check(notebook: Any) -> None:
    """Reprs below 2,000 characters, HTML beside them, a picture, a progress bar, no warning."""
    shown = [o for cell in notebook.cells for o in cell.get("outputs", []) if "data" in o]
    assert len(shown) >= 8
    for output in shown:
        assert len(output["data"]["text/plain"]) < 2000
    said = [o for cell in notebook.cells for o in cell.get("outputs", []) if "text" in o]
    assert all("Warning" not in output["text"] for output in said)
    assert any(output["text"].startswith("expect ") for output in said)
    assert any("image/png" in output["data"] for output in outputs(notebook, "run.plot()"))
    bars = [o for o in outputs(notebook, "learner.learn(") if "data" in o]
    assert any("<progress" in output["data"]["text/html"] for output in bars)
    assert any("2,000/2,000" in output["data"]["text/plain"] for output in bars)
    run = outputs(notebook, "longer = run.learn_more")[-1]
    assert "<svg" in run["data"]["text/html"]
    assert "sharing every trajectory" in run["data"]["text/html"]
    (pickled,) = outputs(notebook, "pickle.loads")
    assert pickled["data"]["text/plain"].count("True") == 2


@pytest.mark.filterwarnings("ignore")
def test_the_notebook_runs(tmp_path: Path) -> None:
    """And shows what it showed when it was stored."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    here = executed(NOTEBOOK, {}, tmp_path)
    check(here)
    stored = pytest.importorskip("nbformat").read(NOTEBOOK, as_version=4)
    now, then = (
        ast.literal_eval(outputs(notebook, "run.references()")[-1]["data"]["text/plain"])
        for notebook in (here, stored)
    )
    assert now == pytest.approx(then, rel=1e-6)


def test_the_notebook_shows_its_results() -> None:
    nbformat = pytest.importorskip("nbformat")
    check(nbformat.read(NOTEBOOK, as_version=4))
    assert "/tmp" not in NOTEBOOK.read_text()
    assert "/work" not in NOTEBOOK.read_text()
