"""The live page as a person sees it: a run under way, a comparison, a site that comes and goes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from browser import Page, chromium
from fedlsvi.cli import main
from fedlsvi.live.server import LivePage
from fedlsvi.live.watcher import Watcher
from fedlsvi.remote.server_status import STATUS, ServerStatus
from patience import wait_until
from repeats import only_ci

WIDTHS = (1280, 390)
SMALLEST = 12.0
"""Pixels of the smallest letters that are read without effort."""

LETTERS = """Math.min(...[...document.querySelectorAll("svg[viewBox] text")].map(e =>
  parseFloat(getComputedStyle(e).fontSize) * e.ownerSVGElement.getBoundingClientRect().width
  / e.ownerSVGElement.viewBox.baseVal.width))"""
"""Pixels of the smallest letters in figures."""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as found:
        yield found


def shows(page: Page, part: str, text: str) -> bool:
    script = f"document.getElementById({part!r})?.textContent.includes({json.dumps(text)})"
    return page.evaluate(script) is True


def opened(page: Page, live: LivePage, width: int) -> None:
    page.complaints.clear()
    page.requests.clear()
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=900,
              deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
    page.call("Page.navigate", url=live.url)
    wait_until(lambda: shows(page, "connection", "as of"), "the page does not connect")


def assert_sound(page: Page, live: LivePage, width: int) -> None:
    """No complaint, no request elsewhere, nothing wider than the screen, all letters readable."""
    assert page.complaints == []
    own = f"http://127.0.0.1:{live.port}/"
    assert all(url.startswith((own, "data:,")) for url in page.requests)
    found = page.measure()
    assert found["scrolls"] <= found["width"] == width
    assert found["smallest"] >= SMALLEST
    assert found["hidden"] == 0
    if found["figures"]:
        assert page.evaluate(LETTERS) >= SMALLEST - 0.1


@only_ci
def test_a_run_grows_and_a_comparison_lies_over_it(tmp_path: Path, page: Page) -> None:
    """Five algorithms × five seeds beside a run that goes on in a process of its own."""
    asked = "compare --env river-swim --episodes 40 --agents 2 --seeds 0:5 --jobs 1 -q --out"
    five = ["--algorithms", "fed-lsvi,centralised,independent,periodic,coop-lsvi"]
    assert main([*asked.split(), str(tmp_path / "compared"), *five]) == 0
    code = (
        "from fedlsvi import FedLSVI; from fedlsvi.envs import RiverSwim; from pathlib import Path;"
        "import sys, time;"
        f"hold = Path({str(tmp_path / 'hold')!r});"
        "slow = lambda record: [time.sleep(0.02) for _ in iter(hold.exists, False)] and None;"
        f"FedLSVI(2, gamma=1.0, rounds=2000).learn(RiverSwim(), 2000, folder="
        f"{str(tmp_path / 'live')!r}, observers=[slow], progress=False)"
    )
    with LivePage(Watcher(tmp_path, every=0.2), "runs") as live:
        (tmp_path / "hold").touch()
        run = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code])
        try:
            opened(page, live, WIDTHS[0])
            wait_until(lambda: shows(page, "runs", "running"), "the run is not shown")
            assert shows(page, "outcome", "26 runs: 1 going on, 25 finished")
            (tmp_path / "hold").unlink()
            wait_until(lambda: shows(page, "outcome", "26 runs: 0 going on"), "it does not end")
        finally:
            run.kill()
            run.wait()
        wait_until(lambda: shows(page, "events", "live finished"), "nobody says that it ended")
        assert shows(page, "said", "live finished")
        for width in WIDTHS:
            opened(page, live, width)
            wait_until(lambda: shows(page, "runs", "coop-lsvi"), "the runs are not shown")
            assert_sound(page, live, width)
            page.draw(tmp_path / f"runs-{width}.png")
        lines = "document.querySelectorAll('path.line:not([hidden])').length"
        every = page.evaluate(lines)
        assert every > 25
        page.evaluate("document.querySelector('.legend button').focus()")
        for kind in ("keyDown", "keyUp"):  # Enter, as by keyboard
            page.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r",
                      windowsVirtualKeyCode=13)  # fmt: skip
        pressed = "document.querySelector('.legend button').getAttribute('aria-pressed')"
        assert page.evaluate(pressed) == "false"
        assert page.evaluate(lines) < every
        assert page.evaluate("document.activeElement.tagName") == "BUTTON"


def test_a_site_goes_and_returns(tmp_path: Path, page: Page) -> None:
    """The page names it with its reason, says so to a screen reader, and takes it back."""
    folder = tmp_path / "kit" / "fedlsvi" / "wards"
    folder.mkdir(parents=True)
    (tmp_path / "kit" / "startup").mkdir()
    site = {"agents": 1, "since": None, "heard": 2.0, "round": 3, "up": 4_000_000, "down": 5000,
            "refused": {}, "refusal": ""}  # fmt: skip

    def write(state: str, why: str) -> None:
        table = ServerStatus(folder, "wards", "job-1", 40).table()
        names = [("north", "here", ""), ("south", state, why), ("west", "here", "")]
        sites = [{"name": n, "state": s, "why": w, **site} for n, s, w in names]
        new = folder / "new"
        new.write_text(json.dumps(table | {"state": "running", "sites": sites}))
        new.replace(folder / STATUS)

    write("here", "")
    with LivePage(Watcher(tmp_path / "kit", every=0.2), "wards") as live:
        for width in WIDTHS:
            opened(page, live, width)
            wait_until(lambda: shows(page, "federations", "south"), "the sites are not shown")
            write("awaited", "Stop, round 8, asked 1 time; nothing came back")
            wait_until(lambda: shows(page, "federations", "waited for"), "nobody says it")
            assert shows(page, "federations", "nothing came back")
            assert shows(page, "said", "wards: south waited for")
            assert shows(page, "outcome", "without south")
            assert_sound(page, live, width)
            page.draw(tmp_path / f"sites-{width}.png")
            write("here", "")
            wait_until(lambda: shows(page, "said", "south answers"), "its return is not said")
        live_region = "document.getElementById('said').getAttribute('aria-live')"
        assert page.evaluate(live_region) == "polite"
        heads = "[...document.querySelectorAll('th')].every(e => e.scope === 'col')"
        assert page.evaluate(heads)
