"""How often tests repeat what is slow: few times on a desk, many where CI is set."""

from __future__ import annotations

import os

import pytest


def repeats(few: int, many: int) -> int:
    """`few`, or `many` where the environment variable CI is set."""
    return many if os.environ.get("CI") else few


only_ci = pytest.mark.skipif(not repeats(0, 1), reason="slow: set CI=true to run it")
"""For a test that starts an engine once more: skipped on a desk, run where CI is set."""
