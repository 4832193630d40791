"""An independent accountant of differential privacy."""

from __future__ import annotations

from typing import Any

import pytest


def google() -> tuple[Any, Any]:
    """dp-accounting's mechanisms and distributions, where its version keeps them."""
    pytest.importorskip("dp_accounting")
    try:
        from dp_accounting import privacy_loss_distribution, privacy_loss_mechanism
    except ImportError:
        from dp_accounting.pld import privacy_loss_distribution, privacy_loss_mechanism
    return privacy_loss_mechanism, privacy_loss_distribution
