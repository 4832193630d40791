"""What the documents show runs: Python blocks and commands are executed, targets exist."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

import click
import pytest

from fedlsvi.algorithms import registry as algorithms_registry
from fedlsvi.cli import commands as shell_commands
from fedlsvi.cli import main
from fedlsvi.envs import registry as envs_registry
from fedlsvi.features import registry as features_registry
from repeats import only_ci, repeats

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "studies").glob("*.md")),
]
SHORT: dict[str, list[str]] = {
    "run": [], "resume": [], "report": [], "list": [], "evaluate": [], "record": [],
    "compare": ["--jobs", "1"], "tune": ["--jobs", "1"], "offline": ["--quiet"],
    "data": [], "episodes": [], "new": [], "study": [], "contribute": [], "merge": [],
    "attest": [], "recheck": [], "power": ["--jobs", "1"],
}  # fmt: skip
"""Verbs that are quick enough to run here, and what is added to them."""

BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of one language, in order; those that need an engine are marked so."""
    found = BLOCK.findall(page.read_text())
    return [code for name, mark, code in found if name == language and "engine" not in mark]


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands(code: str) -> list[list[str]]:
    """The words of each line of a shell block."""
    lines = code.replace("\\\n", " ").splitlines()
    return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def shortened(words: list[str]) -> list[str] | None:
    """The arguments of a `fedlsvi` command with less to do; None where its own tests run it."""
    if words[0] != "fedlsvi" or "--import" in words or words[1] not in SHORT or "ray" in words:
        return None
    if words[1] == "report" and not Path(words[2]).exists():  # a file of the reader's made it
        return None
    given = words[1:] + SHORT[words[1]]
    few = {
        "--studies": "3",
        "--episodes": "20",
        "--seeds": "0:2",
        "--tune": "0:1",
        "--test": "100:101",
    }
    if words[1] == "tune":  # its baselines have a test each: all of them where CI is set
        if "--algorithms" in given:
            every = given[given.index("--algorithms") + 1].split(",")
            few["--algorithms"] = ",".join(every[: repeats(2, len(every))])
        elif repeats(1, 0):
            given += ["--algorithms", "fed-lsvi,centralised"]
    for option, most in few.items():
        if option in given:
            given[given.index(option) + 1] = most
    return given


def fewer_episodes(code: str) -> str:
    """A Python block as it stands where CI is set; else with at most 300 episodes a run."""
    most = repeats(300, 0)
    if not most:
        return code
    return re.sub(r"\bepisodes=([\d_]+)", lambda m: f"episodes={min(most, int(m[1]))}", code)


def runnable() -> list[Any]:
    """The pages with blocks; the tutorial, whose runs are long, only where CI is set."""
    pages = sorted({*pages_with("python"), *pages_with("sh")})
    slow = {"tutorial": only_ci}
    return [pytest.param(page, id=name(page), marks=slow.get(page.stem, ())) for page in pages]


@pytest.mark.parametrize("page", runnable())
def test_blocks_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a page share one namespace and one folder, as a reader would type them. What a
    page registers is gone after it. Commands are given less to do."""
    monkeypatch.chdir(tmp_path)
    for registry in (envs_registry, features_registry, algorithms_registry):
        monkeypatch.setattr(registry.REGISTRY, "rows", dict(registry.REGISTRY.rows))
    for code in blocks(page, "toml"):
        if "[env]" in code:
            Path("settings.toml").write_text(code, encoding="utf-8")
        if named := re.match(r"# (\w+\.toml)\n", code):
            Path(named[1]).write_text(code, encoding="utf-8")
    namespace: dict[str, object] = {"__name__": "page"}
    for language, mark, code in BLOCK.findall(page.read_text()):
        if language == "python" and "engine" not in mark:
            short = fewer_episodes(code)
            exec(compile(short, name(page), "exec", dont_inherit=True), namespace)
        for words in commands(code) if language == "sh" and "engine" not in mark else []:
            given = shortened(words)
            assert given is None or main(given) == 0, words


@pytest.mark.parametrize("page", pages_with("toml"), ids=name)
def test_settings_are_toml(page: Path) -> None:
    for code in blocks(page, "toml"):
        assert tomllib.loads(code)


def parsed(words: list[str]) -> None:
    """Parse a command line without running it; what click refuses is raised."""
    command: click.Command = shell_commands
    while isinstance(command, click.Group):
        while words[0] == "--import":
            words = words[2:]
        context = click.Context(command)
        _, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
    command.make_context("fedlsvi", words)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_that_start_an_engine_would_run(page: Path) -> None:
    """They compile, what they import is there, and what they import takes what it is given. Nothing
    of them is run: the engines have tests of their own. A block marked with a package of an extra
    is checked where that is installed."""
    namespace: dict[str, object] = {}
    for language, mark, code in BLOCK.findall(page.read_text()):
        if language != "python" or "engine" not in mark:
            continue
        if not all(map(find_spec, mark.split()[1:])):
            continue
        tree = ast.parse(code, name(page))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                exec(compile(ast.Module([node], []), name(page), "exec"), namespace)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                _check_arguments(node, namespace)


def _check_arguments(call: ast.Call, namespace: dict[str, object]) -> None:
    """Whether `a.b(…)` or `partial(a.b, …)` fits, for an `a` that was imported."""
    later = ast.unparse(call.func) == "partial"
    called, args = (call.args[0], call.args[1:]) if later else (call.func, call.args)
    words = ast.unparse(called)
    if re.fullmatch(r"[\w.]+", words) and words.split(".")[0] in namespace:
        fits = signature(eval(words, namespace))
        named = dict.fromkeys(str(keyword.arg) for keyword in call.keywords)
        (fits.bind_partial if later else fits.bind)(*args, **named)


@pytest.mark.parametrize("page", pages_with("sh"), ids=name)
def test_commands_and_targets_exist(page: Path) -> None:
    """Every `fedlsvi` command has a verb and options that exist, every `make target` a target."""
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for code in blocks(page, "sh"):
        for words in commands(code):
            if words[0] == "fedlsvi":
                parsed(words[1:])
            if words[0] == "make":
                assert words[1] in targets, words


def slugs(page: str) -> set[str]:
    """What a link may name after `#`: GitHub's slugs, which are MyST's, of headings of the three
    levels that `docs/conf.py` gives anchors to. A second heading of one text ends in -1."""
    headings = re.findall(r"^#{1,3} (.+)$", BLOCK.sub("", page), re.MULTILINE)
    texts = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    counts: Counter[str] = Counter()
    for text in texts:
        counts[re.sub(r"[^\w -]", "", text.strip().lower()).replace(" ", "-")] += 1
    return {f"{slug}-{n}" if n else slug for slug, count in counts.items() for n in range(count)}


def test_slugs_are_those_of_github() -> None:
    page = (
        "# `p(x)`: a [link](to.md#x), ε and two_words\n```sh\n# none\n```\n## A – B …\n## A – B …\n"
    )
    assert slugs(page) == {"px-a-link-ε-and-two_words", "a--b-", "a--b--1"}


LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")
"""A link within the repository: its file, and its heading."""


def dead_links(page: Path) -> list[str]:
    """The links of a page that lead to no file or to no heading."""
    dead = []
    for path, heading in LINK.findall(page.read_text(encoding="utf-8")):
        target = page.parent / path if path else page
        if not target.exists() or (
            heading and heading not in slugs(target.read_text(encoding="utf-8"))
        ):
            dead.append(f"{path}#{heading}")
    return dead


@pytest.mark.parametrize("page", sorted({*PAGES, *ROOT.glob("*/README.md")}), ids=name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    assert not dead_links(page)


def test_dead_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n[1](#a-page) [2](page.md#a-page) [3](https://x.org/y#z)\n"
                    "[4](#a) ![5](no.png) [6](page.md#b)\n")  # fmt: skip
    assert dead_links(page) == ["#a", "no.png#", "page.md#b"]


def test_every_module_is_in_the_architecture() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page[page.index("| module |") : page.index("## The path of one message")]
    named = {part.rstrip("/") for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
             for part in re.findall(r"`(.+?)`", row)}  # fmt: skip
    found = {path.stem for path in (ROOT / "src" / "fedlsvi").iterdir()
             if path.suffix in ("", ".py") and not path.name.startswith("__")}  # fmt: skip
    assert named == found, named ^ found


@only_ci
def test_an_algorithm_of_ones_own_runs_from_the_shell(tmp_path: Path) -> None:
    """The page's file and the page's commands, in processes that know nothing else of it."""
    page = ROOT / "docs" / "howto-algorithms.md"
    (tmp_path / "doubling.py").write_text(blocks(page, "python")[0], encoding="utf-8")
    said = []
    for words in commands("".join(blocks(page, "sh"))):
        assert words[0] == "fedlsvi"
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}\n{done.stderr}"
        said.append(done.stdout)
    assert "pool all trajectories each time episodes double" in said[0]
    assert "doubling on river-swim" in said[1]
    assert "doubling" in said[2]
    assert (tmp_path / "runs" / "mine" / "report.html").exists()
