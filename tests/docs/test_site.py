"""The documentation as a site: it builds without a warning, names everything, works offline."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from browser import Page, chromium
from repeats import repeats

ROOT = Path(__file__).parents[2]
PUBLIC = ("fedlsvi", "fedlsvi.envs", "fedlsvi.features", "fedlsvi.algorithms",
          "fedlsvi.observers", "fedlsvi.report")  # fmt: skip


def build(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """As `make docs` does: any warning is an error."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    return subprocess.run(
        [*command, str(source), str(out)], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def sphinx() -> None:
    for name in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(name, reason=f"no {name}: fedlsvi[docs]")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, sphinx: None) -> Path:
    """The whole site: 25 s of processor time. Elsewhere, links and blocks of all pages are looked
    at without it (test_code_blocks.py)."""
    if not repeats(0, 1):
        pytest.skip("builds the whole documentation: set CI=true to run it")
    out = tmp_path_factory.mktemp("site")
    made = build(ROOT / "docs", out)
    assert made.returncode == 0, made.stderr
    return out


def test_every_page_is_there(site: Path) -> None:
    for source in (ROOT / "docs").rglob("*.md"):
        path = site / source.relative_to(ROOT / "docs").with_suffix(".html")
        assert path.exists(), source
    home = (site / "index.html").read_text(encoding="utf-8")
    assert "Federated online reinforcement learning" in home
    for source in (ROOT / "docs").glob("*.md"):
        assert f'href="{"#" if source.stem == "index" else source.stem}' in home, source


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_reference(site: Path, module: str) -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in (site / "api").glob("*.html"))
    anchors = {name.rsplit(".", 1)[-1] for name in re.findall(r'id="(fedlsvi\.[\w.]+)"', pages)}
    documented = {name for name in import_module(module).__all__ if not name.startswith("_")}
    assert documented <= anchors, documented - anchors


def test_every_name_that_a_page_imports_is_in_the_reference(site: Path) -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in (site / "api").glob("*.html"))
    anchors = set(re.findall(r'id="(?:module-)?(fedlsvi\.[\w.]+)"', pages))
    for source in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = source.read_text(encoding="utf-8")
        for module, names in re.findall(r"^from (fedlsvi[\w.]*) import (.+)$", text, re.MULTILINE):
            taught = {f"{module}.{name.strip()}" for name in names.split(",")}
            assert taught <= anchors, f"{source}: {taught - anchors}"


def test_nothing_is_loaded_from_outside(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        loaded = re.findall(
            r"<(?:script|img|iframe)[^>]*src=\"([^\"]+)|<link[^>]*href=\"([^\"]+)", text
        )
        for address in filter(None, (one or other for one, other in loaded)):
            assert "//" not in address, f"{path}: {address}"


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as found:
        yield found


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["index", "howto-environments", "api/learning", "results/stale"])
def test_reads_well(name: str, width: int, site: Path, page: Page) -> None:
    page.open(site / f"{name}.html", width)
    found = page.measure()
    assert not page.complaints
    assert all(url.startswith((site.as_uri(), "data:")) for url in page.requests)
    assert found["empty"] == 0
    assert found["scrolls"] <= width
    size = "parseFloat(getComputedStyle(document.querySelector('article p')).fontSize)"
    assert page.evaluate(size) >= 12.0


@pytest.mark.usefixtures("sphinx")
def test_broken_pages_are_refused(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text((ROOT / "docs" / "conf.py").read_text(encoding="utf-8"))
    (tmp_path / "index.md").write_text("# A page\n\n[text](nowhere.md) ![figure](nowhere.png)\n")
    made = build(tmp_path, tmp_path / "out")
    assert made.returncode != 0
    assert "nowhere.md" in made.stderr
    assert "nowhere.png" in made.stderr
