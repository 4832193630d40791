"""Pages of reports are read here for their text."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _sketched(sketched: None) -> None:
    """No figure is rendered."""
