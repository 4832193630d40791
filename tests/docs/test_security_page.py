"""Every claim of the security page names a test, and the tests exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (?P<claim>.+) \| `(?P<file>tests/\S+\.py)::(?P<test>test_\w+)` \|$", re.M)


def test_every_claim_names_a_test_that_exists() -> None:
    page = (ROOT / "studies" / "security.md").read_text(encoding="utf-8")
    rows = list(ROW.finditer(page))
    tables = re.findall(r"\| claim \| test \|\n\|---\|---\|\n((?:\|.*\n)+)", page)
    assert sum(table.count("\n") for table in tables) == len(rows) > 25
    for row in rows:
        source = (ROOT / row["file"]).read_text(encoding="utf-8")
        assert f"\ndef {row['test']}(" in source, row["test"]
