"""Pages of reports are read here for their text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedlsvi import registry as extensions
from fedlsvi import report
from fedlsvi.algorithms import registry as algorithms_registry
from fedlsvi.envs import registry as envs_registry
from fedlsvi.features import registry as features_registry


@pytest.fixture(autouse=True)
def _sketched(sketched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No figure is rendered, of a report or of a comparison."""
    monkeypatch.setattr("fedlsvi.report.plotting.save", report.save)


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """What a test registers, and what it imports from its folder, is gone after it."""
    monkeypatch.setenv(extensions.VARIABLE, "")
    for registry in (envs_registry, features_registry, algorithms_registry):
        monkeypatch.setattr(registry.REGISTRY, "rows", dict(registry.REGISTRY.rows))
    monkeypatch.setattr(sys, "path", list(sys.path))
    extensions.load_extensions.cache_clear()
    yield
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]
