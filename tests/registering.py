"""Names that are registered for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fedlsvi.features import registry


@contextmanager
def named_features(name: str, make: Any) -> Iterator[None]:
    """`make` is registered under this name, and forgotten at the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry.REGISTRY, "rows", dict(registry.REGISTRY.rows))
        registry.register(name, make, "one's own")
        yield
