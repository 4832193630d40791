"""Pages of reports are read here for their text."""

from __future__ import annotations

import pytest

from fedlsvi import report


@pytest.fixture(autouse=True)
def _sketched(sketched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No figure is rendered, of a report or of a comparison."""
    monkeypatch.setattr("fedlsvi.report.plotting.save", report.save)
