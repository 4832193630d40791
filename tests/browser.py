"""A headless Chromium that tests drive: it opens a file, tells what went wrong, measures, draws.

It is spoken to over a pair of pipes in the browser's own protocol, so that nothing but the browser
is needed. Without one a test is skipped, and says so; where CI is set it fails instead.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import F_DUPFD_CLOEXEC, fcntl
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip

MEASURE = """(() => {
  const shown = e => { const box = e.getBoundingClientRect(), s = getComputedStyle(e);
    return box.width > 0 && box.height > 0 && s.visibility !== "hidden" && +s.opacity > 0; };
  const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let smallest = Infinity;
  for (let node = words.nextNode(); node; node = words.nextNode())
    if (node.data.trim() && shown(node.parentElement))
      smallest = Math.min(smallest, parseFloat(getComputedStyle(node.parentElement).fontSize));
  const figures = [...document.querySelectorAll("img, body svg")];
  const empty = figures.filter(e => e.tagName === "IMG" ? !(e.complete && e.naturalWidth > 0) : 0);
  const hidden = figures.filter(e => !e.closest("details:not([open])") && !shown(e));
  return { width: innerWidth, scrolls: document.documentElement.scrollWidth, smallest,
    figures: figures.length, empty: empty.length, hidden: hidden.length,
    narrowest: Math.min(...figures.filter(shown).map(e => e.getBoundingClientRect().width)) };
})()"""


class Page:
    """A page in the browser, and what it has complained about and asked for since it was opened."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        made = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = made["sessionId"]
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.loaded = False
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """One command to this page; events that arrive meanwhile are noted."""
        return self.browser.call(method, self.session, self.note, **params)

    def note(self, event: dict[str, Any]) -> None:
        """What an event says that a test wants to know."""
        name, params = event["method"], event["params"]
        self.loaded |= name == "Page.loadEventFired"
        if name == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif name == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(str([arg.get("value") for arg in params["args"]]))
        elif name == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"]["text"])
        elif name == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, path: Path, width: int) -> None:
        """Load a file as a screen of that many pixels shows it, and wait until it is drawn."""
        self.complaints.clear()
        self.requests.clear()
        self.loaded = False
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900,
                  deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        went = self.call("Page.navigate", url=path.absolute().as_uri())
        assert "errorText" not in went, f"{path}: {went['errorText']}"
        while not self.loaded:
            self.note(self.browser.read())
        self.evaluate("Promise.all([...document.images].map(i => i.decode().catch(() => 0)))")

    def evaluate(self, script: str) -> Any:
        """The value of an expression; of a promise, what it promises."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True,
                          awaitPromise=True)  # fmt: skip
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def measure(self) -> dict[str, Any]:
        """Widths, figures and the smallest letters of the page."""
        found: dict[str, Any] = self.evaluate(MEASURE)
        return found

    def draw(self, path: Path) -> None:
        """The whole page as a PNG file."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))


class Browser:
    """The process and its two pipes; messages are JSON, each ended by a zero byte."""

    def __init__(self, program: str, profile: str) -> None:
        theirs_in, self._out = (_high(end) for end in os.pipe())
        self._in, theirs_out = (_high(end) for end in os.pipe())
        given = [(os.POSIX_SPAWN_DUP2, theirs_in, 3), (os.POSIX_SPAWN_DUP2, theirs_out, 4),
                 (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]  # fmt: skip
        arguments = [program, *OPTIONS, f"--user-data-dir={profile}"]
        self.pid = os.posix_spawn(program, arguments, os.environ, file_actions=given)
        os.close(theirs_in)
        os.close(theirs_out)
        self._numbers, self._rest = itertools.count(1), b""

    def call(self, method: str, session: str | None = None, note: Any = None, **params: Any) -> Any:
        """Send a command and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            found = self.read()
            if found.get("id") == number:
                assert "error" not in found, f"{method}: {found['error']}"
                return found["result"]
            if note is not None and "method" in found:
                note(found)

    def read(self) -> dict[str, Any]:
        """The next message, an event or an answer."""
        while b"\0" not in self._rest:
            more = os.read(self._in, 1 << 20)
            assert more, "the browser has ended"
            self._rest += more
        line, self._rest = self._rest.split(b"\0", 1)
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the process and wait for it."""
        os.close(self._out)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._in)


def _high(end: int) -> int:
    """The same pipe under a number that is out of the way of 3 and 4, which the browser reads."""
    moved = fcntl(end, F_DUPFD_CLOEXEC, 16)
    os.close(end)
    return moved


@contextmanager
def chromium() -> Iterator[Page]:
    """A page of a new browser; skips where there is none, fails where CI is set."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        reason = f"no browser: none of {', '.join(NAMES)} is on the path"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        try:
            yield Page(browser)
        finally:
            browser.close()
