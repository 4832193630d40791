"""What the documents show runs: Python blocks are executed, commands and targets exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fedlsvi.algorithms import registry as algorithms_registry
from fedlsvi.envs import registry as envs_registry
from fedlsvi.features import registry as features_registry

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of one language, in order; those that need an engine are marked so."""
    found = BLOCK.findall(page.read_text())
    return [code for name, mark, code in found if name == language and "engine" not in mark]


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", pages_with("python"), ids=name)
def test_python_blocks_run_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All blocks of a page share one namespace, as a reader would type them. What a page registers
    is gone after it."""
    monkeypatch.chdir(tmp_path)
    for registry in (envs_registry, features_registry, algorithms_registry):
        monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    namespace: dict[str, object] = {"__name__": "page"}
    for code in blocks(page, "python"):
        exec(compile(code, name(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_that_start_an_engine_are_python(page: Path) -> None:
    """They are run by the tests of that engine; here they are only compiled."""
    for language, mark, code in BLOCK.findall(page.read_text()):
        if language == "python" and "engine" in mark:
            compile(code, name(page), "exec")


@pytest.mark.parametrize("page", pages_with("sh"), ids=name)
def test_commands_and_targets_exist(page: Path) -> None:
    """Every `fedlsvi verb` is a verb, every `make target` a target."""
    from fedlsvi.cli import HOME

    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for code in blocks(page, "sh"):
        for line in code.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["fedlsvi"]:
                assert words[1] in HOME or words[1].startswith("-"), line
            if words[:1] == ["make"]:
                assert words[1] in targets, line


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{name(page)} links to {target}"
