"""Every study can be started, and the list of studies says where its result is."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

STUDIES = Path(__file__).parents[2] / "studies"
SHARED = {"arms", "benchmark_page", "small_worlds", "tabular_q"}
PROOFS = ("protections", "security", "sources")
"""Pages of which nothing is played."""
NAMES = sorted({path.stem for path in STUDIES.glob("*.py")} - SHARED - {"__init__"})


def test_the_list_has_every_study_with_its_page() -> None:
    text = (STUDIES / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"`python -m studies\.(\w+)[^|]*\| \[\w+\]\((\w+)\.md\)", text))
    assert rows == {name: name for name in NAMES}
    pages = {path.stem for path in STUDIES.glob("*.md")}
    assert pages == {*NAMES, "README", "claims", *PROOFS}
    assert all(f"]({name}.md)" in text for name in PROOFS)


@pytest.mark.parametrize("name", NAMES)
def test_a_study_is_a_module_that_says_how_it_is_run(name: str) -> None:
    module = import_module(f"studies.{name}")
    assert callable(module.main)
    assert f"python -m studies.{name}" in str(module.__doc__)


def test_no_page_waits_for_its_tables() -> None:
    """A line that is one word in capitals is where a table was to be."""
    pages = [*STUDIES.glob("*.md"), *(STUDIES.parent / "benchmarks").glob("*.md")]
    waiting = [
        f"{page.name}: {line}"
        for page in pages
        for line in page.read_text(encoding="utf-8").splitlines()
        if re.fullmatch(r"[A-Z_]{3,}", line.strip())
    ]
    assert not waiting
