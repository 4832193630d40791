"""The live page over HTTP: who gets in, what it may load, what it says."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from expecting import refused
from fedlsvi.errors import InvalidInput
from fedlsvi.live.server import READERS, LivePage
from fedlsvi.live.watcher import Watcher
from fedlsvi.remote.server_status import STATUS, ServerStatus, parse
from patience import PATIENCE

TOKEN = "a-token"


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """A server's kit with the status of a run whose site has a hostile reason."""
    folder = tmp_path / "fedlsvi" / "wards"
    folder.mkdir(parents=True)
    (tmp_path / "startup").mkdir()
    write(folder, "here")
    return tmp_path


def write(folder: Path, state: str, why: str = "") -> None:
    table = ServerStatus(folder, "wards", "job-1", 40).table()
    site = {
        "name": "south", "agents": 1, "state": state, "why": why, "since": 1.0, "heard": 2.0,
        "round": 3, "up": 4000, "down": 5000, "refused": {}, "refusal": "",
    }  # fmt: skip
    table |= {"state": "running", "sites": [site]}
    assert parse(table) is not None
    (folder / STATUS).write_text(json.dumps(table))


@pytest.fixture(params=["", TOKEN])
def live(kit: Path, request: pytest.FixtureRequest) -> Iterator[LivePage]:
    with LivePage(Watcher(kit, every=0.05), "wards", token=request.param) as page:
        yield page


def ask(
    live: LivePage, path: str, method: str = "GET", host: str | None = None, cookie: str = ""
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """One request and its answer."""
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=PATIENCE)
    try:
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host or f"127.0.0.1:{live.port}")
        if cookie:
            connection.putheader("Cookie", f"fedlsvi={cookie}")
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def test_only_who_has_the_token_gets_anything(live: LivePage) -> None:
    """And who was sent to another name, as by a page that wants to read this one, gets nothing."""
    for path in ("/", "/events", "/live.js", "/style.css", "/nothing"):
        assert ask(live, path, host="evil.example")[0] == 421
        if live.token:
            assert ask(live, path)[0] == 403
            assert ask(live, path, cookie=live.token + "x")[0] == 403
            assert ask(live, path, cookie="\xff")[0] == 403
    if live.token:
        assert ask(live, "/?token=other")[0] == 403
        status, headers, _ = ask(live, f"/?token={live.token}")
        assert (status, headers["Location"]) == (303, "/")
        assert "HttpOnly; SameSite=Strict" in headers["Set-Cookie"]


def test_the_page_may_load_nothing_but_itself(live: LivePage) -> None:
    for path in ("/", "/live.js", "/style.css"):
        status, headers, body = ask(live, path, cookie=live.token)
        assert status == 200
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert b"http" not in body.replace(b"http-equiv", b"")
        assert ask(live, path, "HEAD", cookie=live.token)[2] == b""
    assert ask(live, "/../secret", cookie=live.token)[0] == 404
    for method in ("POST", "PUT", "DELETE"):
        assert ask(live, "/", method, cookie=live.token)[0] == 501


def test_changes_arrive_escaped_and_are_announced(kit: Path) -> None:
    """A site that stops answering, with a reason that would be a script, and its return."""
    with LivePage(Watcher(kit, every=0.02), "wards") as live:
        connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=PATIENCE)
        connection.request("GET", "/events")
        stream = connection.getresponse()
        assert stream.headers["Content-Type"].startswith("text/event-stream")

        def until(part: str) -> dict[str, str]:
            while True:
                line = stream.readline()
                if line.startswith(b"data: ") and part in line.decode():
                    found: dict[str, str] = json.loads(line[6:])
                    return found

        assert "answers" in until("answers")["parts"]["federations"]
        write(kit / "fedlsvi" / "wards", "awaited", "<script>alert(1)</script>")
        change = until("waited for")
        assert "<script>" not in change["parts"]["federations"]
        assert "wards: south waited for" in change["said"]
        write(kit / "fedlsvi" / "wards", "here")
        assert until("south answers")["said"] == "wards: south answers"
        connection.close()


def test_it_reads_and_changes_nothing(kit: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in kit.rglob("*")}
    watcher = Watcher(kit)
    for _ in range(3):
        watcher.look()
    assert {path: path.stat().st_mtime_ns for path in kit.rglob("*")} == before


def test_elsewhere_than_on_loopback_it_needs_a_token(kit: Path) -> None:
    with refused(InvalidInput, "needs-token", "0.0.0.0"):
        LivePage(Watcher(kit), "wards", "0.0.0.0")
    with LivePage(Watcher(kit), "wards", "0.0.0.0", token=TOKEN, names=("fl.example.org",)) as live:
        assert live.url == f"http://fl.example.org:{live.port}/?token={TOKEN}"
        assert ask(live, "/", host=f"fl.example.org:{live.port}", cookie=TOKEN)[0] == 200
        assert ask(live, "/", host=f"localhost:{live.port}", cookie=TOKEN)[0] == 421
    with refused(InvalidInput, "no-folder", "nowhere"):
        Watcher(kit / "nowhere")


def test_a_page_too_many_is_refused(kit: Path) -> None:
    with LivePage(Watcher(kit), "wards") as live:
        open_pages = []
        for _ in range(READERS):
            connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=PATIENCE)
            connection.request("GET", "/events")
            assert connection.getresponse().status == 200
            open_pages.append(connection)
        assert ask(live, "/events")[0] == 503
        for connection in open_pages:
            connection.close()


def test_states_are_words_and_numbers(kit: Path) -> None:
    """Nothing is told by colour alone, and a dead server is said to be dead."""
    watcher = Watcher(kit)
    watcher.look()
    text = "".join(watcher._parts.values())
    for part in ("south", "answers", "4 kB", "5 kB", "is running"):
        assert part in text
    folder = kit / "fedlsvi" / "wards"
    table = json.loads((folder / STATUS).read_text()) | {"written": 1.0}
    (folder / STATUS).write_text(json.dumps(table))
    watcher.look()
    assert "has died" in "".join(watcher._parts.values())
    status = parse(table)
    assert status is not None
    assert not replace(status, state="complete").goes_on
