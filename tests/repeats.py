"""How often tests repeat what is slow: few times on a desk, many where CI is set."""

from __future__ import annotations

import os


def repeats(few: int, many: int) -> int:
    """`few`, or `many` where the environment variable CI is set."""
    return many if os.environ.get("CI") else few
