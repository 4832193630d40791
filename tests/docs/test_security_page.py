"""Every claim of the security and privacy pages names a test, and the tests exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (?P<claim>.+) \| `(?P<file>tests/\S+\.py)::(?P<test>test_\w+)` \|$", re.M)
MAP = (ROOT / "studies" / "security.md").read_text(encoding="utf-8")
LIMITS = "## What is not covered"
"""The section of limits, which promise nothing."""
TABLES = ("setting", "who")
"""Tables of promises, by their first column."""


def test_every_claim_names_a_test_that_exists() -> None:
    rows = list(ROW.finditer(MAP))
    tables = re.findall(r"\| (?:claim|line) \| test \|\n\|---\|---\|\n((?:\|.*\n?)+)", MAP)
    assert sum(len(table.splitlines()) for table in tables) == len(rows) > 25
    for row in rows:
        source = (ROOT / row["file"]).read_text(encoding="utf-8")
        assert f"\ndef {row['test']}(" in source, row["test"]


def promises(text: str) -> list[str]:
    """The bullets of a page, and the rows of its tables of promises, whole."""
    head, _, rest = text.partition(LIMITS)
    text = head + rest.partition("\n## ")[2]
    found = re.findall(r"^- (.+)", text, re.M)
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        first, _, *rows = table.splitlines()
        if first.split("|")[1].strip() in TABLES:
            found += [row.removeprefix("| ") for row in rows]
    return found


@pytest.mark.parametrize("page", ["Security", "Privacy"])
def test_every_line_of_the_pages_names_a_test(page: str) -> None:
    """And each line of the map begins one promise: a sentence that changes is looked at again."""
    text = (ROOT / "docs" / f"{page.lower()}.md").read_text(encoding="utf-8")
    _, _, part = MAP.partition("\n## Line by line\n")
    (table,) = re.findall(rf"### {page}\n\n\| line .*\n\|---.*\n((?:\|.*\n?)+)", part)
    known = [row["claim"] for row in ROW.finditer(table)]
    said = promises(text)
    assert len(said) > 15
    for line in said:
        assert any(line.startswith(begin) for begin in known), line
    for begin in known:
        assert sum(line.startswith(begin) for line in said) == 1, begin
