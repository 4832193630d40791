"""The sepsis notebook runs from top to bottom, on a small budget."""

from __future__ import annotations

import pytest

from notebooks import ROOT, executed, said
from repeats import only_ci

NOTEBOOK = ROOT / "examples" / "sepsis" / "sepsis.ipynb"


@only_ci
@pytest.mark.filterwarnings("ignore")
def test_the_notebook_runs() -> None:
    pytest.importorskip("icu_sepsis")
    text = said(executed(NOTEBOOK, {"EPISODES = 150": "EPISODES = 10"}))
    assert "optimum               0.7922" in text
    assert "dose in state 100 at step 1:" in text


def test_the_notebook_shows_its_results() -> None:
    text = NOTEBOOK.read_text()
    assert "ten hospitals  0.78" in text
    assert "image/png" in text
